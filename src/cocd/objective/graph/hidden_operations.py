"""Operations invisible to Python: those of scripted, compiled and C++ functions."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..registry import Args, Function, Kwargs
from .graph import tensors_of


class HiddenOperations(TorchDispatchMode):
    """Detects operations on parameter-dependent tensors that bypass Python.

    It runs once for each new graph, because it intercepts every torch operation and is slow.
    """

    def __init__(
        self, aside: Callable[[], bool], depends: Callable[[list[Tensor]], bool],
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__()
        self._aside = aside  # are we inside a call recorded as a whole?
        self._depends = depends
        self._tell = tell

    def __torch_dispatch__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        """Torch calls this before each operation."""
        kwargs = kwargs or {}
        if not self._aside() and self._depends(tensors_of((*args, *kwargs.values()))):
            self._tell(f"{func} is called where Python cannot see it (scripted or compiled code?)")
        return func(*args, **kwargs)
