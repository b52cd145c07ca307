"""`method="cma"`: the package cma behind the same interface."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from blackboxes import bowl
from numpy.typing import NDArray

import cocd

pytest.importorskip("cma")


def rippled(x: NDArray[np.float64]) -> float:
    return float(10 * x.size + x @ x - 10 * np.cos(2 * np.pi * x).sum())


def test_starts_at_x0_and_stays_inside() -> None:
    seen = []

    def fun(x: NDArray[np.float64]) -> float:
        seen.append(x.copy())
        return bowl(x)

    box = [(0.5, 2.0)] * 4
    result = cocd.minimize(fun, np.ones(4), method="cma", bounds=box, maxfev=600, rng=1)
    assert np.array_equal(seen[0], np.ones(4)) and result.nfev == len(seen) <= 600
    assert np.min(seen) >= 0.5 and np.max(seen) <= 2.0
    assert result.fun == bowl(result.x) < 1.01 * bowl(np.full(4, 0.5))


def test_starts_again_where_it_ends() -> None:
    result = cocd.minimize(rippled, np.full(2, 3.2), method="cma", maxfev=8_000, rng=0)
    assert result.fun < 1e-6


def test_the_same_seed_gives_the_same_run() -> None:
    runs = [cocd.minimize(bowl, np.ones(3), method="cma", maxfev=90, rng=5) for _ in range(2)]
    assert runs[0].x.tobytes() == runs[1].x.tobytes()


def test_failed_evaluations_count_as_the_worst() -> None:
    result = cocd.minimize(
        lambda x: bowl(x) if x[0] > 0.5 else np.nan, np.ones(3), method="cma", maxfev=300, rng=0
    )
    assert result.nfailed and result.fun < bowl(np.ones(3))


def test_it_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no checkpoints"):
        cocd.minimize(bowl, np.ones(3), method="cma", maxfev=90, checkpoint=tmp_path / "c")
