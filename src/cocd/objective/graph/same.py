"""Are two sets of arguments the same? Tensors by where they stand, everything else by value."""

from __future__ import annotations

from collections.abc import Callable
from math import copysign
from typing import Any

from torch import Tensor

from .graph import Ref


def same(known: Any, value: Any, where: Callable[[Tensor], int | None]) -> bool:
    """Is `value` what is `known`, with references for tensors?

    Types count: ``x / 2`` and ``x / 2.0`` may differ, and so do zero and minus zero.
    """
    kind = type(value)
    if isinstance(value, Tensor):
        return type(known) is Ref and known.position == where(value)
    if type(known) is not kind:
        return False
    if value is known:  # containers that are known are copies
        return True
    if kind is list or isinstance(value, tuple):
        return len(known) == len(value) and all(
            same(a, b, where) for a, b in zip(known, value, strict=True)
        )
    if kind is float:
        if value == known:
            return bool(value) or copysign(1, value) == copysign(1, known)
        return value != value and known != known
    if kind is dict:
        return list(known) == list(value) and all(
            same(known[k], v, where) for k, v in value.items()
        )
    if kind is slice:
        return same(
            (known.start, known.stop, known.step), (value.start, value.stop, value.step), where
        )
    try:
        return bool(value == known)
    except Exception:  # what cannot be compared is not known to be the same
        return False
