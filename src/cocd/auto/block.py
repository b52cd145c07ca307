"""The coordinates that `AutoCoCD` moves together: where they go, and the objective there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..parts.evaluation import Evaluations
from ..parts.layout import Place, Spot, gather, put, spot
from .direction import Search, Vector, scaled, shortened

_FLOOR = 1e-12  # of slope / radius, in place of a curvature of 0: no quotient overflows


class Step(NamedTuple):
    """What a step is about to do, when all evaluations have been made."""

    places: Sequence[Place] = ()
    change: Tensor | None = None  # of these, one after the other; None: nothing moves
    whose: int = 0  # the length that the search began with
    tried: float = 0.0
    found: float = 0.0
    taken: float = 0.0  # of the move that was found best
    scale: float = 1.0  # of what is taken: by learning rates, and near the end
    whole: float = 0.0  # what that gains, on this batch

    def state_dict(self) -> dict[str, Any] | None:
        """Of a step that has been made: what is to be learned from it."""
        if self.change is None:
            return None
        places = [[t, list(index)] for t, index in self.places]
        kept = {"places": places, "change": self.change.clone()}
        return {**kept, "taken": self.taken, "scale": self.scale, "whole": self.whole}

    @classmethod
    def of(cls, saved: dict[str, Any] | None) -> Step:
        if saved is None:
            return cls()
        places = [Place(t, list(index)) for t, index in saved["places"]]
        change = saved["change"].to("cpu", copy=True)
        return cls(**{**saved, "places": places, "change": change})

    def split(self, tensors: list[Tensor]) -> Iterator[tuple[Tensor, Spot, Tensor]]:
        if self.change is not None:
            parts = torch.split(self.change, list(map(len, self.places)))
            for (t, index), change in zip(self.places, parts, strict=True):
                yield tensors[t], spot(tensors[t], index), change


Found = tuple[Vector, Vector, Search]  # direction, what each coordinate promises, outcome


class Block:
    """Coordinates that move together, and the objective where they have moved."""

    def __init__(
        self,
        evaluate: Evaluations,
        tensors: list[Tensor],
        places: Sequence[Place],
        options: dict[int, dict[str, Any]],
    ) -> None:
        self.evaluate, self.places = evaluate, places
        self.spots = [(tensors[t], spot(tensors[t], index)) for t, index in places]
        self.now = [gather(tensor, where) for tensor, where in self.spots]
        self.x = torch.cat([values.double().cpu() for values in self.now]).numpy()
        decay = [float(options[id(tensors[t])]["weight_decay"]) for t, _ in places]
        self.wd = np.repeat(decay, list(map(len, places)))

    def compared(
        self, stale: Vector, g: Vector, c: Vector, damping: float
    ) -> tuple[Vector, Vector, Vector]:
        """Slopes, stale and fresh, and curvatures: of the objective with the penalty, damped."""
        size = np.abs(c + self.wd)
        known = size[np.isfinite(size)]
        size = size + damping * float(known.mean()) if len(known) else size
        return stale + self.wd * self.x, g + self.wd * self.x, size

    def penalty(self, change: Any = 0.0) -> float:
        """Of weight decay, on these alone."""
        return float(self.wd @ (self.x + change) ** 2) / 2

    def at(self, change: Any) -> float:
        """The loss and the penalty with the block moved, which is then as it was, bit for bit."""
        try:
            parts = torch.split(torch.from_numpy(change), list(map(len, self.now)))
            for (tensor, where), values, part in zip(self.spots, self.now, parts, strict=True):
                put(tensor, where, values + part.to(values))
            return self.evaluate.quickly() + self.penalty(change)
        finally:
            for (tensor, where), values in zip(self.spots, self.now, strict=True):
                put(tensor, where, values)

    def search(
        self,
        loss: float,
        g: Vector,
        c: Vector,
        radius: Vector,
        length: float,
        reach: Vector,
        damping: float,
        scale: Vector | float = 1.0,
    ) -> Found | None:
        """Slopes scaled by curvature, as long as two evaluations say, none further than `reach`.

        The direction, what each coordinate promises along it, and the outcome; None where nothing
        is known or nothing is promised. `loss` is without the penalty, of which slopes and
        curvatures are told here; `damping` is a part of the mean curvature, `scale` is how long
        the step of each coordinate is beside those of the others (whom it makes shorter where one
        of them would go beyond `reach`).
        """
        g, c = g + self.wd * self.x, c + self.wd
        good = np.isfinite(g) & np.isfinite(c)
        if not good.any():
            return None
        g, c = np.where(good, g, 0.0), np.where(good, c, np.inf)
        least = damping * float(np.abs(c[good]).mean())
        least = max(least, _FLOOR * float(np.abs(g / radius).max()), np.finfo(float).tiny)
        p = shortened(scale * scaled(g, c, least), reach)
        slope = float(g @ p)
        if not slope < 0:
            return None
        rounding = 8 * _rounding(self.evaluate.first, self.now) * abs(loss)
        longest = float((reach / np.maximum(np.abs(p), 1e-300)).min())
        start = min(length, longest)
        f0 = loss + self.penalty()
        search = Search(f0, slope, start, around=(1.0,), rounding=rounding)
        while search.lengths:
            search.lengths = [min(s, longest) for s in search.lengths]
            search.learn([self.at(s * p) for s in search.lengths])
        return p, g * p, search

    def part(
        self, found: Found, whose: int, taken: float, left: float, ratios: list[float]
    ) -> Step:
        """Of what was found the part `taken` (near the end `left` of what it was), by place."""
        p, promised, search = found
        sizes = list(map(len, self.places))
        change = torch.from_numpy(np.repeat([taken * search.best * r for r in ratios], sizes) * p)
        ratio = ratios[0]
        if len(set(ratios)) > 1:  # on average, by what each coordinate promises
            ratio = float(promised @ np.repeat(ratios, sizes)) / search.slope
        return Step(
            self.places,
            change if search.best else None,
            whose,
            search.length,
            search.best,
            taken * ratio,
            left * ratio,
            search.f0 - search.value,
        )


def gained(
    evaluate: Evaluations,
    tensors: list[Tensor],
    last: Step,
    loss: float,
    options: dict[int, dict[str, Any]],
) -> float | None:
    """What the step before gained on this batch; None where that is not to be learned."""
    if last.change is None or not last.taken * last.whole > 0:
        return None
    moved = [tensors[place.tensor].requires_grad for place in last.places]
    parts = torch.split(last.change, list(map(len, last.places)))
    if any(part.any() for part, still in zip(parts, moved, strict=True) if not still):
        return None  # it has been frozen since, and is to be left alone
    block = Block(evaluate, tensors, last.places, options)
    gain = block.at(-last.change.numpy()) - loss - block.penalty()
    return gain if isfinite(gain) else None


def penalty(tensors: list[Tensor], options: dict[int, dict[str, Any]]) -> float:
    """What weight decay adds to the loss."""
    total = 0.0
    for tensor in tensors:
        wd = float(options[id(tensor)]["weight_decay"])
        if wd and tensor.requires_grad:
            total += wd / 2 * float(torch.linalg.vector_norm(tensor.detach().float())) ** 2
    return total


def _rounding(loss: Any, values: list[Tensor]) -> float:
    """Of a loss of about 1: what it and the weights, at single precision or wider, are made in."""
    parts = [torch.promote_types(part.dtype, torch.float32) for part in values]
    if isinstance(loss, Tensor) and loss.is_floating_point():
        parts.append(loss.dtype)
    return max(float(torch.finfo(dtype).eps) for dtype in parts)
