"""Reusable memory for stacked activations: fresh pages cost more than the arithmetic."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor

_MOST_LENT = 32 << 20  # bytes
_MOST_VIEWS = 256


class Scratch:
    """Hands out tensors; `reset` frees all of them for reuse."""

    def __init__(self) -> None:
        self._pools: dict[torch.dtype, list[Tensor]] = {}
        self._taken: dict[torch.dtype, int] = {}
        self._views: dict[tuple[torch.dtype, int, tuple[int, ...]], Tensor] = {}  # of the pools
        self._lent = 0  # bytes `room` has requested since the last reset

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return an uninitialised tensor, valid until the next `reset`."""
        i = self._taken.get(dtype, 0)
        self._taken[dtype] = i + 1
        key = (dtype, i, shape)
        if (view := self._views.get(key)) is None:
            view = self._views[key] = self._pool(dtype, i, prod(shape)).view(shape)
        return view

    def _pool(self, dtype: torch.dtype, i: int, size: int) -> Tensor:
        pool = self._pools.setdefault(dtype, [])
        if i == len(pool):
            pool.append(torch.empty(size, dtype=dtype, device="cpu"))
        elif len(pool[i]) < size:
            pool[i] = torch.empty(size, dtype=dtype, device="cpu")
            self._views = {k: v for k, v in self._views.items() if k[:2] != (dtype, i)}
        if len(self._views) > _MOST_VIEWS:
            self._views.clear()
        return pool[i][:size]

    def reset(self) -> None:
        """Free all tensors handed out so far; the caller must no longer use them."""
        self._taken.clear()
        self._lent = 0

    @property
    def bytes(self) -> int:
        """The size of all pools."""
        return sum(t.numel() * t.element_size() for pool in self._pools.values() for t in pool)

    def lends(self, size: int) -> bool:
        """May `room` take `size` more bytes? Beyond the limit, fresh memory is freed after use."""
        self._lent += size
        return self._lent <= _MOST_LENT

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let `room` hand out tensors from this object, after a reset.

        The next propagation may overwrite a rule's inputs and results, so do not keep them.
        """
        before = getattr(_here, "scratch", None)
        self.reset()
        _here.scratch = self
        try:
            yield
        finally:
            _here.scratch = before


_here = threading.local()


def room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return an uninitialised tensor for a rule's result, from reused memory where possible."""
    scratch: Scratch | None = getattr(_here, "scratch", None)
    wanted = prod(shape) * like.element_size()
    if scratch is None or not like.is_cpu or not scratch.lends(wanted):
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    return scratch.take(shape, like.dtype)
