"""Rules: how a layer's output changes. One small function each, registered by what it is for.

Two kinds:

- a *source* says how the output of a module changes when single elements of one of its
  parameters move;
- a *flow* says how the output of a module or function changes when its inputs have changed.

What has no rule is handled by `torch.func.vmap` from that layer on, which is right but slower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .change import Change
from .rows import Rows


@dataclass(frozen=True)
class Call:
    """One operation of the unperturbed pass: what it was called with and what it gave.

    `args` and `kwargs` hold the unperturbed values; `out` is the unperturbed result. `noise` is
    what a dropout multiplied its input with.
    """

    target: Any
    module: nn.Module | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    noise: Tensor | None = None

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, however it was passed."""
        if len(self.args) > position:
            return self.args[position]
        return self.kwargs.get(name, default)


@dataclass(frozen=True)
class Moves:
    """Elements `index` (logical, row-major) of a parameter, and how far each one moves."""

    index: list[int]
    steps: Tensor  # (K,), in the parameter's dtype

    @property
    def K(self) -> int:
        return len(self.index)


# A change; for a call that gives several things a tuple of changes, None for what stays as it is.
# None instead of either says that this case is not for the rule.
Source = Callable[[Call, Moves], Any]
Flow = Callable[[Call, dict[Any, Change]], Any]
Relevant = Callable[[Call, list[int]], list[bool]]

# Rows of the output that are read (None: all) -> the call on these rows alone, and the rows that it
# takes of each argument. None where all of the output is computed.
Need = Callable[[Call, "Rows | None"], "tuple[Call, dict[Any, Rows | None]] | None"]

UNCHANGED = ()  # what a flow returns if the output does not depend on the values of its inputs


@dataclass
class Registry:
    """The rules that are known; users add to it with `source` and `flow`."""

    sources: dict[tuple[Any, str], Source] = field(default_factory=dict)
    flows: dict[Any, Flow] = field(default_factory=dict)
    relevances: dict[tuple[Any, str], Relevant] = field(default_factory=dict)
    joint: set[Any] = field(default_factory=set)
    needs: dict[Any, Need] = field(default_factory=dict)

    def source(self, *kinds: type[nn.Module], parameter: str) -> Callable[[Source], Source]:
        """Register how the output changes with elements of `parameter` of these modules.

        >>> import torch, cocd
        >>> class Scale(torch.nn.Module):
        ...     def __init__(self, units):
        ...         super().__init__()
        ...         self.scale = torch.nn.Parameter(torch.ones(units))
        ...     def forward(self, x):                                   # (N, units)
        ...         return x * self.scale
        >>> @cocd.rules.source(Scale, parameter="scale")
        ... def scale_moves(call, moves):
        ...     x = call.args[0]                                        # unit i alone changes
        ...     delta = x[:, moves.index].T * moves.steps[:, None]      # (K, N)
        ...     return cocd.rules.slab(call.out, 1, moves.index, 1, delta[:, :, None])
        """

        def register(rule: Source) -> Source:
            for kind in kinds:
                self.sources[kind, parameter] = rule
            return rule

        return register

    def relevant(self, *kinds: type[nn.Module], parameter: str) -> Callable[[Relevant], Relevant]:
        """Register which elements of `parameter` matter to a batch; others are not evaluated."""

        def register(rule: Relevant) -> Relevant:
            for kind in kinds:
                self.relevances[kind, parameter] = rule
            return rule

        return register

    def flow(self, *targets: Any, parameters: bool = False) -> Callable[[Flow], Flow]:
        """Register how the output changes with the inputs, for modules or functions.

        The rule gets the call and the changed arguments by position or name; it may return None
        to say that this case is not for it. With `parameters` a module's rule also takes changes
        of the module's own parameters, by name, beside those of its inputs.

        >>> import torch, cocd
        >>> @cocd.rules.flow(torch.special.i0)
        ... def elementwise(call, changes):
        ...     x = changes[0]
        ...     return x.with_values(call.out, torch.special.i0(x.new()))
        """

        def register(rule: Flow) -> Flow:
            for target in targets:
                self.flows[target] = rule
                if parameters:
                    self.joint.add(target)
            return rule

        return register

    def need(self, *targets: Any) -> Callable[[Need], Need]:
        """Register which rows of the inputs are enough for some rows of the output."""

        def register(rule: Need) -> Need:
            for target in targets:
                self.needs[target] = rule
            return rule

        return register


rules = Registry()


def stacked(fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """Apply `fn`, which treats the samples of a batch one by one, to K stacked batches at once.

    Samples before probes where they lie in memory like that, as behind a BatchNorm: no copy.
    """
    if tensor.dim() > 1 and tensor.stride(0) < tensor.stride(1):
        return _flat(fn, tensor.transpose(0, 1)).transpose(0, 1)
    return _flat(fn, tensor)


def _flat(fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    return fn(tensor.flatten(0, 1)).unflatten(0, tensor.shape[:2])


def moved_elements(shape: torch.Size, index: list[int]) -> list[list[int]]:
    """Row-major indices as one list for each dimension."""
    return [i.tolist() for i in np.unravel_index(index, tuple(shape))]
