"""Unit rules: slopes of a call's parameters from the slopes of its output.

A rule belongs to a function as torch sees it (``torch.nn.functional.linear``, ``torch.conv2d``,
``torch.Tensor.mul``), not to a module: so it applies wherever that function is called with a
parameter or with a view of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..objective.registry import Args, Function, Kwargs

Named = Mapping[str, Any]  # the arguments of a call by name

# Arguments by name, slopes of the output -> slopes of the parameters, by argument name.
Slopes = Callable[[Named, Tensor], dict[str, Tensor]]
Effects = Callable[[Named], dict[str, Tensor]]
Normal = Callable[[Named], Tensor]


@dataclass(frozen=True)
class UnitRule:
    """How a function's output depends on the parameters among its arguments."""

    name: str
    arguments: tuple[str, ...]
    parameters: dict[str, int]  # argument -> its dimension that runs over units
    dim: int  # of the output, which runs over units
    slopes: Slopes
    # Where a parameter has one number for each unit: how the output changes with it.
    effects: Effects | None = None

    def bind(self, args: Args, kwargs: Mapping[str, object]) -> Kwargs:
        """The arguments by name."""
        return {**dict(zip(self.arguments, args, strict=False)), **kwargs}


RULES: dict[Function, UnitRule] = {}


def unit(
    *targets: Function,
    arguments: str,
    parameters: Mapping[str, int],
    dim: int = -1,
    effects: Effects | None = None,
) -> Callable[[Slopes], Slopes]:
    """Register the rule of a function: slopes of its parameters from those of its output.

    The rule gets the call's arguments by name and the slopes of its output (zero where nothing was
    probed), and returns the slopes of the parameters by argument name.

    Args:
        *targets: the function, as torch's overrides see it, and its aliases.
        arguments: names of its positional arguments, separated by spaces.
        parameters: arguments that may be parameters, and which of their dimensions runs over
            units (where it has another size, all units are probed together).
        dim: the dimension of the output that runs over units.
        effects: for parameters with one number for each unit, how the output changes with each,
            by argument name; they then move at all positions at once, without noise.

    >>> import torch, cocd
    >>> @cocd.rules.unit(torch.addcmul, arguments="input tensor1 tensor2",
    ...                  parameters={"tensor2": -1})
    ... def addcmul(call, slopes):                     # input + tensor1 * tensor2
    ...     return {"tensor2": (slopes * call["tensor1"]).flatten(0, -2).sum(0)}
    """

    def register(slopes: Slopes) -> Slopes:
        for target in targets:
            name = str(getattr(target, "__name__", target))
            RULES[target] = UnitRule(
                name, tuple(arguments.split()), dict(parameters), dim, slopes, effects
            )
        return slopes

    return register


def summed_to(slopes: Tensor, shape: torch.Size) -> Tensor:
    """The slopes of something that was broadcast, in its own shape."""
    return slopes.sum_to_size(shape)


@unit(F.linear, arguments="input weight bias", parameters={"weight": 0, "bias": 0})
def _linear(call: Named, slopes: Tensor) -> dict[str, Tensor]:
    d, x = slopes.flatten(0, -2), call["input"].flatten(0, -2)
    return {"weight": d.T @ x, "bias": d.sum(0)}


@unit(
    torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.mm, torch.Tensor.mm,
    arguments="input other", parameters={"other": 1},
)  # fmt: skip
def _matmul(call: Named, slopes: Tensor) -> dict[str, Tensor]:
    x, other = call["input"], call["other"]
    if other.dim() != 2:
        raise NotImplementedError
    return {"other": x.flatten(0, -2).T @ slopes.flatten(0, -2)}


@unit(
    F.bilinear, torch.bilinear,
    arguments="input1 input2 weight bias", parameters={"weight": 0, "bias": 0},
)  # fmt: skip
def _bilinear(call: Named, slopes: Tensor) -> dict[str, Tensor]:
    d, x, y = (t.flatten(0, -2) for t in (slopes, call["input1"], call["input2"]))
    return {"weight": torch.einsum("nu,ni,nj->uij", d, x, y), "bias": d.sum(0)}


