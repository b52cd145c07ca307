"""What is learnt: data, network, loss and metric of each task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from . import data as datasets
from . import networks
from .runs import Run

# One split for all seeds: with a split for each, one seed's validation rows would be another's
# test rows, and settings would be chosen on what they are judged by.
SPLIT_SEED = 0

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU, "gelu": nn.GELU}
DTYPES = {"float32": torch.float32, "float64": torch.float64}
CHUNK = 1024  # rows of a held-out pass
AUGMENTATIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "none": lambda images, generator: images,
    "crop and flip": datasets.crop_and_flip,
}


@dataclass(frozen=True)
class Task:
    """A data set, a network for it and what is minimised."""

    name: str
    dataset: str
    network: Callable[..., nn.Module]
    loss: Callable[[Any, Any], Tensor]
    classify: bool
    activation: str = "tanh"

    def better(self, metric: float, than: float) -> bool:
        """Whether one metric is better than another: accuracy or loss."""
        return metric > than if self.classify else metric < than


def _error_bound_mlp(*, activation: Callable[[], nn.Module]) -> nn.Sequential:
    """The network of about 4k parameters on which the paper measures its error bound."""
    return networks.mlp(21, 38, 38, 38, 7, activation=activation)


def _wide_mlp(*, activation: Callable[[], nn.Module]) -> nn.Sequential:
    """A million parameters, to measure memory with; there is no data set for it."""
    return networks.wide_mlp(10**6, activation=activation)


TASKS = {
    task.name: task
    for task in (
        Task("sarcos", "sarcos", networks.sarcos_mlp, mse_loss, classify=False),
        Task("mnist", "mnist", networks.mnist_cnn, cross_entropy, classify=True),
        Task("cifar10", "cifar10", networks.cifar_cnn, cross_entropy, classify=True),
        Task("cifar10-small", "cifar10", networks.small_cnn, cross_entropy, True, "relu"),
        Task("cifar10-resnet", "cifar10", networks.resnet20, cross_entropy, True, "relu"),
        Task("wide-mlp", "", _wide_mlp, mse_loss, classify=False),
        Task("error-bound", "sarcos", _error_bound_mlp, mse_loss, classify=False),
    )
}


def find(name: str) -> Task:
    """The task of that name.

    >>> find("mnist").classify
    True
    """
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {name!r}")
    return TASKS[name]


def network(run: Run) -> nn.Module:
    """The run's network, with the weights that its seed gives, in its dtype."""
    options, task = run.options, find(run.task)
    activation = str(options.get("activation", task.activation))
    check_activation(activation)
    options_of_network: dict[str, Any] = {"activation": ACTIVATIONS[activation]}
    if "width" in options:
        options_of_network["width"] = int(options["width"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        return task.network(**options_of_network).to(dtype(run)).train()


def check_activation(name: object) -> None:
    """Whether there is one of that name."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {name!r}")


def dtype(run: Run) -> torch.dtype:
    """The precision that the run's settings name."""
    name = str(run.options.get("dtype", "float32"))
    if name not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {name!r}")
    return DTYPES[name]


def load(run: Run, data: Path | None) -> datasets.Splits:
    """The run's rows; generated ones for the small form."""
    inputs = str(run.options.get("inputs", "standardised"))
    return _load(find(run.task).dataset, run.split, run.smoke, data, inputs)


@lru_cache(maxsize=1)  # the runs of a plan are in the order of their tasks
def _load(dataset: str, split: str, smoke: bool, data: Path | None, inputs: str) -> datasets.Splits:
    if smoke:
        return datasets.generated(dataset, SPLIT_SEED, rows=256)
    if inputs == "raw":
        return datasets.sarcos(data=data, split=split, seed=SPLIT_SEED, standardised=False)
    return datasets.load(dataset, data=data, split=split, seed=SPLIT_SEED)


class Batches:
    """Batches without end: every pass is a new permutation, rows that do not fill one wait.

    The state is where the generator stood before the present permutation, and the position in it;
    and where that of `augment` stands, which changes the inputs at random.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        size: int,
        seed: int,
        dtype: torch.dtype,
        augment: str = "none",
    ) -> None:
        if not 1 <= size <= len(x):
            raise ValueError(f"batch_size must be from 1 to the {len(x)} training rows, got {size}")
        self.x, self.y, self.size, self.dtype = x, y, size, dtype
        if augment not in AUGMENTATIONS:
            known = ", ".join(AUGMENTATIONS)
            raise ValueError(f"augment must be one of {known}, got {augment!r}")
        self.augment = AUGMENTATIONS[augment]
        self.changes = torch.Generator().manual_seed(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self._permute(0)

    def _permute(self, position: int) -> None:
        self.before = self.generator.get_state()
        self.order = torch.randperm(len(self.x), generator=self.generator)
        self.position = position

    def next(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the next batch."""
        if self.position + self.size > len(self.order):
            self._permute(0)
        chosen = self.order[self.position : self.position + self.size]
        self.position += self.size
        x = self.augment(self.x[chosen], self.changes)
        return cast(x, self.dtype), cast(self.y[chosen], self.dtype)

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on with the next batch."""
        changes = self.changes.get_state()
        return {"before": self.before.clone(), "position": self.position, "changes": changes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was taken."""
        self.generator.set_state(state["before"])
        self._permute(int(state["position"]))
        self.changes.set_state(state["changes"])


def cast(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers in `dtype`; labels as they are."""
    return values.to(dtype) if values.is_floating_point() else values


@torch.no_grad()
def score(task: Task, model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Loss and metric on these rows, in eval mode; the model is left in train mode."""
    model.eval()
    precision = next(model.parameters()).dtype
    total = hits = 0.0
    for rows, targets in zip(torch.split(x, CHUNK), torch.split(y, CHUNK), strict=True):
        output = model(cast(rows, precision))
        total += float(task.loss(output, cast(targets, precision))) * len(rows)
        if task.classify:
            hits += float((output.argmax(1) == targets).sum())
    model.train()
    loss = total / len(x)
    return loss, hits / len(x) if task.classify else loss
