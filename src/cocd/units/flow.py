"""Where a call's output goes, according to the recording."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..objective.registry import Function, Kwargs
from .tape import POOLS, Site, Tape, TapeCall, _flat

_ELEMENTWISE: dict[Function, bool] = {}  # function -> is it non-decreasing?
for _name in ("relu", "tanh", "sigmoid", "selu", "elu", "softplus", "hardtanh", "relu6",
              "leaky_relu", "hardsigmoid", "softsign", "silu", "gelu", "mish", "hardswish",
              "logsigmoid", "celu", "sin", "cos", "square", "abs"):  # fmt: skip
    for _owner in (F, torch, torch.Tensor):
        if hasattr(_owner, _name):
            _rises = _name not in (
                "silu",
                "gelu",
                "mish",
                "hardswish",
                "sin",
                "cos",
                "square",
                "abs",
            )
            _ELEMENTWISE[getattr(_owner, _name)] = _rises
            if hasattr(_owner, _name + "_"):
                _ELEMENTWISE[getattr(_owner, _name + "_")] = _rises


class Flow:
    """Which calls read a tensor."""

    def __init__(self, recording: Tape) -> None:
        self._readers: dict[int, list[TapeCall]] = {}
        self._made: dict[int, TapeCall] = {}
        for call in recording.calls:
            for value in _flat((call.args, tuple(call.kwargs.values()))):
                if isinstance(value, Tensor):
                    readers = self._readers.setdefault(id(value), [])
                    if call not in readers:
                        readers.append(call)
            if call.site is not None:
                self._made[id(call.site)] = call

    def call_of(self, site: Site) -> TapeCall:
        return self._made[id(site)]

    def next(self, output: object) -> TapeCall | None:
        """The only call that reads it, whose only changing input it is."""
        readers = self._readers.get(id(output), [])
        return readers[0] if len(readers) == 1 else None

    def winners(self, site: Site) -> Tensor | None:
        """Positions (N, U, cells) that a max-pooling keeps, with elementwise functions in between.

        No other position has a slope. None where there is no such pooling.
        """
        output: object = site.output
        while (call := self.next(output)) is not None:
            if call.function in POOLS:
                options = pool_options(call)
                size, stride = options["kernel_size"], options["stride"]
                if options.get("dilation", 1) not in (1, (1,), (1, 1), (1, 1, 1)) or (
                    options.get("return_indices") or site.output.dim() != POOLS[call.function] + 2
                ):
                    return None
                if stride not in (None, size):  # windows overlap: a position may win twice
                    return None
                return None if call.winners is None else call.winners.flatten(2)
            if rises(call.function) is None:
                return None
            output = call.output
        return None


def pool_options(call: TapeCall) -> Kwargs:
    """The arguments of a max-pooling by name."""
    names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
    named = {"stride": None, **dict(zip(names, call.args, strict=False)), **call.kwargs}
    return named


def rises(function: Function) -> bool | None:
    """Is the function elementwise and non-decreasing? None if it is not elementwise."""
    return _ELEMENTWISE.get(function)
