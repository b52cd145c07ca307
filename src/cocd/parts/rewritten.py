"""Parameters that the forward itself writes, as an embedding with `max_norm` does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import ClosureWarning
from .warn import warn

_PLAIN = (Tensor, nn.Parameter)
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_itself = torch._C.DisableTorchFunction  # an active mode could replace the tensor by another
_CHUNK = 1 << 18  # numbers
_SMALL = 4 << 20  # the most bytes of parameters to copy for restoring
_AGAIN = 61  # steps between checks of the numbers themselves
_told: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()  # warned of, by id
_unmarked: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()  # write through ``.data``
_looks: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # how often each was watched

Mark = tuple[int, int, str]


class Rewritten:
    """Detects whether the first evaluation of a step wrote parameters.

    If it did, probes would write values computed from perturbed weights, so each further evaluation
    must run inside `kept`. Writes in place through ``.data`` or NumPy do not raise the version of a
    parameter. To detect these, the numbers themselves are summed at the first step of a module and
    every 61 steps, around the first evaluation and after the probes. A module found to write is
    remembered.
    """

    def __init__(self) -> None:
        self.found = False
        self._watched: dict[int, tuple[Tensor, nn.Module, Mark]] = {}
        self._summed: set[int] = set()  # modules, by id, whose numbers are summed in this step
        self._at_rest = False  # whether to sum the numbers again after the probes
        self._copies: dict[int, Tensor] = {}  # of the parameters, if they are small enough

    def watch(self, module: nn.Module) -> None:
        """Record the state of the module's own parameters before it runs."""
        if not module._parameters:
            return
        looks = _looks.get(module, 0)
        _looks[module] = looks + 1
        if looks % _AGAIN == 0:
            self._summed.add(id(module))
        with _itself():
            for tensor in module._parameters.values():
                if tensor is not None and id(tensor) not in self._watched and not is_lazy(tensor):
                    self._watched[id(tensor)] = tensor, module, self._mark(tensor, module)

    def begin(self) -> None:
        """Begin the first evaluation: forget all earlier writes."""
        with _itself():
            for tensor, owner, _ in list(self._watched.values()):
                self._watched[id(tensor)] = tensor, owner, self._mark(tensor, owner)

    def mark(self) -> None:
        """End the first evaluation: find the modules that wrote parameters."""
        with _itself():
            changed = self._changed()
        _unmarked.update({id(owner): owner for owner, was, now in changed if was[:2] == now[:2]})
        writers = [owner for owner, _, _ in changed]
        writers += [owner for _, owner, _ in self._watched.values() if id(owner) in _unmarked]
        self.found = bool(writers)
        self._tell(writers)

    def keep(self) -> None:
        """Record the parameters at x after the first evaluation, for comparison by `look`."""
        self._at_rest = bool(self._summed) and not self.found
        if not self._at_rest:
            return
        tensors = [tensor for tensor, _, _ in self._watched.values()]
        with _itself():
            if sum(t.numel() * t.element_size() for t in tensors) <= _SMALL:
                self._copies = {id(t): t.detach().clone() for t in tensors}

    def look(self) -> None:
        """Check for writes after the probes, each of which has restored its own weight."""
        if self.found or not self._at_rest:
            return
        with _itself():
            writers = [owner for owner, was, now in self._changed() if was[2] != now[2]]
            for key, (tensor, _, _) in self._watched.items():
                if writers and key in self._copies:
                    tensor.copy_(self._copies[key])
        self._at_rest = False
        self._copies.clear()
        if writers:
            note_writers(writers)
            self._tell(writers)

    def _changed(self) -> list[tuple[nn.Module, Mark, Mark]]:
        """The owners of changed parameters, with the marks before and now."""
        watched = self._watched.values()
        marks = [(owner, mark, self._mark(tensor, owner)) for tensor, owner, mark in watched]
        return [(owner, was, now) for owner, was, now in marks if was != now]

    def _tell(self, writers: list[nn.Module]) -> None:
        if any(id(owner) not in _told for owner in writers):
            _told.update({id(owner): owner for owner in writers})
            warn(
                f"the forward writes into parameters of {type(writers[0]).__name__}; each probe "
                "therefore restores all parameters from copies, which takes time and memory",
                ClosureWarning,
            )

    def _mark(self, tensor: Tensor, owner: nn.Module) -> Mark:
        """A mark that changes if the tensor is written or its data assigned."""
        summed = _sums(tensor) if id(owner) in self._summed else ""
        return tensor._version, _address(tensor), summed

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Restore all parameters at the end, in the same memory."""
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


def note_writers(modules: Iterable[nn.Module]) -> None:
    """Remember modules whose forward writes their parameters without raising versions."""
    _unmarked.update({id(module): module for module in modules if module._parameters})


def _sums(tensor: Tensor) -> str:
    """The sums of the numbers and of their bits, computed in chunks to save memory."""
    if type(tensor) not in _PLAIN or tensor.is_meta or tensor.layout != torch.strided:
        return ""
    values = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    integers = _INTEGERS.get(values.element_size())
    if integers is None or values.dtype not in _FLOATS:
        return ""
    total, bits = 0.0, 0
    for part in torch.split(values.reshape(-1), _CHUNK):  # sums cast their operands
        total += part.sum(dtype=torch.float64).item()
        bits += int(part.view(integers).sum(dtype=torch.int64).item())
    return f"{total!r} {bits}"


def _address(tensor: Tensor) -> int:
    return tensor.data_ptr() if type(tensor) in _PLAIN else 0  # other types may have no address
