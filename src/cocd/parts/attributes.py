"""What the forward of a model leaves on its modules, beside buffers: attributes and containers.

Each evaluation of a step starts from what stood there before it, and the step leaves what its
first evaluation left. That is looked at once per step; nothing more is done where nothing was left.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

T = TypeVar("T")
Generator = torch.Generator | np.random.Generator | random.Random

_INTERNAL = frozenset(vars(nn.Module())) - {"training"}  # parameters, buffers, hooks and the like
_PLAIN = frozenset(
    {int, float, bool, str, bytes, complex, type(None), type, torch.dtype, torch.device}
)
_DEPTH = 4  # of containers in containers


class Attributes:
    """The attributes of some modules at one moment, and what became of them."""

    def __init__(self) -> None:
        self._before: list[_Kept[Any]] = []
        self._after: list[_Kept[Any]] = []  # of those that the first evaluation changed
        self._seen: dict[int, object] = {}

    def watch(self, module: nn.Module) -> None:
        """Note what stands on a module now."""
        kept = _Names(vars(module), _INTERNAL)
        self._before.append(kept)
        self._note(kept.parts(), _DEPTH)

    def _note(self, values: Iterable[object], depth: int) -> None:
        for value in values:
            if type(value) in _PLAIN or id(value) in self._seen:
                continue
            try:
                kept = _kept(value)
            except Exception:  # what cannot be copied cannot be put back
                continue
            if kept is not None:
                self._seen[id(value)] = value
                self._before.append(kept)
                if depth:
                    self._note(kept.parts(), depth - 1)

    @property
    def changed(self) -> bool:
        """Did the first evaluation change anything?"""
        return bool(self._after)

    def mark(self) -> None:
        """The first evaluation is over."""
        self._before = [kept for kept in self._before if kept.differs()]
        self._after = [kept.again() for kept in self._before]

    def rewind(self) -> None:
        """As before the first evaluation."""
        for kept in self._before:
            if kept.differs():
                kept.put()

    def finish(self) -> None:
        """As after the first evaluation."""
        for kept in self._after:
            if kept.differs():
                kept.put()


class _Kept(ABC, Generic[T]):
    """What an object held at one moment."""

    def __init__(self, of: T) -> None:
        self._of = of

    def again(self) -> _Kept[T]:
        """What it holds now."""
        return type(self)(self._of)

    def parts(self) -> Iterable[object]:
        """What is in it, and may change in itself."""
        return ()

    @abstractmethod
    def differs(self) -> bool:
        """Does it hold something else now?"""

    @abstractmethod
    def put(self) -> None:
        """Make it hold that again."""


class _Names(_Kept[dict[str, object]]):
    """The attributes of an object, as the dictionary that holds them."""

    def __init__(self, of: dict[str, object], without: frozenset[str] = frozenset()) -> None:
        self._of, self._without = of, without
        self._held = {name: value for name, value in of.items() if name not in without}

    def again(self) -> _Kept[dict[str, object]]:
        return _Names(self._of, self._without)

    def parts(self) -> Iterable[object]:
        return self._held.values()

    def differs(self) -> bool:
        held, found = self._held, 0
        for name, value in self._of.items():
            if name not in self._without:
                if name not in held or held[name] is not value:
                    return True
                found += 1
        return found != len(held)

    def put(self) -> None:
        for name in [n for n in self._of if n not in self._without and n not in self._held]:
            del self._of[name]
        self._of.update(self._held)


class _Items(_Kept[list[object] | deque[object] | set[object]]):
    """A list, a deque or a set."""

    def __init__(self, of: list[object] | deque[object] | set[object]) -> None:
        self._of, self._held = of, list(of)

    def parts(self) -> Iterable[object]:
        return self._held

    def differs(self) -> bool:
        return len(self._of) != len(self._held) or any(
            a is not b for a, b in zip(self._of, self._held, strict=True)
        )

    def put(self) -> None:
        self._of.clear()
        (self._of.update if isinstance(self._of, set) else self._of.extend)(self._held)


class _Fixed(_Kept[tuple[object, ...]]):
    """A tuple: only what is in it can change."""

    def parts(self) -> Iterable[object]:
        return self._of

    def differs(self) -> bool:
        return False

    def put(self) -> None:
        """Nothing can have changed."""


class _Numbers(_Kept[Tensor]):
    """A tensor that is no buffer."""

    def __init__(self, of: Tensor) -> None:
        self._of, self._held, self._version = of, of.detach().clone(), of._version

    def differs(self) -> bool:
        # What is written through `.data` or NumPy does not count as a version.
        return bool(self._of._version != self._version) or not torch.equal(self._of, self._held)

    def put(self) -> None:
        self._of.detach().copy_(self._held)
        self._version = self._of._version


class _Array(_Kept[NDArray[Any]]):
    """An array of NumPy."""

    def __init__(self, of: NDArray[Any]) -> None:
        self._of, self._held = of, of.copy()

    def differs(self) -> bool:
        return not np.array_equal(self._of, self._held)

    def put(self) -> None:
        self._of[...] = self._held


class _State(_Kept[Generator]):
    """A generator of random numbers."""

    def __init__(self, of: Generator) -> None:
        self._of, self._held = of, self._get(of)

    @staticmethod
    def _get(of: Generator) -> Any:
        if isinstance(of, torch.Generator):
            return of.get_state().numpy().tobytes()
        return of.bit_generator.state if isinstance(of, np.random.Generator) else of.getstate()

    def differs(self) -> bool:
        return bool(self._get(self._of) != self._held)

    def put(self) -> None:
        if isinstance(self._of, torch.Generator):
            state = np.frombuffer(self._held, np.uint8).copy()
            self._of.set_state(torch.from_numpy(state))
        elif isinstance(self._of, np.random.Generator):
            self._of.bit_generator.state = self._held
        else:
            self._of.setstate(self._held)


def _kept(value: object) -> _Kept[Any] | None:
    """What an object holds, where that is something that can be put back."""
    if isinstance(value, (nn.Module, nn.Parameter)):
        return None
    if isinstance(value, Tensor):
        odd = value.is_inference() or torch._C._functorch.is_functorch_wrapped_tensor(value)
        return None if odd else _Numbers(value)
    if isinstance(value, dict):
        return _Names(value)
    if isinstance(value, tuple):
        return _Fixed(value)
    if isinstance(value, (list, deque, set)):
        return _Items(value)
    if isinstance(value, np.ndarray):
        return _Array(value) if value.flags.writeable and value.dtype != object else None
    if isinstance(value, (torch.Generator, np.random.Generator, random.Random)):
        return _State(value)
    theirs = not type(value).__module__.startswith(("torch.", "numpy.", "builtins", "functools"))
    return (
        _Names(vars(value))
        if theirs and hasattr(value, "__dict__") and not callable(value)
        else None
    )