@unit(
    F.embedding,
    arguments="input weight padding_idx max_norm norm_type scale_grad_by_freq sparse",
    parameters={"weight": 1},
)
def _embedding(call: Named, slopes: Tensor) -> dict[str, Tensor]:
    index, padding = call["input"].flatten(), call.get("padding_idx")
    d = slopes.flatten(0, -2)
    if padding is not None:  # torch gives its row no gradient
        d = d * (index != padding % len(call["weight"]))[:, None]
    return {"weight": torch.zeros_like(call["weight"]).index_add_(0, index, d)}


# --- convolutions ----------------------------------------------------------------------------

_CONV = "input weight bias stride padding dilation groups"


def _each(value: int | Sequence[int], n: int) -> tuple[int, ...]:
    return (value,) * n if isinstance(value, int) else tuple(value) * (n // len(tuple(value)))


def padded(call: Named) -> Tensor:
    """The input of a convolution with its zeros around it."""
    x, kernel = call["input"], call["weight"].shape[2:]
    n = len(kernel)
    padding, dilation = call.get("padding", 0), _each(call.get("dilation", 1), n)
    sides: list[int] = []
    for i in reversed(range(n)):
        reach = dilation[i] * (kernel[i] - 1)
        if padding == "same":
            sides += [reach // 2, reach - reach // 2]
        else:
            sides += [0 if padding == "valid" else _each(padding, n)[i]] * 2
    return F.pad(x, sides) if any(sides) else x


def windows(call: Named) -> Tensor:
    """(N, channels, *positions, *kernel): what each position of a convolution's output reads."""
    kernel = call["weight"].shape[2:]
    return _windows(
        padded(call), kernel, _each(call.get("stride", 1), len(kernel)),
        _each(call.get("dilation", 1), len(kernel)),
    )  # fmt: skip


def _windows(
    x: Tensor, kernel: torch.Size, stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Tensor:
    for i, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True)):
        x = x.unfold(2 + i, d * (k - 1) + 1, s)[..., ::d]
    return x


def _correlated(slopes: Tensor, seen: Tensor, groups: int) -> Tensor:
    """(U, channels of the group, *kernel), of slopes (N, U, *positions) and windows."""
    n = slopes.dim() - 2
    d = slopes.reshape(len(slopes), groups, -1, *slopes.shape[2:])
    x = seen.reshape(len(seen), groups, -1, *seen.shape[2:])
    p, k = "wxyz"[:n], "abc"[:n]
    return torch.einsum(f"ngu{p},ngi{p}{k}->gui{k}", d, x).flatten(0, 1)


@unit(torch.conv1d, torch.conv2d, torch.conv3d, arguments=_CONV,
      parameters={"weight": 0, "bias": 0}, dim=1)  # fmt: skip
def _conv(call: Named, slopes: Tensor) -> dict[str, Tensor]:
    if call.get("groups", 1) == 1:
        found = _swapped(call, slopes)
    else:
        found = _correlated(slopes, windows(call), call["groups"])
    return {"weight": found, "bias": slopes.transpose(0, 1).flatten(1).sum(1)}


def _swapped(call: Named, slopes: Tensor) -> Tensor:
    """The same as a convolution: samples act as channels, slopes as kernels, strides as dilations.

    Without windows in memory.
    """
    kernel = call["weight"].shape[2:]
    n = len(kernel)
    convolve = (torch.conv1d, torch.conv2d, torch.conv3d)[n - 1]
    stride, dilation = (_each(call.get(name, 1), n) for name in ("stride", "dilation"))
    found = convolve(
        padded(call).transpose(0, 1), slopes.transpose(0, 1), stride=dilation, dilation=stride
    )
    inside = tuple(slice(0, size) for size in kernel)  # a stride may leave a rest
    return found[(slice(None), slice(None), *inside)].transpose(0, 1)


@unit(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d,
      arguments="input weight bias stride padding output_padding groups dilation",
      parameters={"weight": 1, "bias": 0}, dim=1)  # fmt: skip
def _conv_transposed(call: Named, slopes: Tensor) -> dict[str, Tensor]:
    """Its transpose is a convolution of the slopes: the two change places."""
    kernel, groups = call["weight"].shape[2:], call.get("groups", 1)
    n = len(kernel)
    padding = _each(call.get("padding", 0), n)
    wide = F.pad(slopes, [side for p in reversed(padding) for side in (p, p)])
    stride, dilation = (_each(call.get(name, 1), n) for name in ("stride", "dilation"))
    x = call["input"]
    seen = _windows(wide, kernel, stride, dilation)
    seen = seen[(slice(None), slice(None), *(slice(0, size) for size in x.shape[2:]))]
    return {
        "weight": _correlated(x, seen, groups),
        "bias": slopes.transpose(0, 1).flatten(1).sum(1),
    }


# --- normalisation ----------------------------------------------------------------------------


def affine(*targets: Function, arguments: str, dim: int = -1) -> Callable[[Normal], Normal]:
    """Register a normalisation with a scale and a shift for each unit.

    The rule gives the normalised input, before both.
    """

    def register(normal: Normal) -> Normal:
        def effects(call: Named) -> dict[str, Tensor]:
            found = normal(call)
            return {"weight": found, "bias": torch.ones_like(found)}

        @unit(*targets, arguments=arguments, parameters={"weight": -1, "bias": -1}, dim=dim,
              effects=effects)  # fmt: skip
        def slopes(call: Named, d: Tensor) -> dict[str, Tensor]:
            shape = torch.Size(call.get("normalized_shape", (d.shape[dim],)))
            other = d.dim() - 1 if dim == -1 else dim
            return {
                name: (d * effect).movedim(other, -1).sum_to_size(shape)
                for name, effect in effects(call).items()
            }

        return normal

    return register


@affine(F.layer_norm, arguments="input normalized_shape weight bias eps")
def _layer_norm(call: Named) -> Tensor:
    return F.layer_norm(call["input"], call["normalized_shape"], eps=call.get("eps", 1e-5))


@affine(F.rms_norm, arguments="input normalized_shape weight eps")
def _rms_norm(call: Named) -> Tensor:
    return F.rms_norm(call["input"], call["normalized_shape"], eps=call.get("eps"))


@affine(F.group_norm, arguments="input num_groups weight bias eps", dim=1)
def _group_norm(call: Named) -> Tensor:
    return F.group_norm(call["input"], call["num_groups"], eps=call.get("eps", 1e-5))


@affine(
    F.instance_norm, dim=1,
    arguments="input running_mean running_var weight bias use_input_stats momentum eps",
)  # fmt: skip
def _instance_norm(call: Named) -> Tensor:
    if not call.get("use_input_stats", True):
        raise NotImplementedError
    return F.instance_norm(call["input"], eps=call.get("eps", 1e-5))


@affine(
    F.batch_norm, dim=1,
    arguments="input running_mean running_var weight bias training momentum eps",
)  # fmt: skip
def _batch_norm(call: Named) -> Tensor:
    training, eps = call.get("training", False), call.get("eps", 1e-5)
    mean, var = (None, None) if training else (call["running_mean"], call["running_var"])
    return F.batch_norm(call["input"], mean, var, None, None, training, 0.0, eps)


# --- element by element -----------------------------------------------------------------------


@unit(F.prelu, torch.prelu, arguments="input weight", parameters={"weight": 0}, dim=1)
def _prelu(call: Named, slopes: Tensor) -> dict[str, Tensor]:
    found = slopes * call["input"].clamp(max=0)
    channels = found.transpose(0, 1).flatten(1).sum(1) if found.dim() > 1 else found
    return {"weight": channels if len(call["weight"]) > 1 else channels.sum().view(1)}


@unit(
    torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__,
    arguments="input other alpha", parameters={"input": -1, "other": -1},
)  # fmt: skip
def _add(call: Named, slopes: Tensor) -> dict[str, Tensor]:
    if call.get("alpha", 1) != 1:
        raise NotImplementedError
    return {
        name: summed_to(slopes, call[name].shape)
        for name in ("input", "other")
        if isinstance(call[name], Tensor)
    }


@unit(
    torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__,
    arguments="input other", parameters={"input": -1, "other": -1},
)  # fmt: skip
def _mul(call: Named, slopes: Tensor) -> dict[str, Tensor]:
    one, two = call["input"], call["other"]
    if not (isinstance(one, Tensor) and isinstance(two, Tensor)):
        raise NotImplementedError
    return {
        "input": summed_to(slopes * two, one.shape),
        "other": summed_to(slopes * one, two.shape),
    }
