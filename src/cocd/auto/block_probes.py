"""The results of the probes of a block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .block import Block
from .direction import Direction, Vector
from .line_search import SearchResult


class BlockProbes(NamedTuple):
    """Of the loss at x_t, without the penalty; vectors have one number per coordinate."""

    loss: float
    g: Vector  # slopes, NaN where a probe failed
    c: Vector  # curvatures
    known: Vector  # remembered ones, NaN where none
    fresh: Vector | None  # measured in this step, if any

    def lost(self, block: Block, rounding: float) -> list[float | None]:
        """The share of each tensor's differences that are 0, or within rounding."""
        if self.fresh is None:  # one-sided, in a narrow radius
            return [None] * len(block.places)
        r, least = block.radius, 2 * rounding * abs(self.loss)
        with np.errstate(all="ignore"):
            flat = (2 * r * np.abs(self.g) <= least) & (r * r * np.abs(self.fresh) <= least)
        return [float(part.mean()) for part in block.split(flat.astype(float))]

    def best(self, block: Block) -> SearchResult | None:
        """The lowest of the probes, as a move of its coordinate alone; None if none is lower."""
        if self.fresh is None:
            return None
        g, r = block.slopes(self.g), block.radius
        with np.errstate(all="ignore"):
            gains = np.abs(g) * r - block.curvatures(self.fresh) * r * r / 2
        i = int(np.where(np.isfinite(gains), gains, -np.inf).argmax())
        if not gains[i] > 0:
            return None
        p = np.zeros(len(block))
        p[i] = -np.copysign(r[i], g[i])
        alone = np.where(p == 0, 0.0, g)
        return SearchResult(Direction(p, alone, longest=1.0), 1.0, 1.0, float(gains[i]))
