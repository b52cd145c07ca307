"""The peak number of bytes in a computation's tensors."""

from __future__ import annotations

import weakref

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .registry import Args, Function, Kwargs


class PeakMemory(TorchDispatchMode):
    """While entered, counts the bytes of live new tensors; `peak` is their maximum.

    >>> import torch
    >>> with PeakMemory() as held:
    ...     x = torch.zeros(1000)
    ...     y = (x + 1).sum()
    >>> held.peak // 1000
    8
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._now = 0
        self._users: dict[int, int] = {}  # of each storage: tensors that share it

    def __torch_dispatch__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        """Run an operation, and count what it made."""
        old = {_storage(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._meet(tensor, old)
        return out

    def _meet(self, tensor: Tensor, old: set[int]) -> None:
        key = _storage(tensor)
        if key not in self._users:
            if key in old:
                return  # a view of something that was there before
            self._users[key] = 0
            self._now += tensor.untyped_storage().nbytes()
            self.peak = max(self.peak, self._now)
        self._users[key] += 1
        weakref.finalize(tensor, self._part, key, tensor.untyped_storage().nbytes()).atexit = False

    def _part(self, key: int, size: int) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self._now -= size


def storage_bytes(structure: object) -> int:
    """The bytes behind the tensors of a structure, each once, but for parameters."""
    tensors = [x for x in tree_leaves(structure) if type(x) is Tensor]
    return sum({_storage(x): x.untyped_storage().nbytes() for x in tensors}.values())


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
