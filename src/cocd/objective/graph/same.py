"""Compare calls: tensors by their position in the graph, everything else by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import copysign
from typing import Any

import torch
from torch import Tensor, nn

from .graph import Ref, Seen, map_refs


def same(known: Any, value: Any, where: Callable[[Tensor], int | None]) -> bool:
    """Does `value` equal `known`, in which references stand for tensors?

    Types count: ``x / 2`` and ``x / 2.0`` may differ, and so may zero and minus zero.
    """
    kind = type(value)
    if isinstance(value, Tensor):
        return type(known) is Ref and known.position == where(value)
    if type(known) is not kind:
        return False
    if value is known:  # safe: containers in `known` are copies
        return True
    if kind is list or isinstance(value, tuple):
        return len(known) == len(value) and all(
            same(a, b, where) for a, b in zip(known, value, strict=True)
        )
    if kind is float:
        if value == known:
            return bool(value) or copysign(1, value) == copysign(1, known)
        return bool(value != value and known != known)
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
    except Exception:  # values that cannot be compared count as different
        return False


def is_as_before(known: Seen, module: nn.Module | None) -> bool:
    """Does a module have the same attributes as when its call was recorded?"""
    try:
        return module is None or vars(module) == known.settings
    except Exception:  # values that cannot be compared count as different
        return False


def shares_memory(a: Tensor, b: object) -> bool:
    """Do two tensors share memory?"""
    return isinstance(b, Tensor) and torch._C._is_alias_of(a, b)  # type: ignore[attr-defined]


def gives(seen: Seen, values: Sequence[object], state: Tensor | None, written: Tensor) -> bool:
    """Does an out-of-place call return what the in-place call has written?

    `state` is the generator's state before the call, if the call drew random numbers.
    """

    def value(ref: Ref) -> object:
        return values[ref.position]

    after = torch.get_rng_state()
    try:
        if state is not None:
            torch.set_rng_state(state)
        method = seen.op == "call_method"
        function = getattr(torch.Tensor, seen.target) if method else seen.target
        out = function(*map_refs(seen.args, value), **map_refs(seen.kwargs, value))
        alike = out.dtype == written.dtype and out.shape == written.shape
        return alike and torch.allclose(out, written, rtol=0, atol=0, equal_nan=True)
    except Exception:
        return False
    finally:
        torch.set_rng_state(after)
