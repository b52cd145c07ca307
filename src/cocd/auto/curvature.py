"""The second derivative along each coordinate, as `AutoCoCD` last measured it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..parts.layout import Place, gather, put
from .config import AutoConfig
from .direction import Vector


class Curvature:
    """One number per coordinate, NaN if never measured. It changes slowly: a mean is kept."""

    def __init__(self, tensors: Sequence[Tensor] = ()) -> None:
        self.tensors = list(tensors)  # one for each that is swept, flat

    def read(self, places: Sequence[Place]) -> Vector:
        """The curvatures of some coordinates."""
        parts = [
            gather(self.tensors[t], index)
            if t < len(self.tensors)
            else torch.full((len(index),), torch.nan, dtype=torch.float32, device="cpu")
            for t, index in places
        ]
        return torch.cat(parts).double().numpy()

    @staticmethod
    def mean(known: Vector, fresh: Vector) -> Vector:
        """The mean of known and fresh values, where both exist.

        >>> import numpy as np
        >>> Curvature.mean(np.array([2.0, np.nan, 2.0]), np.array([4.0, 4.0, np.inf]))
        array([3., 4., 2.])
        """
        both = np.where(np.isnan(known), fresh, (known + fresh) / 2)
        return np.where(np.isfinite(fresh), both, known)

    def observe(self, places: Sequence[Place], c: Vector, sizes: Sequence[int]) -> None:
        """Record measurements at some coordinates; `sizes` are those of all current tensors."""
        for size in sizes[len(self.tensors) :]:
            with torch.inference_mode(False):  # or no step outside of it could write to them
                unknown = torch.full((size,), torch.nan, dtype=torch.float32, device="cpu")
            self.tensors.append(unknown)
        parts = torch.split(torch.from_numpy(c).float(), list(map(len, places)))
        for (t, index), values in zip(places, parts, strict=True):
            put(self.tensors[t], index, values.masked_fill(values.isinf(), torch.nan))

    def forget(self, tensors: Sequence[int]) -> None:
        """Forget measurements made with another radius."""
        for t in tensors:
            if t < len(self.tensors):
                self.tensors[t].fill_(torch.nan)

    def state_dict(self) -> list[Tensor]:
        return [values.clone() for values in self.tensors]

    @classmethod
    def from_state(cls, saved: Sequence[Tensor], config: AutoConfig) -> Curvature:
        return cls([values.to("cpu", copy=True) for values in saved])
