"""Attributes and containers of modules that a forward changes, apart from buffers.

Each evaluation of a step starts from the state before the step, and the step leaves the state after
its first evaluation. One check per step finds the changes; unchanged modules cost nothing more.
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
    """The attributes of some modules before and after the first evaluation of a step."""

    def __init__(self) -> None:
        self._before: list[_Kept[Any]] = []
        self._after: list[_Kept[Any]] = []  # of those that the first evaluation changed
        self._seen: dict[int, object] = {}

    def watch(self, module: nn.Module) -> None:
        """Record the current attributes of a module."""
        kept = _Names(vars(module), _INTERNAL)
        self._before.append(kept)
        self._note(kept.parts(), _DEPTH)

    def _note(self, values: Iterable[object], depth: int) -> None:
        for value in values:
            if type(value) in _PLAIN or id(value) in self._seen:
                continue
            try:
                kept = _kept(value)
            except Exception:  # what cannot be copied cannot be restored
                continue
            if kept is not None:
                self._seen[id(value)] = value
                self._before.append(kept)
                if depth:
                    self._note(kept.parts(), depth - 1)

    @property
    def changed(self) -> bool:
        """Whether the first evaluation changed anything."""
        return bool(self._after)

    def mark(self) -> None:
        """Record the changes of the first evaluation."""
        self._before = [kept for kept in self._before if kept.differs()]
        self._after = [kept.again() for kept in self._before]

    def rewind(self) -> None:
        """Restore the state before the first evaluation."""
        for kept in self._before:
            if kept.differs():
                kept.put()

    def finish(self) -> None:
        """Restore the state after the first evaluation."""
        for kept in self._after:
            if kept.differs():
                kept.put()


class _Kept(ABC, Generic[T]):
    """The contents of an object at one moment."""

    def __init__(self, of: T) -> None:
        self._of = of

    def again(self) -> _Kept[T]:
        """A record of the current contents."""
        return type(self)(self._of)

    def parts(self) -> Iterable[object]:
        """The contained objects, which may change themselves."""
        return ()

    @abstractmethod
    def differs(self) -> bool:
        """Whether the contents have changed."""

    @abstractmethod
    def put(self) -> None:
        """Restore the recorded contents."""


class _Names(_Kept[dict[str, object]]):
    """A dictionary, or the attributes of an object."""

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
    """A tuple: only the contained objects can change."""

    def parts(self) -> Iterable[object]:
        return self._of

    def differs(self) -> bool:
        return False

    def put(self) -> None:
        """Do nothing: a tuple cannot change."""


class _Numbers(_Kept[Tensor]):
    """A tensor that is not a buffer."""

    def __init__(self, of: Tensor) -> None:
        self._of, self._held, self._version = of, of.detach().clone(), of._version

    def differs(self) -> bool:
        # Writes through `.data` or NumPy do not raise the version.
        return bool(self._of._version != self._version) or not torch.equal(self._of, self._held)

    def put(self) -> None:
        self._of.detach().copy_(self._held)
        self._version = self._of._version


class _Array(_Kept[NDArray[Any]]):
    """A NumPy array."""

    def __init__(self, of: NDArray[Any]) -> None:
        self._of, self._held = of, of.copy()

    def differs(self) -> bool:
        return not np.array_equal(self._of, self._held)

    def put(self) -> None:
        self._of[...] = self._held


class _State(_Kept[Generator]):
    """A random number generator."""

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
    """Record the contents of an object, or return None if they cannot be restored."""
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
