"""Whole forward passes, many perturbed copies of one parameter at a time, under vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from .registry import Moves
from .stacking import moved, quiet


def call_model(model: nn.Module, inputs: Any, state: dict[str, Tensor] | None = None) -> Any:
    """``model(*inputs)``, with some of its tensors replaced."""
    args = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
    kwargs = inputs if isinstance(inputs, dict) else {}
    if state is None:
        return model(*args, **kwargs)
    return functional_call(model, state, args, kwargs)


def batched_losses(
    model: nn.Module,
    name: str,
    parameter: Tensor,
    moves: Moves,
    inputs: Any,
    loss_of: Callable[[Any], Tensor],
) -> Tensor:
    """The losses at the moved points, float64 on the CPU."""
    # Buffers are written in train mode: every probe gets its own copy, which is thrown away.
    training = any(m.training for m in model.modules())
    buffers = {
        key: value.expand(moves.K, *value.shape).clone()
        for key, value in model.named_buffers()
        if training
    }

    def loss(value: Tensor, state: dict[str, Tensor]) -> Tensor:
        return loss_of(call_model(model, inputs, {name: value, **state}))

    with quiet():
        losses = vmap(loss, randomness="same")(moved(parameter, moves), buffers)
    return losses.to(torch.float64).cpu()
