"""Dropout masks: the scaled mask of a dropout call, shared by all probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..registry import Args, Kwargs

_DROPOUTS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Dropout: F.dropout,
    nn.Dropout1d: F.dropout1d,
    nn.Dropout2d: F.dropout2d,
    nn.Dropout3d: F.dropout3d,
}
_FUNCTIONAL = frozenset(_DROPOUTS.values())


def dropout_noise(
    target: Any, module: nn.Module | None, args: Args, kwargs: Kwargs
) -> Tensor | None:
    """The scaled mask of an active dropout call.

    It draws the same random numbers as the call itself and gives the same product.
    """
    active: object
    if module is not None:
        function, active = _DROPOUTS.get(target), module.training
        p: Any = getattr(module, "p", 0.0)
    else:
        function = target if target in _FUNCTIONAL else None
        p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        active = kwargs.get("training", args[2] if len(args) > 2 else True)
    if function is None or not active or not args or not p:
        return None
    return function(torch.ones_like(args[0]), p, training=True)
