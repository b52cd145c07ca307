"""Orthonormal bases in which a method may take its coordinates.

Coordinate methods depend on the axes: a narrow valley along a diagonal is hard for them, the same
valley along an axis is easy. In a random basis every valley is equally hard. A basis maps
coefficients to vectors and back:

| basis      | `vector(i)` moves             | memory | one transform |
| ---------- | ----------------------------- | ------ | ------------- |
| `Identity` | one coordinate                | none   | O(n)          |
| `Hadamard` | a block of coordinates evenly | O(n)   | O(n log n)    |
| `Rotation` | all of them, at random        | O(n²)  | O(n²)         |

>>> import torch, cocd
>>> basis = cocd.basis.Hadamard(6, seed=0)
>>> x = torch.arange(6.0, dtype=torch.float64)
>>> torch.allclose(basis.combine(basis.coefficients(x)), x)
True
"""

from __future__ import annotations

from math import sqrt
from typing import Protocol

import torch
from torch import Tensor

from .parts.validation import check_choice, check_count

__all__ = ["Basis", "Hadamard", "Identity", "Rotation", "named"]

KINDS = ("identity", "hadamard", "rotation")
_LARGEST_ROTATION = 10_000  # 800 MB in float64


class Basis(Protocol):
    """An orthonormal basis of the flat vectors of length n, float64 on the CPU."""

    @property
    def n(self) -> int:
        """The dimension."""

    def vector(self, i: int) -> Tensor:
        """The i-th basis vector."""

    def combine(self, coefficients: Tensor) -> Tensor:
        """The vector with these coefficients: sum of coefficients[i] * vector(i)."""

    def coefficients(self, x: Tensor) -> Tensor:
        """The inner products of x with all basis vectors."""


def named(kind: str, n: int, seed: int = 0) -> Basis:
    """The basis "identity", "hadamard" or "rotation" of n dimensions.

    >>> named("hadamard", 4).vector(0).abs().tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    check_choice("basis", kind, KINDS)
    if kind == "identity":
        return Identity(n)
    return Hadamard(n, seed) if kind == "hadamard" else Rotation(n, seed)


class Identity:
    """The coordinates themselves."""

    def __init__(self, n: int) -> None:
        self.n = check_count("n", n)

    def vector(self, i: int) -> Tensor:
        """The i-th unit vector."""
        found = torch.zeros(self.n, dtype=torch.float64)
        found[i] = 1.0
        return found

    def combine(self, coefficients: Tensor) -> Tensor:
        """The same numbers."""
        return coefficients.double().clone()

    def coefficients(self, x: Tensor) -> Tensor:
        """The same numbers."""
        return x.double().clone()


class Rotation:
    """A dense random rotation, uniform over all of them. For small n: it stores n² numbers."""

    def __init__(self, n: int, seed: int = 0) -> None:
        self.n = check_count("n", n)
        if n > _LARGEST_ROTATION:
            raise ValueError(
                f"n={n} is too large for a dense rotation, which stores n² numbers; use Hadamard"
            )
        generator = torch.Generator().manual_seed(seed)
        normal = torch.randn(n, n, dtype=torch.float64, generator=generator)
        q, r = torch.linalg.qr(normal)
        self._matrix: Tensor = q * r.diagonal().sign()  # uniform (Mezzadri 2007)

    def vector(self, i: int) -> Tensor:
        """The i-th column of the matrix."""
        return self._matrix[:, i].clone()

    def combine(self, coefficients: Tensor) -> Tensor:
        """The matrix times the coefficients."""
        return self._matrix @ coefficients.double()

    def coefficients(self, x: Tensor) -> Tensor:
        """The transposed matrix times x."""
        return self._matrix.T @ x.double()


class Hadamard:
    """Hadamard matrices on blocks of shuffled coordinates with random signs. For large n.

    A dimension that is no power of two is cut into blocks that are: 22 = 16 + 4 + 2.
    """

    def __init__(self, n: int, seed: int = 0) -> None:
        self.n = check_count("n", n)
        generator = torch.Generator().manual_seed(seed)
        self._order = torch.randperm(n, generator=generator)
        self._signs = torch.randint(0, 2, (n,), generator=generator).double() * 2 - 1

    def vector(self, i: int) -> Tensor:
        """Entries of one size on the i-th coefficient's block, zero elsewhere."""
        unit = torch.zeros(self.n, dtype=torch.float64)
        unit[i] = 1.0
        return self.combine(unit)

    def combine(self, coefficients: Tensor) -> Tensor:
        """Transform each block, then put signs and coordinates back in place."""
        found = torch.empty(self.n, dtype=torch.float64)
        found[self._order] = self._blocks(coefficients.double()) * self._signs
        return found

    def coefficients(self, x: Tensor) -> Tensor:
        """The inverse, which is the transpose."""
        return self._blocks(x.double()[self._order] * self._signs)

    def _blocks(self, x: Tensor) -> Tensor:
        sizes = [1 << k for k in reversed(range(self.n.bit_length())) if self.n >> k & 1]
        return torch.cat([_walsh_hadamard(part) for part in torch.split(x, sizes)])


def _walsh_hadamard(x: Tensor) -> Tensor:
    """The orthonormal transform of a power of two of numbers; it is its own inverse."""
    size, half = len(x), 1
    while half < size:
        pairs = x.reshape(-1, 2, half)
        x = torch.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).reshape(size)
        half *= 2
    return x / sqrt(size)
