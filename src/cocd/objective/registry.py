"""Rules: how a layer's output changes. One small function each, registered by what it is for.

Two kinds:

- a *source* says how the output of a module changes when single elements of one of its
  parameters move;
- a *flow* says how the output of a module or function changes when its inputs have changed.

What has no rule is handled by `torch.func.vmap` from that layer on, which is right but slower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import torch
from torch import Tensor, nn

from .change import Change
from .rows import Rows

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default, which typing's has from 3.13 on

    ModuleT = TypeVar("ModuleT", bound=nn.Module | None, covariant=True, default=nn.Module | None)
else:
    from typing import TypeVar

    ModuleT = TypeVar("ModuleT")

Function = Callable[..., Any]  # of torch or of the user's
Target = str | Function  # what is called: a type of modules, a function, the name of a method
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Key = int | str | tuple["Key", int]  # where an argument stands; the second: within a list
Changes = Mapping[Key, Change]


@dataclass(frozen=True)
class Call(Generic[ModuleT]):
    """One operation of the unperturbed pass: what it was called with and what it gave.

    `args` and `kwargs` hold the unperturbed values; `out` is the unperturbed result. `noise` is
    what a dropout multiplied its input with.
    """

    target: Target
    module: ModuleT
    args: Args
    kwargs: Kwargs
    out: Any
    noise: Tensor | None = None

    def argument(self, position: int, name: str, default: object = None) -> Any:
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
Changed = Change | Sequence["Changed"] | Mapping[str, "Changed"] | None
Source = Callable[[Call[Any], Moves], Changed]
Flow = Callable[[Call[Any], Changes], Changed]
Relevant = Callable[[Call[Any], list[int]], list[bool]]
SourceT = TypeVar("SourceT", bound=Source)  # a registered function keeps its own type
FlowT = TypeVar("FlowT", bound=Flow)

# Rows of the output that are read (None: all) -> the call on these rows alone, and the rows that it
# takes of each argument. None where all of the output is computed.
Needed = tuple[Call, dict[Key, Rows | None]]
Need = Callable[[Call[Any], Rows | None], Needed | None]

UNCHANGED: tuple[
    ()
] = ()  # what a flow returns if the output does not depend on the values of its inputs


@dataclass
class Registry:
    """The rules that are known; users add to it with `source` and `flow`."""

    sources: dict[tuple[Target, str], Source] = field(default_factory=dict)
    flows: dict[Target, Flow] = field(default_factory=dict)
    relevances: dict[tuple[Target, str], Relevant] = field(default_factory=dict)
    joint: set[Target] = field(default_factory=set)
    needs: dict[Target, Need] = field(default_factory=dict)

    def source(self, *kinds: type[nn.Module], parameter: str) -> Callable[[SourceT], SourceT]:
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

        def register(rule: SourceT) -> SourceT:
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

    def flow(self, *targets: Target, parameters: bool = False) -> Callable[[FlowT], FlowT]:
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

        def register(rule: FlowT) -> FlowT:
            for target in targets:
                self.flows[target] = rule
                if parameters:
                    self.joint.add(target)
            return rule

        return register

    def need(self, *targets: Target) -> Callable[[Need], Need]:
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
    apart: Tensor = fn(tensor.flatten(0, 1)).unflatten(0, tensor.shape[:2])
    return apart


def again(call: Call, x: Tensor) -> Tensor:
    """The call of a function or method with another first argument."""
    if isinstance(call.target, str):
        return getattr(x, call.target)(*call.args[1:], **call.kwargs)  # type: ignore[no-any-return]
    return call.target(x, *call.args[1:], **call.kwargs)  # type: ignore[no-any-return]


def moved_elements(shape: torch.Size, index: list[int]) -> list[list[int]]:
    """Row-major indices as one list for each dimension."""
    return [i.tolist() for i in np.unravel_index(index, tuple(shape))]
