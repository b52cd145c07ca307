"""Methods that probe x along random directions instead of coordinates.

A direction is a seed: it is drawn for its two probes and again for the move. Only where all those
of a step are few numbers are they kept in between.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from math import nan
from typing import TypedDict, cast

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ...errors import NonFiniteLoss
from ...objective.protocol import LossT
from ...parts.evaluation import Evaluations
from ...parts.layout import Kind
from ...parts.types import Modules, State
from ...parts.update import decay_weights
from ...parts.validation import check_count, check_seed
from ..base import ZerothOrder

_FEW = 16  # points: for fewer a stack takes longer than one after the other

Pair = tuple[int, float, float]  # a direction's seed, f(x + eps u), f(x - eps u)
Direction = list[tuple[Tensor, Tensor]]  # each tensor with its part


class Options(TypedDict, total=False):
    """What all of them take beside parameters and learning rate."""

    eps: float
    directions: int
    weight_decay: float
    nonfinite: str
    modules: Modules
    seed: int


class DirectionMethod(ZerothOrder):
    """x <- x - lr * mean of u (f(x + eps u) - f(x - eps u)) / (2 eps) over `directions` pairs."""

    _whole = (*ZerothOrder._whole, "directions", "seed")
    _kept = (*ZerothOrder._kept, "directions", "_generator")

    _most_kept = 1 << 22  # numbers of a step's directions kept from the probes to the move: 16 MB
    _drawn: dict[int, Direction] | None = None  # while a step runs

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        eps: float = 1e-3,
        directions: int = 1,
        weight_decay: float = 0.0,
        nonfinite: str = "skip",
        modules: Modules = None,
        seed: int = 0,
    ) -> None:
        self.directions = check_count("directions", directions)
        self._generator = torch.Generator().manual_seed(check_seed(seed)).get_state()
        defaults = {"lr": lr, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults, nonfinite, modules)
        if not self._trainable():
            raise ValueError(
                "params holds nothing to train: every parameter is empty or has requires_grad=False"
            )

    def step(self, closure: Callable[[], LossT] | None = None) -> LossT:  # type: ignore[override]
        """Probe `directions` pairs of points, move; returns the loss at x_t, before the update.

        That loss is estimated by the mean of the pairs' losses, with an error of second order in
        eps.
        """
        with self._evaluating(closure) as evaluate, self._drawing():
            seeds, generator = self._seeds()
            losses = self._losses(evaluate, seeds)
            pairs = list(zip(seeds, losses[::2], losses[1::2], strict=True))
            usable = [pair for pair in pairs if self._usable(pair)]
            if not usable:
                raise NonFiniteLoss(
                    f"none of the {len(pairs)} pairs of losses is finite; nothing has changed"
                )
            self._report_nonfinite(
                len(pairs) - len(usable), f"of {len(pairs)} pairs of losses are not finite"
            )
            self._look_at_closure(evaluate, None, len(set(losses)) > 1)
            evaluate.interrupts.deliver()  # nothing has changed so far
            self._move(usable)
            self._generator = generator
        mean = sum(up + down for _, up, down in usable) / (2 * len(usable))
        like = evaluate.first
        if isinstance(like, Tensor) and like.is_floating_point():
            return cast(LossT, torch.full_like(like, mean))
        return cast(LossT, mean)

    def next_evaluations(self) -> int:
        """How many evaluations the next step will make: two per direction."""
        return 2 * check_count("directions", self.directions)

    # --- probe ----------------------------------------------------------------------------------

    def _losses(self, evaluate: Evaluations, seeds: list[int]) -> list[float]:
        """f(x + eps u), f(x - eps u) for one direction after the other.

        A closure that shares its evaluations with other processes (`cocd.distributed`) says which
        of them are to be made here, and knows the rest.
        """
        some = partial(self._probe, evaluate, seeds)
        return evaluate.bound.directional_losses(evaluate, 2 * len(seeds), some)

    def _probe(
        self, evaluate: Evaluations, seeds: list[int], wanted: Container[int]
    ) -> list[float]:
        """Those of the losses whose numbers are `wanted`, NaN for the others."""
        numbers = [k for k in range(2 * len(seeds)) if k in wanted]
        size = evaluate.bound.points_at_once(self._trainable())
        pays = min(size, len(numbers)) >= _FEW
        found = self._at_once(evaluate, seeds, numbers, size) if pays else {}
        if left := [k for k in numbers if k not in found]:
            found.update(zip(left, self._one_by_one(evaluate, seeds, left), strict=True))
        return [found.get(k, nan) for k in range(2 * len(seeds))]

    def _one_by_one(
        self, evaluate: Evaluations, seeds: list[int], numbers: list[int]
    ) -> list[float]:
        options = self._groups_by_tensor()
        saved = {id(tensor): tensor.detach().clone() for tensor in self._trainable()}
        losses = []
        try:
            for pair, signs in groupby(numbers, key=lambda k: k // 2):
                direction = list(self._direction(seeds[pair]))
                for k in signs:
                    for tensor, u in direction:
                        eps = float(options[id(tensor)]["eps"]) * (-1 if k % 2 else 1)
                        torch.add(saved[id(tensor)], u, alpha=eps, out=tensor)
                    losses.append(evaluate.moved(self._trainable()))
        finally:
            for tensor in self._trainable():
                tensor.copy_(saved[id(tensor)])
        return losses

    def _at_once(
        self, evaluate: Evaluations, seeds: list[int], numbers: list[int], size: int
    ) -> dict[int, float]:
        """The same by a traced objective, `size` points at a time, as far as it can.

        The first of each stack by the closure too, which shows whether it can.
        """
        options, tensors = self._groups_by_tensor(), self._trainable()
        losses: dict[int, float] = {}
        for start in range(0, len(numbers), size):
            some = numbers[start : start + size]
            pairs = sorted({k // 2 for k in some})
            directions = zip(*(self._direction(seeds[pair]) for pair in pairs), strict=True)
            chosen = torch.tensor([2 * pairs.index(k // 2) + k % 2 for k in some])
            stacks = []
            for tensor, parts in zip(tensors, directions, strict=True):
                u, eps = torch.stack([u for _, u in parts]), float(options[id(tensor)]["eps"])
                both = torch.stack([torch.add(tensor, u, alpha=h) for h in (eps, -eps)], 1)
                stacks.append(both.flatten(0, 1)[chosen].to(tensor.dtype))
            first = partial(self._first, evaluate, seeds, some[0])
            losses[some[0]], found = evaluate.bound.losses_at(evaluate, tensors, stacks, first)
            if found is None:
                break
            losses.update(zip(some[1:], found[1:], strict=True))
        return losses

    def _first(self, evaluate: Evaluations, seeds: list[int], number: int) -> float:
        return self._one_by_one(evaluate, seeds, [number])[0]

    def _usable(self, pair: Pair) -> bool:
        """Both losses are finite, and so is their quotient in the precision of every tensor."""
        _, up, down = pair
        options = self._groups_by_tensor()
        return all(
            abs(up - down) / (2 * float(options[id(tensor)]["eps"]))
            <= torch.finfo(Kind.of(tensor).dtype).max
            for tensor in self._trainable()
        )

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        count = check_count("directions", self.directions)
        numbers = count * sum(tensor.numel() for tensor in self._trainable())
        self._drawn = {} if numbers <= self._most_kept else None
        try:
            yield
        finally:
            self._drawn = None

    def _seeds(self) -> tuple[list[int], Tensor]:
        generator = torch.Generator()
        generator.set_state(self._generator)
        seeds = torch.randint(
            2**63 - 1, (check_count("directions", self.directions),), generator=generator
        )
        return seeds.tolist(), generator.get_state()

    def _direction(self, seed: int) -> Iterable[tuple[Tensor, Tensor]]:
        """Each tensor with its part of the direction."""
        if self._drawn is None:
            return self._draw(seed)
        if seed not in self._drawn:
            self._drawn[seed] = list(self._draw(seed))
        return self._drawn[seed]

    def _draw(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        # Drawn on the CPU, so that a run does not depend on where the parameters live.
        generator = torch.Generator().manual_seed(seed)
        for tensor in self._trainable():
            dtype = Kind.of(tensor).dtype
            yield tensor, self._sample(tensor.shape, dtype, generator).to(tensor.device)

    def _sample(self, shape: torch.Size, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        return torch.randn(shape, dtype=dtype, generator=generator)

    # --- update ---------------------------------------------------------------------------------

    def _move(self, pairs: list[Pair]) -> None:
        options = self._groups_by_tensor()
        for tensor in self._trainable():
            group = options[id(tensor)]
            decay_weights([tensor], float(group["lr"]), float(group["weight_decay"]))
        for (seed, _, _), weight in zip(pairs, self._weights(pairs), strict=True):
            by = {}
            for key, group in options.items():
                slope = weight / (2 * float(group["eps"]))
                by[key] = -float(group["lr"]) * (slope / len(pairs))
            self._walk(seed, by)

    def _walk(self, seed: int, by: dict[int, float]) -> None:
        """X <- x + by u, with a `by` for every tensor."""
        for tensor, u in self._direction(seed):
            if by[id(tensor)]:  # to add nothing would still turn -0.0 into 0.0
                tensor.add_(u, alpha=by[id(tensor)])

    def _weights(self, pairs: list[Pair]) -> list[float]:
        return [up - down for _, up, down in pairs]

    # --- saving ---------------------------------------------------------------------------------

    def _snapshot(self) -> State:
        return {
            **super()._snapshot(),
            "directions": self.directions,
            "generator": self._generator.clone(),
        }

    def _restore(self, saved: State) -> None:
        super()._restore(saved)
        self.directions = int(saved["directions"])
        self._generator = saved["generator"].clone()
