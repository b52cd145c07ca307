"""Run real steps of one engine on its own copy of a model, and time their parts."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from importlib.util import find_spec
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cocd import CoCD, trace
from cocd.objective import BoundLoss, ForwardedLoss

# The name of each engine here and in `cocd.trace`. The first two are the same engine, with
# the fused kernels and with plain tensor operations.
ENGINES = {
    "accelerated": "incremental",
    "incremental": "incremental",
    "batched": "batched",
    "sequential": "sequential",
}


def accelerator() -> bool:
    """Whether fused kernels are installed and enabled."""
    return find_spec("numba") is not None and os.environ.get("COCD_ACCELERATOR") != "0"


class Step(NamedTuple):
    """The seconds of one step: total, at the unperturbed point, and in each tensor's probes."""

    seconds: float
    forward: float
    probes: dict[str, float]

    @property
    def rest(self) -> float:
        """Everything but the probes."""
        return self.seconds - sum(self.probes.values())

    @property
    def update(self) -> float:
        """What is neither probes nor the unperturbed pass: memory, update, bookkeeping."""
        return self.rest - self.forward


class _Timed(ForwardedLoss):
    """A traced loss that times its parts."""

    def __init__(self, loss: BoundLoss, names: dict[int, str]) -> None:
        super().__init__(loss)
        self._names = names
        self.forward = 0.0
        self.probes: dict[str, float] = {}

    def prepare(self, *args: Any) -> Any:
        started = perf_counter()
        value = self.inner.prepare(*args)
        self.forward += perf_counter() - started
        return value

    def block_differences(
        self, evaluate: Any, loss: float, requests: list[Any], difference: Any
    ) -> Any:
        found = []
        for request in requests:
            started = perf_counter()
            tensor, elements, eps = request
            found.append(self.inner.differences(evaluate, loss, tensor, elements, eps, difference))
            name = self._names[id(tensor)]
            self.probes[name] = self.probes.get(name, 0.0) + perf_counter() - started
        return found


class Stepper:
    """A copy of `model` that CoCD trains through one of the `ENGINES`."""

    def __init__(
        self,
        engine: str,
        model: nn.Module,
        loss: Callable[[Any, Any], Tensor],
        data: tuple[Tensor, Tensor],
        settings: dict[str, float],
    ) -> None:
        self.engine = engine
        self.model = deepcopy(model)
        self.data = data
        fused = engine != "incremental"
        self.objective = trace(self.model, loss, engine=ENGINES[engine], accelerate=fused)
        self.optimizer = CoCD(self.model.parameters(), **settings)  # type: ignore[arg-type]
        self.sizes = {name: p.numel() for name, p in self.model.named_parameters()}
        self.n = sum(self.sizes.values())
        self._names = {id(p): name for name, p in self.model.named_parameters()}

    def step(self, position: int, coordinates: int) -> Step:
        """A step that probes this many coordinates, from flat position `position` on."""
        self.optimizer.schedule.count = position
        self.optimizer.compute_budget = coordinates
        started = perf_counter()
        closure = _Timed(self.objective(*self.data), self._names)
        self.optimizer.step(closure)
        seconds = perf_counter() - started
        return Step(seconds, closure.forward, closure.probes)

    def offsets(self) -> dict[str, int]:
        """The flat position where each tensor begins."""
        ends = torch.tensor(list(self.sizes.values())).cumsum(0).tolist()
        return {
            name: end - size for (name, size), end in zip(self.sizes.items(), ends, strict=True)
        }

    def probed_by(self) -> dict[str, float]:
        """The share of the coordinates that each engine of `cocd.trace` currently probes."""
        counts: dict[str, int] = {}
        for name, size in self.sizes.items():
            engine = self.objective.engine_of(name)
            counts[engine] = counts.get(engine, 0) + size
        return {engine: count / self.n for engine, count in counts.items()}
