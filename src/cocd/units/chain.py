"""The calls between a layer and the model's output, where each has one input: a chain.

A chain is followed by `patches.py` without the model: one step a call, with what it needs of the
unperturbed pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ..objective.registry import Function
from .flow import Flow, pool_options, rises
from .rules import RULES, Named
from .tape import POOLS, Tape, TapeCall

_PER_SAMPLE = {
    F.avg_pool2d, F.adaptive_avg_pool2d, F.layer_norm, F.group_norm, F.softmax, F.log_softmax,
    torch.softmax, torch.log_softmax, torch.avg_pool1d, F.rms_norm,
}  # fmt: skip
_TANH: set[Function] = {F.tanh, torch.tanh, torch.tanh_, torch.Tensor.tanh, torch.Tensor.tanh_}
_RESHAPES = {torch.flatten, torch.Tensor.flatten, torch.Tensor.view, torch.Tensor.reshape}


@dataclass(frozen=True, eq=False)
class Step:
    """One call of a chain: how values pass it, and what it had and gave unperturbed."""

    kind: str  # "monotone", "elementwise", "pool", "conv", "linear", "flatten" or "other"
    base: Tensor  # input of the unperturbed pass
    out: Tensor
    apply: Callable[[Tensor], Tensor]  # to stacked samples
    smooth: bool = False  # a tanh, whose differences have a closed form
    size: int = 1  # of the pool
    weight: Tensor | None = None  # of a convolution or linear layer
    padding: tuple[int, int] = (0, 0)
    winners: Tensor | None = None  # of a pooling

    def change(self, delta: Tensor, base: Callable[[], Tensor], out: Tensor) -> Tensor:
        """f(base + delta) - f(base) of an elementwise function f, where `out` is f(base).

        Overwrites `delta`.
        """
        if self.smooth:
            low, high = torch.aminmax(delta)
            if low >= -1 and high <= 1:
                return _tanh_change(delta, out)
        return self.apply(delta.add_(base())) - out


class Chains:
    """The chains of one recording, each made once."""

    def __init__(self, recording: Tape, flow: Flow) -> None:
        self._recording, self._flow = recording, flow
        self._known: dict[int, list[Step] | None] = {}

    def behind(self, output: Tensor) -> list[Step] | None:
        """The steps from a call's output to the model's; None if one has no step."""
        if output is self._recording.output:
            return []
        if id(output) not in self._known:
            self._known[id(output)] = self._made(output)
        return self._known[id(output)]

    def _made(self, output: Tensor) -> list[Step] | None:
        call = self._flow.next(output)
        if call is None or not isinstance(call.output, Tensor):
            return None
        if output._version or not output.dim() or call.output.shape[:1] != output.shape[:1]:
            return None  # written in place: its old value is gone
        step, rest = _step(call, output, call.output), self.behind(call.output)
        if step is None or rest is None:
            return None
        if step.kind == "monotone" and rest and rest[0].kind == "pool":
            return [*_pool_first(step, rest[0]), *rest[1:]]
        return [step, *rest]


def _pool_first(f: Step, pool: Step) -> list[Step]:
    """Monotone functions commute with a maximum: behind the pooling they cost a quarter."""
    assert pool.winners is not None
    kept = f.base.flatten(2).gather(2, pool.winners.flatten(2)).view(pool.out.shape)
    return [replace(pool, base=f.base, out=kept), replace(f, base=kept, out=pool.out)]


def _step(call: TapeCall, x: Tensor, out: Tensor) -> Step | None:
    function = call.function
    if call.noise is not None:
        return Step("other", x, out, partial(_masked, call.noise))
    if rises(function) is not None:
        if call.args[0] is not x:
            return None
        rest, kwargs = call.args[1:], {k: v for k, v in call.kwargs.items() if k != "inplace"}
        kind = "monotone" if rises(function) else "elementwise"
        smooth = function in _TANH and x.dtype in (torch.float32, torch.float64)
        return Step(kind, x, out, lambda v: function(v, *rest, **kwargs), smooth)
    if function in _RESHAPES:
        if out.dim() != 2 or x.dim() < 2 or out.shape[0] != x.shape[0]:
            return None
        return Step("flatten", x, out, lambda v: v.flatten(1))
    if function in POOLS:
        options = pool_options(call)
        if options.pop("return_indices", False):
            return None
        options.pop("input")
        size, stride = options["kernel_size"], options["stride"]
        plain = (
            call.winners is not None
            and x.dim() == 4
            and size in (2, (2, 2), 3, (3, 3))
            and stride in (None, size)
            and options.get("padding", 0) in (0, (0, 0))
            and options.get("dilation", 1) in (1, (1, 1))
            and not options.get("ceil_mode", False)
        )
        wide = size if isinstance(size, int) else size[0]
        kind = "pool" if plain else "other"
        return Step(kind, x, out, lambda v: function(v, **options), size=wide, winners=call.winners)
    rule = RULES.get(function)
    if rule is not None and rule.name in ("linear", "conv2d"):
        named = rule.bind(call.args, call.kwargs)
        if named["input"] is not x:
            return None
        if rule.name == "linear":
            kind = "linear" if x.dim() == 2 else "other"
            return Step(kind, x, out, lambda v: F.linear(v, named["weight"], named.get("bias")),
                        weight=named["weight"])  # fmt: skip
        return _convolution(function, named, x, out)
    if function in _PER_SAMPLE and call.args and call.args[0] is x:
        dim = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else None)
        if dim == 0:
            return None
        rest, kwargs = call.args[1:], dict(call.kwargs)
        return Step("other", x, out, lambda v: function(v, *rest, **kwargs))
    return None


def _tanh_change(d: Tensor, t: Tensor) -> Tensor:
    """tanh(a + d) - tanh(a) = s (1 - t^2) / (1 + s t), with t = tanh(a) and s = tanh(d).

    torch's sigmoid is vectorised better than its tanh, and nothing cancels. Where d is large and t
    has rounded to 1, the information is lost, so d must be moderate.
    """
    s = d.mul_(2).sigmoid_().mul_(2).sub_(1)
    below = (s * t).add_(1)
    return s.mul_(1 - t * t).div_(below)


def _masked(noise: Tensor, values: Tensor) -> Tensor:
    """A dropout whose mask all stacked samples share."""
    return (values.view(-1, *noise.shape) * noise).view(values.shape)


def _convolution(function: Function, named: Named, x: Tensor, out: Tensor) -> Step:
    padding = local(named, x)
    rest = {name: value for name, value in named.items() if name != "input"}
    return Step(
        "other" if padding is None else "conv", x, out, lambda v: function(v, **rest),
        weight=named["weight"], padding=padding or (0, 0),
    )  # fmt: skip


def local(named: Named, x: Tensor) -> tuple[int, int] | None:
    """The padding of a convolution that goes over every position of a map, or None."""

    def pair(value: int | tuple[int, ...]) -> tuple[int, ...]:
        return (value, value) if isinstance(value, int) else tuple(value) * (2 // len(value))

    kernel, padding = named["weight"].shape[2:], named.get("padding", 0)
    if x.dim() != 4 or named.get("groups", 1) != 1:
        return None
    if pair(named.get("stride", 1)) != (1, 1) or pair(named.get("dilation", 1)) != (1, 1):
        return None
    if padding == "valid":
        return 0, 0
    if padding == "same":
        return (kernel[0] // 2, kernel[1] // 2) if all(k % 2 for k in kernel) else None
    top, left = pair(padding)
    return top, left
