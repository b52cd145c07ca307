"""The change of a loss, computed from the change of the output.

Subtracting two means loses the difference between probes in the rounding of the means. So
differences are taken per sample and summed in float64. For squared error and cross-entropy no
losses are subtracted at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss

from .change import Change
from .kernels import dispatch as kernels

# Changed output, target -> (K,) float64, or None where this loss must be asked for every probe.
LossChange = Callable[[Change, Any], "Tensor | None"]

_FEW = 8  # classes whose logits have changed

_FUNCTIONS: dict[object, Callable[..., _Loss]] = {
    F.mse_loss: nn.MSELoss,
    F.l1_loss: nn.L1Loss,
    F.huber_loss: nn.HuberLoss,
    F.smooth_l1_loss: nn.SmoothL1Loss,
    F.cross_entropy: nn.CrossEntropyLoss,
    F.nll_loss: nn.NLLLoss,
    F.binary_cross_entropy: nn.BCELoss,
    F.binary_cross_entropy_with_logits: nn.BCEWithLogitsLoss,
}


def known(loss_fn: object) -> _Loss | None:
    """`loss_fn` as a module, if it is a standard loss, else None."""
    options: dict[str, object] = {}
    if isinstance(loss_fn, partial) and not loss_fn.args:
        options, loss_fn = dict(loss_fn.keywords), loss_fn.func
    if options.get("reduction", "mean") not in ("mean", "sum"):
        return None
    if isinstance(loss_fn, _Loss) and type(loss_fn) in _FUNCTIONS.values():
        return loss_fn if loss_fn.reduction in ("mean", "sum") else None
    try:
        return _FUNCTIONS[loss_fn](**options)
    except (KeyError, TypeError):  # no such loss, or not with these options
        return None


def change_of(loss: _Loss) -> LossChange:
    """The change of a standard loss, in float64, one number per probe."""
    if isinstance(loss, nn.MSELoss):
        return partial(_squared, loss)
    if isinstance(loss, nn.CrossEntropyLoss):
        return partial(_cross_entropy, loss)
    return partial(_unreduced, loss)


def _total(per_element: Tensor, normaliser: float | Tensor) -> Tensor:
    return per_element.flatten(1).sum(1, dtype=torch.float64) / normaliser


def _squared(loss: nn.MSELoss, y: Change, target: Tensor) -> Tensor | None:
    """(b + d - t)^2 - (b - t)^2 = d (d + 2 (b - t))."""
    if target.shape != y.base.shape:  # one of them is spread over the other
        return None
    d = y.delta()
    normaliser = y.base.numel() if loss.reduction == "mean" else 1
    if y.is_dense and kernels.enabled() and kernels.suits(d, y.base, target):
        return kernels.squared(d, y.base - target) / normaliser
    twice = y.restrict((y.base - target).mul_(2))
    if d.dim() == 3 and d.stride(-1) != 1:  # units first, and what is added to it alike
        d, twice = d.mT, twice.mT.contiguous()
    return _total((d + twice).mul_(d), normaliser)


def _cross_entropy(loss: nn.CrossEntropyLoss, y: Change, target: Tensor) -> Tensor | None:
    """Log sum exp(b + d) - log sum exp(b) = log(1 + sum p (exp(d) - 1)), minus d at the label."""
    plain = (
        loss.weight is None
        and not loss.label_smoothing
        and target.dim() == 1
        and not target.is_floating_point()
        and y.base.dim() == 2
        and bool(y.base.isfinite().all())  # -inf, for classes that are ruled out, has no difference
    )
    if not plain or bool((target == loss.ignore_index).any()):
        return _unreduced(loss, y, target)
    normaliser = len(target) if loss.reduction == "mean" else 1
    if y.dim == 1 and y.width < _FEW and float(y.delta().abs().amax()) < 1:
        return _of_few_classes(y, target, normaliser)
    d = _whole_delta(y)
    if kernels.enabled() and kernels.suits(d, y.base):
        return kernels.cross_entropy(d, y.base, target) / normaliser
    p = y.base.softmax(1)
    at_label = d.gather(2, target.view(1, -1, 1).expand(len(d), -1, 1))[..., 0]
    rise = torch.log1p((torch.expm1(d) * p).sum(2))
    # Far from the base point exp overflows or cancels: there the plain form is as good.
    far = d.abs().amax(2) > 1
    if bool(far.any()):
        direct = (y.base + d).logsumexp(2) - y.base.logsumexp(1)
        rise = torch.where(far, direct, rise)
    return _total(rise - at_label, normaliser)


def _of_few_classes(y: Change, target: Tensor, normaliser: int) -> Tensor:
    """The same where the logits of all but few classes are as they were, and these near it."""
    d, p = y.delta(), y.restrict(y.base.softmax(1))
    classes = y.index(target.device)  # (K or 1, width)
    at_label = torch.where(classes[:, None] == target[None, :, None], d, 0).sum(2)
    rise = torch.log1p((torch.expm1(d) * p).sum(2))
    return _total(rise - at_label, normaliser)


def _whole_delta(y: Change) -> Tensor:
    """The difference at every unit; of a slab without adding `base` and taking it off again."""
    if y.is_dense:
        return y.delta()
    return y.with_delta(torch.zeros_like(y.base), y.delta()).densify().new()


def _unreduced(loss: _Loss, y: Change, target: Tensor) -> Tensor | None:
    """Any standard loss: unreduced on the stacked outputs, minus unreduced on the base."""
    new = y.densify().new()
    K = len(new)
    reduction = loss.reduction
    try:
        loss.reduction = "none"
        if isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss)):
            if y.base.dim() == 1:  # a single sample, without a dimension for it
                return None
            before = loss(y.base, target)
            after = loss(new.flatten(0, 1), target.expand(K, *target.shape).flatten(0, 1))
        elif target.shape == y.base.shape:  # each element on its own
            before = loss(y.base, target)
            after = loss(new, target.expand(K, *target.shape))
        else:
            return None
    finally:
        loss.reduction = reduction
    per_element = after.reshape(K, *before.shape) - before
    return _total(per_element, _normaliser(loss, before, target))


def _normaliser(loss: _Loss, before: Tensor, target: Tensor) -> float | Tensor:
    """What the mean divides by: elements, or the weights of the labels that count."""
    if loss.reduction == "sum":
        return 1.0
    if isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss)) and not target.is_floating_point():
        counted = target != loss.ignore_index
        if loss.weight is None:
            return counted.sum().double()
        return loss.weight[target[counted]].sum(dtype=torch.float64)
    return float(before.numel())
