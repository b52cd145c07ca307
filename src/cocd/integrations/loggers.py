"""Callbacks for `Steps` and `Trainer`, which write each step's record to a logger.

>>> from cocd.integrations.loggers import numbers
>>> numbers({"step": 3, "evaluations": 9, "loss": 0.5, "engine": "batched"})
{'cocd/evaluations': 9, 'cocd/loss': 0.5}
"""

from __future__ import annotations

from typing import Any

from .steps import OnStep, Record


def numbers(record: Record) -> dict[str, float]:
    """The numbers of a record, under names of their own."""
    return {
        f"cocd/{name}": value
        for name, value in record.items()
        if name != "step" and not isinstance(value, str)
    }


def tensorboard(writer: Any) -> OnStep:
    """For a ``torch.utils.tensorboard.SummaryWriter``."""

    def on_step(record: Record) -> None:
        for name, value in numbers(record).items():
            writer.add_scalar(name, value, record["step"])

    return on_step


def wandb(run: Any) -> OnStep:
    """For what ``wandb.init()`` returns."""
    return lambda record: run.log(numbers(record), step=record["step"])


def mlflow(module: Any) -> OnStep:
    """For the module ``mlflow``, with an active run."""
    return lambda record: module.log_metrics(numbers(record), step=record["step"])
