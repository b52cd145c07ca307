"""Classify calls of torch functions: a fact about a tensor, an in-place write, or a computation."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..registry import Args, Function, Kwargs, Target

# Python's operator methods, and whether their operands are swapped.
_OPERATORS: dict[str, tuple[Function, bool]] = {
    "__getitem__": (operator.getitem, False),
    "__rsub__": (operator.sub, True),
    "__rdiv__": (operator.truediv, True),
    "__rtruediv__": (operator.truediv, True),
    "__pow__": (operator.pow, False),
    "__rpow__": (operator.pow, True),
    "__floordiv__": (operator.floordiv, False),
    "__rfloordiv__": (operator.floordiv, True),
    "__rmatmul__": (operator.matmul, True),
}

# These depend on a tensor's shape, dtype and device, never on its values.
_FACTS = {
    "__dir__", "__format__", "__hash__", "__len__", "__reduce_ex__", "__repr__", "__str__",
    "_is_view", "broadcast_shapes", "data_ptr", "dim", "element_size", "empty_like",
    "full_like", "get_device", "is_complex", "is_contiguous", "is_floating_point",
    "is_inference", "is_pinned", "is_same_size", "is_set_to", "is_shared", "is_signed",
    "is_tensor", "ndimension", "nelement", "new_empty", "new_full", "new_ones", "new_tensor",
    "new_zeros", "numel", "ones_like", "rand_like", "randint_like", "randn_like",
    "register_hook", "requires_grad_", "result_type", "retain_grad", "size", "storage",
    "storage_offset", "stride", "untyped_storage", "zeros_like",
}  # fmt: skip

_WRITING_OPERATORS = {"__setitem__", "__ipow__", "__ifloordiv__", "__imod__", "__iand__", "__ior__",
                      "__ixor__", "__ilshift__", "__irshift__"}  # fmt: skip


@dataclass(frozen=True)
class CallKind:
    """How to record calls of one function."""

    op: str  # "call_function" or "call_method"
    target: Target  # the function, or the name of the method
    swapped: bool = False  # the operands are swapped
    attribute: str | None = None  # the tensor property it reads
    fact: bool = False
    writes: bool = False
    inplace: int | None = None  # position of the `inplace` argument

    @property
    def name(self) -> str:
        """The name users know."""
        return self.target if isinstance(self.target, str) else self.target.__name__

    def is_write(self, args: Args, kwargs: Kwargs) -> bool:
        """Does this call write its result into one of its arguments?"""
        if self.writes or kwargs.get("out") is not None:
            return True
        at = self.inplace
        return at is not None and bool(args[at] if len(args) > at else kwargs.get("inplace", False))


@lru_cache(maxsize=4096)
def _known_kind(function: Function) -> CallKind:
    name = getattr(function, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):  # property of a tensor
        attribute = getattr(getattr(function, "__self__", None), "__name__", "")
        return CallKind("call_function", getattr, attribute=attribute, writes=name != "__get__")
    method = _methods().get(function)
    if method is None:
        fact = name in _FACTS
        writes = not fact and _is_marked(name)
        return CallKind("call_function", function, False, None, fact, writes, _inplace(function))
    if method in _OPERATORS:
        target, swapped = _OPERATORS[method]
        return CallKind("call_function", target, swapped)
    fact = method in _FACTS
    writes = not fact and (_is_marked(method) or method in _WRITING_OPERATORS)
    return CallKind("call_method", method, False, None, fact, writes)


def kind_of(function: Function) -> CallKind:
    """Return how to record calls of this function."""
    return _known_kind(function)


@lru_cache(maxsize=1)
def _methods() -> dict[Function, str]:
    """Tensor method names, by the function a torch mode receives; the plain name wins."""
    found: dict[Function, str] = {}
    for name in sorted(dir(Tensor), key=lambda n: n.startswith("__"), reverse=True):
        attribute = getattr(Tensor, name, None)
        if callable(attribute) and not isinstance(attribute, type):
            found[attribute] = name
    return found


def _is_marked(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _inplace(function: Function) -> int | None:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
    return names.index("inplace") if "inplace" in names else None


# --- out-of-place twins of writes --------------------------------------------------------


def twin(kind: CallKind, args: Args, kwargs: Kwargs) -> tuple[str, Target, Args, Kwargs] | None:
    """The out-of-place call that returns what this one writes into its first argument, or None."""
    if kind.attribute is not None or "out" in kwargs:
        return None
    if not kind.writes and kind.inplace is not None and not isinstance(kind.target, str):
        given = inspect.signature(kind.target).bind(*args, **kwargs)
        given.arguments["inplace"] = False
        return "call_function", kind.target, given.args, given.kwargs
    name = kind.target if isinstance(kind.target, str) else kind.target.__name__
    if name in _WRITTEN:
        return "call_function", _WRITTEN[name], args, kwargs
    if name in _DRAWING or not _is_marked(name):
        return None
    plain = name[:-1]
    if kind.op == "call_method":
        return ("call_method", plain, args, kwargs) if hasattr(Tensor, plain) else None
    function = getattr(F, plain, None) or getattr(torch, plain, None)
    return None if function is None else ("call_function", function, args, kwargs)


_DRAWING = {"bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_",
            "random_", "uniform_", "dropout_", "alpha_dropout_", "feature_dropout_"}  # fmt: skip


def set_item(x: Tensor, index: Any, value: Any) -> Tensor:
    """Return `x` with `value` at `index`."""
    out = x.clone()
    out[index] = value
    return out


def copied(x: Tensor, values: Tensor, non_blocking: bool = False) -> Tensor:
    """Return `values` in the form of `x`."""
    return values.to(x).expand(x.shape).clone()


def filled(x: Tensor, value: complex) -> Tensor:
    """Return a tensor like `x`, filled with `value`."""
    return torch.zeros_like(x) + value


def zeroed(x: Tensor) -> Tensor:
    """Return a tensor like `x`, filled with zeros."""
    return torch.zeros_like(x)


_WRITTEN: dict[str, Callable[..., Tensor]] = {
    "__setitem__": set_item,
    "copy_": copied,
    "fill_": filled,
    "zero_": zeroed,
}
