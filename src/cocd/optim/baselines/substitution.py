"""`Substitution`: torch functions see other values in a parameter's place; the parameter stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...objective.registry import Args, Function, Kwargs

# They read what the substitute shares with the parameter, or who the parameter is.
_SHARED = frozenset(
    getattr(Tensor, name)
    for name in (
        "__hash__",
        "__len__",
        "dim",
        "element_size",
        "is_complex",
        "is_contiguous",
        "is_floating_point",
        "ndimension",
        "nelement",
        "numel",
        "size",
        "storage_offset",
        "stride",
    )
) | {torch.is_complex, torch.is_floating_point, torch.numel}


class Substitution(TorchFunctionMode):
    """While entered, every torch function of this thread gets ``substitute(p)`` in place of p.

    So p is neither changed nor restored. A substitute lives while the functions that read it run,
    and a little longer: the newest ones are kept for those who ask again (tied weights, cells of
    recurrent networks), up to 5/4 of the largest.

    `seen` collects the ids of the parameters that were read. What hides its reads from torch's
    Python functions (scripted modules, extensions, views made before) is not substituted.
    """

    def __init__(self, tensors: list[Tensor], substitute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.seen: set[int] = set()
        self._tensors = {id(tensor): tensor for tensor in tensors}
        self._substitute = substitute
        self._limit = max((t.nbytes for t in tensors), default=0) * 5 // 4
        self._kept: dict[int, Tensor] = {}  # oldest first

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        """Call `func` with substitutes."""
        kwargs = kwargs or {}
        if func in _SHARED:
            return func(*args, **kwargs)
        if getattr(func, "__name__", "") == "__get__":  # an attribute: its value, if it is a tensor
            found = func(*args, **kwargs)
            if not isinstance(found, Tensor):
                return found
        new = self._exchange(args)
        return func(*new, **{name: self._exchange(value) for name, value in kwargs.items()})

    def _exchange(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._of(value) if id(value) in self._tensors else value
        if type(value) in (tuple, list) and any(self._concerns(entry) for entry in value):
            return type(value)(self._exchange(entry) for entry in value)
        return value

    def _concerns(self, entry: object) -> bool:
        return id(entry) in self._tensors or type(entry) in (tuple, list)

    def _of(self, tensor: Tensor) -> Tensor:
        key = id(tensor)
        self.seen.add(key)
        if key not in self._kept:
            held = sum(kept.nbytes for kept in self._kept.values())
            while self._kept and held + tensor.nbytes > self._limit:
                held -= self._kept.pop(next(iter(self._kept))).nbytes
            self._kept[key] = self._substitute(tensor)
        return self._kept[key]

    def __exit__(self, *exception: object) -> None:
        """Leave; nothing is kept."""
        self._kept.clear()
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
