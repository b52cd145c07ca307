"""Restore tensors after a change, even if an error occurs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor


@contextmanager
def restored(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield copies of the tensors and write them back at the end, bit for bit."""
    saved = [tensor.detach().clone() for tensor in tensors]
    try:
        yield saved
    finally:
        put(tensors, saved)


def put(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Write values into tensors."""
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
