"""Fused numba loops (``cocd[fast]``) for the corrections that take most of the time.

Plain tensor operations pass over the stacked activations once per operation. These loops read the
small change and the cached activations and write only the result. They use numba, not a C++
extension, because numba needs no compiler on the user's machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ...errors import EngineWarning
from ...parts.warn import warn

Indices = NDArray[np.intp]

_state = {"on": os.environ.get("COCD_ACCELERATOR", "1") != "0", "used": False}

_off = ContextVar("off", default=False)  # set while a thread is inside `disabled`

_TYPES = (torch.float32, torch.float64)

_WORTH_THREADS = 200_000  # elementary operations: about 0.1 ms on one core

NONE, TANH, RELU, SILU = 0, 1, 2, 3  # the activation at the end of a loop


@lru_cache(maxsize=1)
def available() -> bool:
    """Is numba installed and working?"""
    if find_spec("numba") is None:
        return False
    try:
        import numba

        from . import conv_batch_last_loops as batch_last_loops  # noqa: F401

        why = "NUMBA_DISABLE_JIT is set" if getattr(numba.config, "DISABLE_JIT", 0) else ""
    except Exception as error:  # a broken installation may raise anything
        why = f"{type(error).__name__}: {error}"
    if why:
        warn(
            f"numba is installed but cannot be used ({why}); plain tensor operations replace "
            "it: the same numbers, but slower",
            EngineWarning,
        )
    return not why


def _after_fork() -> None:
    """Turn the loops off in a forked child whose parent used them: calling them would crash it."""
    _state["on"] = _state["on"] and not _state["used"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def enabled() -> bool:
    """Are the fused loops turned on?"""
    return _state["on"] and not _off.get() and available()


@contextmanager
def disabled() -> Iterator[None]:
    """Use only plain tensor operations in this thread."""
    before = _off.set(True)
    try:
        yield
    finally:
        _off.reset(before)


def suits(*tensors: Tensor) -> bool:
    """Can the loops read these tensors?"""
    first = tensors[0].dtype
    return first in _TYPES and all(t.dtype is first and t.is_cpu for t in tensors)


def _loops(work: int) -> ModuleType:
    """The compiled loops, with as many threads as `work` elementary operations justify."""
    _set_threads(work)
    from . import loops as _loops

    return _loops


def batch_last(work: int) -> ModuleType:
    """The compiled loops for arrays with the samples last, with threads as in `_loops`."""
    _set_threads(work)
    from . import conv_batch_last_loops as batch_last_loops

    return batch_last_loops


def _set_threads(work: int) -> None:
    import numba

    _state["used"] = True

    # Use no more threads than torch, so that a run with a fixed number is reproducible, and one
    # thread for work that ends before a second has woken up.
    limit = int(getattr(numba.config, "NUMBA_NUM_THREADS", 1))
    torchs = torch.get_num_threads()
    numba.set_num_threads(min(torchs, limit) if work > _WORTH_THREADS else 1)
    if torch.get_num_threads() != torchs:  # numba's start changed the OpenMP they share
        torch.set_num_threads(torchs)


def move_units(
    x: Tensor, base: Tensor, before: Tensor, units: Indices, features: Indices, steps: Tensor,
    act: int, out: Tensor,
) -> None:  # fmt: skip
    """Changes of the units of a linear layer whose weights move: see `loops.move_units`."""
    _loops(out.numel()).move_units(
        x.numpy(), base.numpy(), before.numpy(), units, features, steps.numpy(), act, out.numpy()
    )


def _each(starts: tuple[int, ...], change: Tensor) -> Indices:
    return np.array(starts if len(starts) > 1 else starts * len(change))


def rank_one(
    base: Tensor, change: Tensor, columns: Tensor, starts: tuple[int, ...], act: int, out: Tensor
) -> None:
    """Correction for a changed unit, then the activation: see `loops.rank_one`."""
    _loops(out.numel()).rank_one(
        base.numpy(), change.numpy(), columns.numpy(), _each(starts, change), act, out.numpy()
    )


def activate(x: Tensor, act: int, out: Tensor) -> None:
    """Apply only the activation to a contiguous tensor."""
    _loops(x.numel()).activate(x.view(-1).numpy(), act, out.view(-1).numpy())


def correct_and_pool(
    delta: Tensor, filters: Tensor, base: Tensor, geometry: tuple[int, ...], act: int, out: Tensor
) -> None:
    """Correction for a changed input channel, max-pooled: see `loops.correct_and_pool`."""
    _loops(out.numel() * filters.shape[0]).correct_and_pool(
        delta.numpy(), filters.numpy(), base.numpy(), geometry, act, out.numpy()
    )


def move_and_pool(
    x: Tensor, base: Tensor, where: Tensor, steps: Tensor, geometry: tuple[int, ...], act: int,
    out: Tensor,
) -> None:  # fmt: skip
    """Effect of a moved filter element, max-pooled: see `loops.move_and_pool`."""
    _loops(out.numel() * 4).move_and_pool(
        x.numpy(), base.numpy(), where.numpy(), steps.numpy(), geometry, act, out.numpy()
    )


def rank_one_through(
    base: Tensor, change: Tensor, columns: Tensor, starts: tuple[int, ...], act: int,
    before: Tensor, weight: Tensor, out: Tensor,
) -> None:  # fmt: skip
    """`rank_one`, then the small linear layer behind it: see `loops.rank_one_through`."""
    _loops(len(change) * base.numel()).rank_one_through(
        base.numpy(), change.numpy(), columns.numpy(), _each(starts, change), act, before.numpy(),
        weight.numpy(), out.numpy(),
    )  # fmt: skip


def padded(tensor: Tensor) -> Tensor:
    """Pad the last dimension with zeros to a multiple of 32, so that loops use full vectors."""
    missing = -tensor.shape[-1] % 32
    return F.pad(tensor, (0, missing)) if missing else tensor.contiguous()


def activate_through(x: Tensor, act: int, before: Tensor, weight: Tensor, out: Tensor) -> None:
    """`activate`, then the small linear layer behind it: see `loops.activate_through`."""
    _loops(x.numel()).activate_through(x.numpy(), act, before.numpy(), weight.numpy(), out.numpy())


def squared(difference: Tensor, residual: Tensor) -> Tensor:
    """Sum d (d + 2 r) over all but the first dimension, in float64."""
    totals = torch.empty(len(difference), dtype=torch.float64, device="cpu")
    _loops(difference.numel()).squared(
        difference.reshape(len(difference), -1).numpy(), residual.reshape(-1).numpy(),
        totals.numpy(),
    )  # fmt: skip
    return totals


def cross_entropy(difference: Tensor, base: Tensor, labels: Tensor) -> Tensor:
    """Changes of the summed cross-entropy, float64: difference (K, N, classes), base (N, classes).

    See `loops.cross_entropy`, which takes the samples last.
    """
    totals = torch.empty(len(difference), dtype=torch.float64, device="cpu")
    _loops(8 * difference.numel()).cross_entropy(
        difference.mT.contiguous().numpy(), base.T.contiguous().numpy(),
        base.softmax(1).T.contiguous().numpy(), base.double().logsumexp(1).numpy(),
        labels.numpy(), totals.numpy(),
    )  # fmt: skip
    return totals
