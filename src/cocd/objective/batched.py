"""Whole forward passes, many perturbed copies of parameters at a time, under vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from .protocol import LossValue
from .stacking import quiet


def call_model(model: nn.Module, inputs: object, state: dict[str, Tensor] | None = None) -> object:
    """``model(*inputs)``, with some of its tensors replaced."""
    args = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
    kwargs = inputs if isinstance(inputs, dict) else {}
    if state is None:
        return model(*args, **kwargs)
    everywhere = {place: t for name, t in state.items() for place in _places(model, name)}
    return functional_call(model, everywhere, args, kwargs, tie_weights=False)


def _places(model: nn.Module, name: str) -> list[str]:
    """A name for each place that holds the same tensor.

    Not for each name: torch would restore the wrong tensor of a module registered twice.
    """
    found: dict[tuple[int, str], str] = {}
    owner, _, local = name.rpartition(".")
    tensor = getattr(model.get_submodule(owner), local)
    for prefix, module in model.named_modules(remove_duplicate=False):
        for held in (module._parameters, module._buffers):
            for key, value in held.items():
                if value is tensor:
                    found.setdefault((id(module), key), f"{prefix}.{key}" if prefix else key)
    return list(found.values())


def batched_losses(
    model: nn.Module,
    stacks: dict[str, Tensor],
    inputs: object,
    loss_of: Callable[[object], LossValue],
) -> Tensor:
    """The losses with some parameters, by name, as they stand in each layer of their stacks.

    Float64, on the CPU.
    """
    K = len(next(iter(stacks.values())))
    # Train mode writes buffers: every probe gets its own copy, which is dropped.
    training = any(m.training for m in model.modules())
    buffers = {
        key: value.expand(K, *value.shape).clone()
        for key, value in model.named_buffers()
        if training
    }

    def loss(state: dict[str, Tensor]) -> LossValue:
        return loss_of(call_model(model, inputs, state))

    with quiet():
        # vmap refuses a loss that is not a tensor.
        losses = cast(Tensor, vmap(loss, randomness="same")({**stacks, **buffers}))
    return losses.to(torch.float64).cpu().reshape(K)
