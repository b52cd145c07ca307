"""The coordinates of one step, and the objective at moved points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..parts.evaluation import Evaluations
from ..parts.layout import Place, gather, index_of, put
from ..parts.memory import Segment
from ..parts.probe import is_lost
from ..parts.types import Group
from .direction import Vector
from .line_search import SearchResult

Options = Mapping[int, Group]  # the group of each tensor, by its id


class Block:
    """Built once per step, before anything is evaluated; vectors have one number per coordinate."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        places: Sequence[Place],
        options: Options,
        segments: Sequence[Segment] = (),
        widths: Vector | None = None,
    ) -> None:
        self.places = places
        self.segments = list(segments)  # where the estimates are remembered
        self.options = options
        self.sizes = list(map(len, places))
        self._of = [tensors[place.tensor] for place in places]
        self._indices = [
            index_of(t, place.elements) for t, place in zip(self._of, places, strict=True)
        ]
        self._now = [gather(t, where) for t, where in zip(self._of, self._indices, strict=True)]
        self.x = torch.cat([values.double().cpu() for values in self._now]).numpy()
        self.moving = self.spread([tensor.requires_grad for tensor in self._of])
        # The radius of each tensor's probes: its eps times a width, 1 if none is told.
        factors = np.ones(len(places)) if widths is None else widths
        self.radii = [
            float(options[id(tensor)]["eps"]) * float(factor)
            for tensor, factor in zip(self._of, factors, strict=True)
        ]
        self.radius = self.spread(self.radii)
        self.decay = self.option("l2")

    def __len__(self) -> int:
        return len(self.x)

    def option(self, name: str) -> Vector:
        """An option of each coordinate's group."""
        return self.spread([float(self.options[id(tensor)][name]) for tensor in self._of])

    def spread(self, values: ArrayLike) -> Vector:
        """Values of the places, each repeated for all coordinates of its own."""
        repeated: Vector = np.repeat(values, self.sizes)
        return repeated

    def radius_of(self, tensor: Tensor) -> float:
        """The radius in one of its tensors."""
        return next(r for t, r in zip(self._of, self.radii, strict=True) if t is tensor)

    @property
    def tensors(self) -> list[int]:
        """The number of each place's tensor."""
        return [place.tensor for place in self.places]

    def steps(self, found: SearchResult | None) -> list[float | None]:
        """The length of a step in each tensor, in radii; 0 if nothing lower was found."""
        if found is None:
            return [None] * len(self.places)
        radii = self.split(found.length * np.abs(found.direction.p) / self.radius)
        moved = [part[part > 0] for part in radii]
        none = None if found.length else 0.0
        return [float(np.sqrt((m * m).mean())) if len(m) else none for m in moved]

    def split(self, values: Vector) -> list[Vector]:
        """One number per coordinate, place by place."""
        parts: list[Vector] = np.split(values, np.cumsum(self.sizes[:-1]))
        return parts

    @property
    def is_rough(self) -> bool:
        """Whether some tensor needs a wider radius than its eps, because differences vanish."""
        return any(
            radius > float(self.options[id(tensor)]["eps"])
            for tensor, radius in zip(self._of, self.radii, strict=True)
        )

    def is_lost_at(self, times: float) -> bool:
        """Whether rounding would swallow a radius of so many eps at some of the weights."""
        return any(
            is_half(tensor) or is_lost(tensor, place.elements, times * radius)
            for tensor, place, radius in zip(self._of, self.places, self.radii, strict=True)
        )

    def rounding(self, loss: object) -> float:
        """Of a loss of about 1: what it and the weights, in single precision or wider, are in."""
        kinds = [torch.promote_types(values.dtype, torch.float32) for values in self._now]
        if isinstance(loss, Tensor) and loss.is_floating_point():
            kinds.append(loss.dtype)
        return max(float(torch.finfo(kind).eps) for kind in kinds)

    # --- the objective: the loss and the penalty of weight decay --------------------------------

    def slopes(self, g: Vector) -> Vector:
        """Slopes of the objective, from those of the loss."""
        slopes: Vector = g + self.decay * self.x
        return slopes

    def curvatures(self, c: Vector) -> Vector:
        curvatures: Vector = c + self.decay
        return curvatures

    def penalty(self, change: Vector | float = 0.0) -> float:
        """The penalty on these coordinates."""
        return float(self.decay @ (self.x + change) ** 2) / 2

    def at(self, evaluate: Evaluations, change: Vector) -> float:
        """The objective with the block moved; it is restored bit for bit."""
        now = list(zip(self._of, self._indices, self._now, strict=True))
        try:
            parts = torch.split(torch.from_numpy(change), self.sizes)
            for (tensor, where, values), part in zip(now, parts, strict=True):
                put(tensor, where, values + part.to(values))
            return evaluate.quickly() + self.penalty(change)
        finally:
            for tensor, where, values in now:
                put(tensor, where, values)


def penalty(tensors: Sequence[Tensor], options: Options) -> float:
    """The term that `l2` adds to the loss, over all parameters."""
    total = 0.0
    for tensor in tensors:
        decay = float(options[id(tensor)]["l2"])
        if decay and tensor.requires_grad:
            total += decay / 2 * float(torch.linalg.vector_norm(tensor.detach().float())) ** 2
    return total


def is_half(tensor: Tensor) -> bool:
    return tensor.element_size() < 4
