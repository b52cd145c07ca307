"""Layers: modules recorded as one call, and how to intercept them while the model runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from threading import get_ident

import torch
from torch import nn
from torch.nn.modules import module as _torch_module

from ..registry import Args, Function, Kwargs, rules

# Containers of layers that have rules: the calls inside are recorded instead.
_ENTERED = (
    nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Transformer, nn.TransformerDecoder,
    nn.TransformerDecoderLayer, nn.TransformerEncoderLayer, nn.DataParallel,
    nn.parallel.DistributedDataParallel,
)  # fmt: skip


def is_layer(module: nn.Module) -> bool:
    """Is this module recorded as one call? Torch's own modules are, and modules that have rules.

    A module whose instance has its own `forward` is not.
    """
    kind: type = type(module)
    return "forward" not in vars(module) and _is_kind_of_layer(
        kind, len(rules.flows), len(rules.sources)
    )


@lru_cache(maxsize=1024)
def _is_kind_of_layer(kind: type, *rules_known: int) -> bool:
    if kind in rules.flows or any(kind is known for known, _ in rules.sources):
        return True
    if issubclass(kind, _ENTERED):
        return False
    return kind.__module__.startswith(("torch.nn.modules.", "torch.nn.utils.", "torch.ao.nn."))


def keeps_together(module: nn.Module, args: Args, kwargs: Kwargs) -> bool:
    """Is this layer recorded as one call? An encoder is only if it may drop padding.

    The padding in its output then differs from the padding in its input.
    """
    if type(module) is not nn.TransformerEncoder:
        return True
    padded = len(args) > 2 or kwargs.get("src_key_padding_mask") is not None
    return bool(module.enable_nested_tensor) and padded


def has_hooks(m: nn.Module) -> bool:
    """Does calling this module run any hooks besides its forward?"""
    t = _torch_module
    return bool(
        m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks
        or t._global_forward_hooks or t._global_forward_pre_hooks
        or t._global_backward_hooks or t._global_backward_pre_hooks
    )  # fmt: skip


class LayerListener:
    """Intercepts the layers of a model while it runs.

    It sets attributes on the module instances, because changing a class invalidates its caches.
    """

    def __init__(self, model: nn.Module) -> None:
        self.listener: Function | None = None
        self._thread = 0
        found = [m for m in model.modules() if not is_scripted(m)]
        self._heard = [(vars(m), partial(self._hear, m)) for m in found if is_layer(m)]
        self._wrapped = [(vars(m), compiled_from(m)) for m in found if compiled_from(m)]

    def _hear(self, module: nn.Module, *args: object, **kwargs: object) -> object:
        if self.listener is None or get_ident() != self._thread:  # another thread's call
            return type(module).forward(module, *args, **kwargs)
        return self.listener(module, *args, **kwargs)

    @contextmanager
    def open(self, listener: Function) -> Iterator[None]:
        """Call `listener` in place of the layers' forwards, with the module as first argument."""
        changed: list[tuple[dict[str, object], object]] = []
        self.listener, self._thread = listener, get_ident()
        try:
            for own, forward in self._heard:
                if "forward" not in own:
                    own["forward"] = forward
                    changed.append((own, None))
            for own, original in self._wrapped:
                changed.append((own, own.get("forward")))
                own["forward"] = original
            yield
        finally:
            self.listener = None
            for own, before in changed:
                if before is None:
                    del own["forward"]
                else:
                    own["forward"] = before


def is_scripted(module: nn.Module) -> bool:
    """Does this module run in C++, where Python sees no calls?"""
    return isinstance(module, torch.jit.ScriptModule)


def compiled_from(module: nn.Module) -> nn.Module | None:
    """The original of a module that `torch.compile` made; None for any other module."""
    return module._modules["_orig_mod"] if type(module).__name__ == "OptimizedModule" else None


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside a torch wrapper, without the wrapper's work for gradients."""
    while True:
        if (original := compiled_from(model)) is not None:
            model = original
        elif isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        else:
            return model


def has_parameters(module: nn.Module) -> bool:
    """Does this module or a submodule have parameters?"""
    if any(p is not None for p in module._parameters.values()):
        return True
    return bool(module._modules) and any(True for _ in module.parameters())


def buffer_versions(module: nn.Module) -> list[int]:
    """Write counts of a layer's buffers; batch norms do not read the buffers they write."""
    if not (module._buffers or module._modules):  # the common case
        return []
    kept = (m for m in module.modules() if not isinstance(m, nn.modules.batchnorm._NormBase))
    return [b._version for m in kept for b in m._buffers.values() if b is not None]
