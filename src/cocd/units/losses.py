"""The loss as a sum over samples: how much of it each sample contributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.modules.loss import _Loss

from ..objective.protocol import LossFunction
from ..objective.registry import Args, Function, Kwargs

SampleLosses = Callable[..., Tensor]  # of an output and a target: the loss of each sample

_BY_LABELS = (F.cross_entropy, F.nll_loss)
_FUNCTIONS: dict[type[nn.Module], Function] = {
    nn.MSELoss: F.mse_loss,
    nn.L1Loss: F.l1_loss,
    nn.HuberLoss: F.huber_loss,
    nn.SmoothL1Loss: F.smooth_l1_loss,
    nn.CrossEntropyLoss: F.cross_entropy,
    nn.NLLLoss: F.nll_loss,
    nn.BCELoss: F.binary_cross_entropy,
    nn.BCEWithLogitsLoss: F.binary_cross_entropy_with_logits,
    nn.PoissonNLLLoss: F.poisson_nll_loss,
    nn.KLDivLoss: F.kl_div,
    nn.SoftMarginLoss: F.soft_margin_loss,
    nn.MultiLabelSoftMarginLoss: F.multilabel_soft_margin_loss,
}
_OPTIONS = {"delta", "beta", "weight", "ignore_index", "label_smoothing", "pos_weight", "log_input",
            "full", "eps", "log_target"}  # fmt: skip
_REMEDY = (
    "give UnitGradient sample_losses=, a function of output and target that returns the loss of "
    "each sample"
)


class Contributions:
    """What each sample adds to the loss, (N,) float64, of an output and a target."""

    def __call__(self, output: Any, target: Any) -> Tensor:
        raise NotImplementedError

    def stacked(self, output: Any, target: Any) -> Tensor:
        """(K, N), of K outputs."""
        found: Tensor = vmap(lambda one: self(one, target))(output)
        return found


def contributions(
    loss_fn: LossFunction, sample_losses: SampleLosses | None = None
) -> Contributions:
    """What each sample contributes to ``loss_fn(output, target)``, if it can be known.

    The result raises `ValueError` when called if the loss is not a mean or a sum.
    """
    if sample_losses is not None:
        return Averaged(sample_losses, loss_fn)
    options: Kwargs = {}
    function: Function = loss_fn
    while isinstance(function, partial) and not function.args:
        options, function = {**function.keywords, **options}, function.func
    reduction = options.pop("reduction", None)
    if isinstance(function, _Loss) and type(function) in _FUNCTIONS and not options:
        module, function = function, _FUNCTIONS[type(function)]
        options = {k: v for k, v in vars(module).items() if k in _OPTIONS}
        options |= {k: v for k, v in module._buffers.items() if k in _OPTIONS}
        reduction = module.reduction
    if function in _FUNCTIONS.values():
        return Standard(function, options, reduction or "mean")
    if _takes_reduction(loss_fn):
        return Averaged(partial(loss_fn, reduction="none"), loss_fn)
    return Intercepted(loss_fn)


def _takes_reduction(loss_fn: LossFunction) -> bool:
    try:
        return "reduction" in inspect.signature(loss_fn).parameters
    except (TypeError, ValueError):
        return False


@dataclass
class Standard(Contributions):
    """Of one of torch's losses; the mean over labels is weighted by class and leaves some out."""

    function: Function
    options: Kwargs
    reduction: str

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        each: Tensor = self.function(output, target, reduction="none", **self.options)
        if each.dim() == 0:
            raise ValueError(f"the loss of a single unbatched sample has no units; {_REMEDY}")
        return _per_sample(each.to(torch.float64)) / self._divisor(output, target, each.numel())

    def stacked(self, output: Tensor, target: Tensor) -> Tensor:
        K = len(output)
        again = target.repeat(K, *[1] * (target.dim() - 1))
        each = self.function(output.flatten(0, 1), again, reduction="none", **self.options)
        found = _per_sample(each.to(torch.float64)).view(K, -1)
        return found / self._divisor(output[0], target, each.numel() // K)

    def _divisor(self, output: Tensor, target: Tensor, count: int) -> Tensor | int:
        if self.reduction == "sum":
            return 1
        if self.reduction == "batchmean":
            return len(output)
        if self.function in _BY_LABELS and not target.is_floating_point():
            counted = target != self.options.get("ignore_index", -100)
            weight = self.options.get("weight")
            if weight is None:
                return int(counted.sum())
            shares: Tensor = weight[target * counted] * counted
            return shares.sum(dtype=torch.float64)
        return count


def _per_sample(each: Tensor) -> Tensor:
    """(N, ...) -> (N,)."""
    return torch.sum(each.flatten(1), 1) if each.dim() > 1 else each


@dataclass
class Averaged(Contributions):
    """Of losses whose mean or sum is what `loss_fn` gives."""

    of_samples: Callable[..., object]
    loss_fn: LossFunction

    def __call__(self, output: object, target: object) -> Tensor:
        each = self.of_samples(output, target)
        if not isinstance(each, Tensor) or each.dim() == 0:
            raise ValueError(f"sample_losses must return a loss for each sample; {_REMEDY}")
        summed = getattr(self.loss_fn, "reduction", "mean") == "sum"
        return _per_sample(each.to(torch.float64)) / (1 if summed else each.numel())


@dataclass
class Intercepted(Contributions):
    """Of a function of one's own that returns what one of torch's losses gives it."""

    loss_fn: LossFunction

    def __call__(self, output: object, target: object) -> Tensor:
        watch = _Watch()
        with watch:
            value = self.loss_fn(output, target)
        if watch.last is None or watch.value is not value or value._version != watch.version:
            name = getattr(self.loss_fn, "__name__", type(self.loss_fn).__name__)
            raise ValueError(
                f"loss_fn={name} is not known to be a mean or a sum over samples; {_REMEDY}"
            )
        function, args, kwargs = watch.last
        named = inspect.signature(function).bind(*args, **kwargs).arguments
        options = {k: v for k, v in named.items() if k in _OPTIONS}
        standard = Standard(function, options, named.get("reduction", "mean"))
        return standard(named["input"], named["target"])


class _Watch(torch.overrides.TorchFunctionMode):
    """Remembers the last call of one of torch's losses."""

    def __init__(self) -> None:
        super().__init__()
        self.last: tuple[Function, Args, Kwargs] | None = None
        self.value: Tensor | None = None
        self.version = 0  # of the value, to notice if it is written to later

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        out = func(*args, **(kwargs or {}))
        if func in _FUNCTIONS.values():
            self.last, self.value = (func, args, kwargs or {}), out
            self.version = out._version
        return out


# How far rounding may take the sum of the contributions from the loss.
_ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5}
_COARSE = 1e-2


def checked(
    found: Tensor, loss: float, samples: int, name: str, dtypes: Collection[torch.dtype]
) -> float:
    """A factor that makes the contributions sum to the loss: 1, or N where they are its mean's.

    `found` are those of the unperturbed pass, and the loss was computed in `dtypes`. Raises
    `ValueError` where neither is the loss.
    """
    if found.dim() != 1 or len(found) % samples:
        raise ValueError(
            f"{name} gives {tuple(found.shape)} losses for {samples} samples, so the loss of "
            f"each sample is unknown; {_REMEDY}"
        )
    total = float(found.sum())
    rounding = max((_ROUNDING.get(dtype, _COARSE) for dtype in dtypes), default=_COARSE)
    noise = rounding * float(found.abs().sum()) + 1e-12
    for factor in (1, found.numel(), samples):
        if abs(total * factor - loss) <= noise * factor:
            return float(factor)
    raise ValueError(
        f"the losses of the samples add up to {total:.6g} while {name} gives {loss:.6g}: it is "
        f"neither their mean nor their sum; {_REMEDY}"
    )
