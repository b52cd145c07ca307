"""The coordinates that `AutoCoCD` moves together: where they go, and the objective there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ._evaluate import Evaluations
from ._layout import Place, Spot, gather, put, spot


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


class Block:
    """Coordinates that move together, and the objective where they have moved."""

    def __init__(
        self,
        evaluate: Evaluations,
        tensors: list[Tensor],
        places: Sequence[Place],
        options: dict[int, dict[str, Any]],
    ) -> None:
        self.evaluate = evaluate
        self.spots = [(tensors[t], spot(tensors[t], index)) for t, index in places]
        self.now = [gather(tensor, where) for tensor, where in self.spots]
        self.x = torch.cat([values.double().cpu() for values in self.now]).numpy()
        decay = [float(options[id(tensors[t])]["weight_decay"]) for t, _ in places]
        self.wd = np.repeat(decay, list(map(len, places)))

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
