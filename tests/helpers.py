"""What several test files use: exact comparisons, problems, and a second opinion on CoCD."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Array = npt.NDArray[Any]

# What a failed step may change: counts, and what MeZO knows of how a closure reads parameters.
COUNTERS = ("evaluations", "skipped", "warned", "met", "hidden")


def frozen(tree: Any) -> Any:
    """A copy to compare by ``==``: tensors become their dtype, shape and bytes."""
    if isinstance(tree, Tensor):
        numbers = tree.detach().clone(memory_format=torch.contiguous_format).view(-1)
        content = numbers.view(torch.uint8).numpy().tobytes() if len(numbers) else b""
        return str(tree.dtype), tuple(tree.shape), content
    if isinstance(tree, dict):
        return {key: frozen(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [frozen(value) for value in tree]
    return tree


def parameters(optimizer: Any) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def world(optimizer: Any, *modules: nn.Module) -> Any:
    """All that a failed step must leave alone: weights, memory, position, RNG, module buffers."""
    state = optimizer.state_dict()
    inner = {k: v for k, v in state["state"]["cocd"].items() if k not in COUNTERS}
    return frozen(
        {
            "parameters": parameters(optimizer),
            "groups": state["param_groups"],
            "state": inner,
            "random": torch.get_rng_state(),
            "modules": [dict(module.named_buffers()) for module in modules],
        }
    )


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """One float64 vector of all tensors, each row-major by its logical shape."""
    return torch.cat([t.detach().double().flatten() for t in tensors])


def quadratic(n: int, seed: int = 0) -> Callable[[Tensor], Tensor]:
    """A convex quadratic with cross terms and steep slopes, on float64 vectors."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(n, n, generator=generator, dtype=torch.float64)
    A = root @ root.t() / max(n, 1) + torch.eye(n, dtype=torch.float64)
    b = 3 * torch.randn(n, generator=generator, dtype=torch.float64)
    return lambda x: x @ A @ x / 2 + b @ x


class Raising:
    """A closure that fails at its j-th evaluation, after the random numbers were drawn."""

    def __init__(self, closure: Callable[[], Any], at: int, fail: Callable[[], Any]) -> None:
        self.closure, self.at, self.fail, self.calls = closure, at, fail, 0

    def __call__(self) -> Any:
        self.calls += 1
        loss = self.closure()
        return self.fail() if self.calls == self.at else loss


class Twin:
    """CoCD told a second time, one coordinate at a time: no slots, no strides, no tensors.

    Every option may be one number or one for each coordinate. `fixed` coordinates are frozen.
    `dtypes`, one for each coordinate, says how its weight is rounded (float64 if not given).
    """

    def __init__(
        self,
        f: Callable[[Tensor], Any],
        x: Any,
        *,
        B: int,
        m: int | None = None,
        difference: str = "central",
        dtypes: Sequence[torch.dtype] | None = None,
        **options: Any,
    ) -> None:
        self.f, self.B, self.m, self.difference, self.dtypes = f, B, m, difference, dtypes
        self.x = np.zeros(0)
        self.options = {name: np.zeros(0) for name in ("lr", "eps", "decay", "weight_decay")}
        self.memory: list[tuple[int, float]] = []  # oldest first
        self.cursor = self.evaluations = 0
        self.fixed: set[int] = set()
        self.join(x, **options)

    def join(self, x: Any, *, lr: Any, eps: Any, decay: Any = 1.0, weight_decay: Any = 0.0) -> None:
        self.x = np.concatenate([self.x, np.asarray(x, dtype=np.float64)])
        new = {"lr": lr, "eps": eps, "decay": decay, "weight_decay": weight_decay}
        for name, value in new.items():
            value = np.broadcast_to(np.asarray(value, dtype=np.float64), (len(x),))
            self.options[name] = np.concatenate([self.options[name], value])

    def _loss(self, i: int | None = None, h: float = 0.0) -> float:
        self.evaluations += 1
        x = self.x.copy()
        if i is not None:
            x[i] = self._rounded(i, x[i] + h)
        return float(self.f(torch.from_numpy(x)))

    def _slope(self, i: int, loss: float) -> float:
        eps = float(self.options["eps"][i])
        up = self._loss(i, eps) if self.difference != "backward" else loss
        down = self._loss(i, -eps) if self.difference != "forward" else loss
        return (up - down) / (2 * eps if self.difference == "central" else eps)

    def step(self) -> float:
        n = len(self.x)
        loss = self._loss()
        block = [(self.cursor + k) % n for k in range(self.B)]
        fresh = {i: math.nan if i in self.fixed else self._slope(i, loss) for i in block}
        self.memory = [(i, g * self.options["decay"][i]) for i, g in self.memory]
        for i, g in fresh.items():
            old = dict(self.memory).get(i, 0.0)
            self.memory = [entry for entry in self.memory if entry[0] != i]
            self.memory.append((i, g if math.isfinite(g) else old))
        self.memory = self.memory[-(self.m or n) :]
        self.cursor = (self.cursor + self.B) % n
        lr, wd = self.options["lr"], self.options["weight_decay"]
        moved = (1 - lr * wd) * self.x - lr * self.estimate()
        self.x = np.array(
            [self.x[i] if i in self.fixed else self._rounded(i, moved[i]) for i in range(n)]
        )
        return loss

    def _rounded(self, i: int, value: float) -> float:
        return float(value if self.dtypes is None else torch.tensor(value).to(self.dtypes[i]))

    def estimate(self) -> Array:
        g = np.zeros(len(self.x))
        for i, g_i in self.memory:
            g[i] = g_i
        return g
