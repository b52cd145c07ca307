"""Callbacks for `Steps` and `Trainer`, which write each step's record to a logger.

>>> from cocd.integrations.loggers import numbers
>>> numbers({"step": 3, "evaluations": 9, "loss": 0.5, "engine": "batched"})
{'cocd/evaluations': 9, 'cocd/loss': 0.5}
"""

from __future__ import annotations

from typing import Protocol

from .steps import OnStep, Record


class Writer(Protocol):
    """What `tensorboard` needs of a writer."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int, /) -> object:
        """Write one number."""


class WandbRun(Protocol):
    """What `wandb` needs of a run."""

    def log(self, data: dict[str, float], /, *, step: int) -> object:
        """Write the numbers of a step."""


class Metrics(Protocol):
    """What `mlflow` needs of its module."""

    def log_metrics(self, metrics: dict[str, float], /, *, step: int) -> object:
        """Write the numbers of a step."""


def numbers(record: Record) -> dict[str, float]:
    """The numbers of a record, under names of their own."""
    return {
        f"cocd/{name}": value
        for name, value in record.items()
        if name != "step" and not isinstance(value, str)
    }


def tensorboard(writer: Writer) -> OnStep:
    """For a ``torch.utils.tensorboard.SummaryWriter``."""

    def on_step(record: Record) -> None:
        for name, value in numbers(record).items():
            writer.add_scalar(name, value, int(record["step"]))

    return on_step


def wandb(run: WandbRun) -> OnStep:
    """For what ``wandb.init()`` returns."""
    return lambda record: run.log(numbers(record), step=int(record["step"]))


def mlflow(module: Metrics) -> OnStep:
    """For the module ``mlflow``, with an active run."""
    return lambda record: module.log_metrics(numbers(record), step=int(record["step"]))
