"""Parameters that the forward itself writes, as an embedding with `max_norm` does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import ClosureWarning
from .warn import warn

_PLAIN = (Tensor, nn.Parameter)
_itself = torch._C.DisableTorchFunction  # a mode around may put another tensor in its place
_told: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()  # modules, by id


class Rewritten:
    """Notices whether the first evaluation of a step wrote parameters.

    If it did, a probe would leave behind what it made of perturbed weights. So from then on each
    evaluation is to be made inside `kept`. What is written through ``.data`` in place is not seen,
    since it leaves no mark on the parameter.
    """

    def __init__(self) -> None:
        self.found = False
        self._watched: dict[int, tuple[Tensor, nn.Module, tuple[int, int]]] = {}

    def watch(self, module: nn.Module) -> None:
        """Note how the module's own parameters stand before it runs."""
        with _itself():
            for tensor in module._parameters.values():
                if tensor is not None and id(tensor) not in self._watched and not is_lazy(tensor):
                    self._watched[id(tensor)] = tensor, module, _mark(tensor)

    def begin(self) -> None:
        """The first evaluation comes now: what was written before it is not its doing."""
        with _itself():
            for tensor, owner, _ in list(self._watched.values()):
                self._watched[id(tensor)] = tensor, owner, _mark(tensor)

    def mark(self) -> None:
        """The first evaluation is over."""
        with _itself():
            writers = [owner for p, owner, mark in self._watched.values() if _mark(p) != mark]
        self.found = bool(writers)
        if any(id(owner) not in _told for owner in writers):
            _told.update({id(owner): owner for owner in writers})
            warn(
                f"the forward writes into parameters of {type(writers[0]).__name__}; each probe "
                "therefore restores all parameters from copies, which takes time and memory",
                ClosureWarning,
            )

    @contextmanager
    def kept(self) -> Iterator[None]:
        """All parameters stand afterwards as they stood before, in the same memory."""
        tensors = [tensor for tensor, _, _ in self._watched.values()]
        with _itself():
            stood = [(tensor, tensor.data, tensor.detach().clone()) for tensor in tensors]
        try:
            yield
        finally:
            with _itself():
                for tensor, place, value in stood:
                    if _address(tensor) != _address(place):  # its data was assigned
                        tensor.data = place
                    place.copy_(value)


def _mark(tensor: Tensor) -> tuple[int, int]:
    """What changes when the tensor is written, or its data is assigned."""
    return tensor._version, _address(tensor)


def _address(tensor: Tensor) -> int:
    return tensor.data_ptr() if type(tensor) in _PLAIN else 0  # others need not have one
