from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gradients import gradients


@pytest.fixture(scope="module")
def rows() -> Any:
    return {row["method"]: row for row in gradients(sizes=(20,), points=30)}


def test_finite_differences_take_n_plus_one_calls_and_are_exact(rows: Any) -> None:
    row = rows["finite differences"]
    assert row["calls"] == 21
    assert row["error"] < 1e-3


@pytest.mark.parametrize("basis", ["identity", "hadamard", "rotation"])
def test_wasp_follows_a_slow_walk_at_a_fraction_of_the_calls(rows: Any, basis: str) -> None:
    row = rows[f"WASP, {basis}, tolerance 1.3"]
    assert row["calls"] < 6
    assert row["error"] < 0.2


def test_random_directions_are_far_off_at_as_many_calls(rows: Any) -> None:
    assert rows["SPSA, as many calls"]["error"] > 1
