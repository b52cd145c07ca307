"""Restore module buffers, so that all evaluations of a step start from the same ones."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel

from .attributes import Attributes
from .rewritten import Rewritten

Held = dict[str, tuple[Tensor | None, Tensor | None]]  # name: the tensor, a copy of its value


class _Watched:
    """The buffers of one module: the tensors and their values."""

    def __init__(self, module: nn.Module, before: Held) -> None:
        self._module = module
        self._before = self._after = before

    def mark(self) -> None:
        self._after = _held(self._module, self._before)

    def rewind(self) -> None:
        self._put(self._before)

    def finish(self) -> None:
        self._put(self._before)
        self._put(self._after)

    def _put(self, held: Held) -> None:
        standing = dict(self._module._buffers.items())
        for name in standing.keys() - held.keys():  # registered by the forward
            del self._module._buffers[name]
        for name, (tensor, value) in held.items():
            if name not in standing or standing[name] is not tensor:
                self._module._buffers[name] = tensor
            if tensor is not None and value is not None and not _holds(tensor, value):
                tensor.copy_(value)


def _held(module: nn.Module, known: Held) -> Held:
    """Record the module's buffers; copy only values that are not `known` yet."""
    held: Held = {}
    for name, tensor in module._buffers.items():
        old, value = known.get(name, (None, None))
        if tensor is not None and not (tensor is old and _holds(tensor, value)):
            value = tensor.detach().clone()
        held[name] = (tensor, None if tensor is None else value)
    return held


def _holds(tensor: Tensor, value: Tensor | None) -> bool:
    # Content, not the version counter: batch_norm writes its statistics without counting.
    return value is not None and torch.equal(tensor, value)


class Buffers:
    """The buffers and attributes of the modules whose forward ran."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.parallel = False  # is one of them a DistributedDataParallel?
        self._bare: list[nn.Module] = []  # modules without buffers so far: most of them
        self._watched: list[_Watched] = []
        self._attributes = Attributes()
        self.parameters = Rewritten()

    def watch(self, module: nn.Module) -> None:
        # Watch the children, too: a forward may write a child's buffers without calling the child.
        if id(module) in self._seen:
            return
        for child in walk(module):
            if id(child) not in self._seen:
                self._seen.add(id(child))
                self.parallel |= isinstance(child, DistributedDataParallel)
                self._attributes.watch(child)
                self.parameters.watch(child)
                if child._buffers:
                    self._watched.append(_Watched(child, _held(child, {})))
                else:
                    self._bare.append(child)

    @property
    def any(self) -> bool:
        """Whether there is anything to restore."""
        return bool(self._watched) or self._attributes.changed

    def mark(self) -> None:
        # A module without buffers after its forward needs no further checks.
        self._watched += [_Watched(module, {}) for module in self._bare if module._buffers]
        self._bare.clear()
        for watched in self._watched:
            watched.mark()
        self._attributes.mark()

    def rewind(self) -> None:
        for watched in self._watched:
            watched.rewind()
        for module in self._bare:  # buffers from a forward that failed or runs again
            if module._buffers:
                _Watched(module, {}).rewind()
        self._attributes.rewind()

    def finish(self) -> None:
        for watched in self._watched:
            watched.finish()
        self._attributes.finish()


def walk(model: nn.Module) -> list[nn.Module]:
    """All modules once, breadth first; a fast `modules()`, because every step calls it."""
    found, seen = [model], {id(model)}
    for module in found:  # the list grows during the loop
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found


class watching(AbstractContextManager[None]):
    """Makes `buffers` watch every module of this thread just before its forward runs."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self._thread = threading.get_ident()

    def __enter__(self) -> None:
        self._handle = register_module_forward_pre_hook(self._see)

    def _see(self, module: nn.Module, args: object) -> None:
        if threading.get_ident() == self._thread:
            self._buffers.watch(module)

    def __exit__(self, *exception: object) -> None:
        self._handle.remove()
