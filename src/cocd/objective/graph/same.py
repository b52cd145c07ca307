"""Are two calls the same? Tensors by where they stand, everything else by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import copysign
from typing import Any

import torch
from torch import Tensor, nn

from .graph import Ref, Seen, map_refs


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
    except Exception:  # what cannot be compared is not known to be the same
        return False


def is_as_before(known: Seen, module: nn.Module | None) -> bool:
    """Are the attributes of a module those that it had when its call was recorded?"""
    try:
        return module is None or vars(module) == known.settings
    except Exception:  # what cannot be compared is not known to be the same
        return False


def shares_memory(a: Tensor, b: object) -> bool:
    """Do two tensors lie in the same memory?"""
    return isinstance(b, Tensor) and torch._C._is_alias_of(a, b)  # type: ignore[attr-defined]


def gives(seen: Seen, values: Sequence[object], state: Tensor | None, written: Tensor) -> bool:
    """Does a call that returns its result give what the call that writes has written?

    `state` is that of the generator from which the call has drawn, if it has.
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
