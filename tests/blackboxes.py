"""Functions for worker processes, which import them from here."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BAD = 1.05  # a probe of the fourth coordinate beyond this goes wrong; x0 is all ones, eps 0.1


def bowl(x: Array) -> float:
    return float(((1 + np.arange(x.size)) * x.ravel() ** 2).sum())


_ticks = itertools.count()


def ticking(x: Array) -> float:
    """Another value each time."""
    return -float(next(_ticks))


def noted(x: Array, folder: str | Path) -> float:
    """Leaves the process's number behind."""
    Path(folder, str(os.getpid())).touch()
    return bowl(x)


def slow(x: Array, seconds: float, folder: str | Path | None = None) -> float:
    time.sleep(seconds)
    return bowl(x) if folder is None else noted(x, folder)


def raises(x: Array) -> float:
    if x[3] > BAD:
        raise RuntimeError("the mesh\nis bad")
    return bowl(x)


def exits(x: Array) -> float:
    if x[3] > BAD:
        os._exit(3)
    return bowl(x)


def killed(x: Array) -> float:
    if x[3] > BAD:
        os.kill(os.getpid(), signal.SIGKILL)
    return bowl(x)


def hangs(x: Array, folder: str | Path | None = None) -> float:
    if x[3] > BAD:
        if folder is not None:
            Path(folder, str(os.getpid())).touch()
        time.sleep(600)
    return bowl(x)


def nan(x: Array) -> float:
    return float("nan") if x[3] > BAD else bowl(x)


def shape(x: Array) -> Any:
    return x if x[3] > BAD else bowl(x)


def broken(x: Array) -> float:
    return bowl(x) if np.array_equal(x, np.ones(x.size)) else float("nan")


def slow_start(x: Array) -> float:
    if np.array_equal(x, np.ones(x.size)):
        time.sleep(0.5)  # the other worker fails at all its points meanwhile
    return broken(x)


def always_exits(x: Array) -> None:
    os._exit(1)


def always_hangs(x: Array) -> float:
    if not np.array_equal(x, np.ones(x.size)):
        time.sleep(600)
    return bowl(x)


def first_time_exits(x: Array, folder: str | Path) -> float:
    """Dies once for each point, and answers the second time."""
    mark = Path(folder, x.tobytes().hex()[:200])
    if x[3] > BAD and not mark.exists():
        mark.touch()
        os._exit(1)
    return bowl(x)


def columns(x: Array) -> Array:
    """Takes (n, k), gives (k,)."""
    found: Array = ((1 + np.arange(len(x)))[:, None] * x**2).sum(axis=0)
    return found


def columns_or_raise(x: Array) -> Array:
    if (x[3] > BAD).any():
        raise RuntimeError("one of them is bad")
    return columns(x)


def alive(folder: str | Path) -> list[int]:
    """Which of the processes that left their number are still there."""
    found = []
    for entry in Path(folder).iterdir():
        try:
            state = Path(f"/proc/{entry.name}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            continue
        if state != "Z":
            found.append(int(entry.name))
    return found


def mistaken(x: Array) -> Array:
    """A mistake that its author would like to see."""
    return {"a": 1}["b"] * x
