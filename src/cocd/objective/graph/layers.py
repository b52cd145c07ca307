"""Layers: modules that are recorded as one call, and how they come to be seen while they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from threading import get_ident

import torch
from torch import nn
from torch.nn.modules import module as _torch_module

from ..registry import Args, Function, Kwargs, rules

# Made of layers that have rules: what is inside is recorded.
_ENTERED = (
    nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Transformer, nn.TransformerDecoder,
    nn.TransformerDecoderLayer, nn.TransformerEncoderLayer, nn.DataParallel,
    nn.parallel.DistributedDataParallel,
)  # fmt: skip


def is_layer(module: nn.Module) -> bool:
    """Are calls of this module recorded as one? Those of torch are, and those that have rules.

    Not where users have put another `forward` on the module itself.
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
    """Is this call of a layer recorded as one? An encoder is if it may drop padding on its way.

    What comes out for padding is then not what goes in.
    """
    if type(module) is not nn.TransformerEncoder:
        return True
    padded = len(args) > 2 or kwargs.get("src_key_padding_mask") is not None
    return bool(module.enable_nested_tensor) and padded


def has_hooks(m: nn.Module) -> bool:
    """Does anything run beside the forward when this module is called?"""
    t = _torch_module
    return bool(
        m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks
        or t._global_forward_hooks or t._global_forward_pre_hooks
        or t._global_backward_hooks or t._global_backward_pre_hooks
    )  # fmt: skip


class LayerListener:
    """Lets somebody listen to the layers of a model while it runs.

    As attributes of the modules themselves: to change a class would empty the caches of all.
    """

    def __init__(self, model: nn.Module) -> None:
        self.listener: Function | None = None
        self._thread = 0
        found = [m for m in model.modules() if not is_scripted(m)]
        self._heard = [(vars(m), partial(self._hear, m)) for m in found if is_layer(m)]
        self._wrapped = [(vars(m), compiled_from(m)) for m in found if compiled_from(m)]

    def _hear(self, module: nn.Module, *args: object, **kwargs: object) -> object:
        if self.listener is None or get_ident() != self._thread:  # it is running elsewhere, too
            return type(module).forward(module, *args, **kwargs)
        return self.listener(module, *args, **kwargs)

    @contextmanager
    def open(self, listener: Function) -> Iterator[None]:
        """While entered, `listener` is called in place of the forwards, with the module first."""
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
    """Do its calls run in C++, where nothing can be seen?"""
    return isinstance(module, torch.jit.ScriptModule)


def compiled_from(module: nn.Module) -> nn.Module | None:
    """What `torch.compile` has made a module of, if it did."""
    return module._modules["_orig_mod"] if type(module).__name__ == "OptimizedModule" else None


def unwrapped(model: nn.Module) -> nn.Module:
    """The module that a wrapper of torch runs, without what it does for gradients."""
    while True:
        if (original := compiled_from(model)) is not None:
            model = original
        elif isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        else:
            return model


def has_parameters(module: nn.Module) -> bool:
    """Does a module or one below it have parameters?"""
    if any(p is not None for p in module._parameters.values()):
        return True
    return bool(module._modules) and any(True for _ in module.parameters())


def buffer_versions(module: nn.Module) -> list[int]:
    """How often the buffers of a layer were written; batch norms do not read what they write."""
    if not (module._buffers or module._modules):  # as most of them
        return []
    kept = (m for m in module.modules() if not isinstance(m, nn.modules.batchnorm._NormBase))
    return [b._version for m in kept for b in m._buffers.values() if b is not None]
