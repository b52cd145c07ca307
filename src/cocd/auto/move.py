"""A move about to be made, or just made and still to be judged."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from ..parts.evaluation import Evaluations
from ..parts.layout import Place, gather, index_of, put
from ..parts.types import State
from .block import Block, Options
from .direction import Vector
from .line_search import SearchResult


class Move(NamedTuple):
    """How far some coordinates move, and the gain on their own batch."""

    places: Sequence[Place] = ()
    change: Tensor | None = None  # of these, one after the other; None: nothing moves
    taken: float = 0.0  # share of the best step, on average
    scale: float = 1.0  # of that: by learning rates on average, and near the end
    whole: float = 0.0  # what all of the best step gains

    @classmethod
    def along(
        cls,
        block: Block,
        found: SearchResult,
        share: float,
        left: float,
        rates: Vector,
    ) -> Move:
        """A share of what a search found (6), times `rates`, one number per coordinate.

        That share is `left` of what it would be if the end were not near.
        """
        direction, rate = found.direction, float(rates[0])
        if (rates != rate).any():  # on average, by what each coordinate promises
            rate = float((direction.g * direction.p) @ rates) / direction.slope
        change = torch.from_numpy(share * found.length * rates * direction.p)
        moves = change if found.length else None
        return cls(block.places, moves, share * rate, left * rate, found.gain)

    def make(self, tensors: Sequence[Tensor]) -> None:
        if self.change is None:
            return
        parts = torch.split(self.change, list(map(len, self.places)))
        for (t, index), change in zip(self.places, parts, strict=True):
            where = index_of(tensors[t], index)
            put(tensors[t], where, gather(tensors[t], where).add_(change.to(tensors[t])))

    def gained(
        self, evaluate: Evaluations, tensors: Sequence[Tensor], options: Options, loss: float
    ) -> float | None:
        """What it gained on this batch, whose loss is given; None where nothing is to be learned.

        One evaluation, where the move began.
        """
        if self.change is None or not self.taken * self.whole > 0:
            return None
        parts = torch.split(self.change, list(map(len, self.places)))
        for place, part in zip(self.places, parts, strict=True):
            if not tensors[place.tensor].requires_grad and part.any():
                return None  # it has been frozen since, and is to be left alone
        block = Block(tensors, self.places, options)
        gain = block.at(evaluate, -self.change.numpy()) - loss - block.penalty()
        return gain if isfinite(gain) else None

    def state_dict(self) -> State | None:
        if self.change is None:
            return None
        places = [[t, list(index)] for t, index in self.places]
        return {**self._asdict(), "places": places, "change": self.change.clone()}

    @classmethod
    def from_state(cls, saved: State | None) -> Move:
        if saved is None:
            return cls()
        places = [Place(t, list(index)) for t, index in saved["places"]]
        change = saved["change"].to("cpu", copy=True)
        return cls(**{**saved, "places": places, "change": change})
