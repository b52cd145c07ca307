"""NaN and infinite losses: not stored, counted, said once; at x_t itself they raise."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from helpers import Raising, frozen, world
from torch import Tensor

import cocd


def line(*slopes: float, dtype: torch.dtype = torch.float64) -> Any:
    x = torch.ones(len(slopes), dtype=dtype, requires_grad=True)
    return x, lambda: x.double() @ torch.tensor(slopes, dtype=torch.float64)


BAD = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("at", [2, 3])
def test_bad_probe_keeps_the_decayed_old_estimate(at: int, bad: float) -> None:
    x, loss = line(1.0, 2.0)
    optimizer = cocd.CoCD([x], lr=0.0, decay=0.5, compute_budget=2)
    optimizer.step(loss)
    with pytest.warns(cocd.NonFiniteWarning, match="1 of 2 probes"):
        optimizer.step(Raising(loss, at, lambda: torch.tensor(bad)))
    assert optimizer.estimate().tolist() == pytest.approx([0.5, 2.0])
    assert (optimizer.skipped, optimizer.evaluations) == (1, 10)


@pytest.mark.parametrize("memory_budget", [1, 2])
def test_bad_probe_in_a_short_memory_leaves_nothing(memory_budget: int) -> None:
    x, loss = line(1.0, 2.0, 3.0)
    optimizer = cocd.CoCD([x], lr=0.5, decay=0.5, memory_budget=memory_budget, compute_budget=1)
    optimizer.step(loss)
    with pytest.warns(cocd.NonFiniteWarning):
        optimizer.step(Raising(loss, 2, lambda: math.nan))
    kept = [0.5, 0, 0] if memory_budget == 2 else [0, 0, 0]
    assert optimizer.estimate().tolist() == pytest.approx(kept)
    optimizer.step(loss)  # the slot of the bad one is used as if it had been good
    assert optimizer.estimate().tolist() == pytest.approx([0, 0, 3.0])


@pytest.mark.parametrize("difference", ["central", "forward", "backward"])
def test_no_nan_enters_memory_or_weights(difference: str) -> None:
    x = torch.zeros(5, dtype=torch.float64, requires_grad=True)

    def loss() -> Tensor:  # the logarithm of a negative number is NaN
        return x.sum() - torch.log(0.5 - x[2]) - torch.log(0.5 + x[3])

    optimizer = cocd.CoCD([x], lr=0.01, eps=1.0, compute_budget=2, difference=difference)
    with pytest.warns(cocd.NonFiniteWarning):
        for _ in range(20):
            optimizer.step(loss)
            assert x.isfinite().all() and optimizer.estimate().isfinite().all()
    assert optimizer.skipped > 4


def test_the_warning_is_given_once_and_counting_goes_on() -> None:
    x, loss = line(1.0, 2.0)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            optimizer.step(Raising(loss, 2, lambda: math.nan))
    assert [w.category for w in caught] == [cocd.NonFiniteWarning]
    assert caught[0].filename == __file__
    assert optimizer.skipped == 3


@pytest.mark.parametrize("bad", BAD)
def test_raise_mode_raises_with_nothing_changed(bad: float) -> None:
    x, loss = line(1.0, 2.0)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=2, nonfinite="raise")
    optimizer.step(loss)
    before = world(optimizer)
    with pytest.raises(cocd.NonFiniteLoss, match="1 of 2 probes"):
        optimizer.step(Raising(loss, 4, lambda: bad))
    assert world(optimizer) == before
    assert (optimizer.evaluations, optimizer.skipped) == (10, 0)


@pytest.mark.parametrize("nonfinite", ["skip", "raise"])
@pytest.mark.parametrize("bad", BAD)
def test_bad_loss_at_x_t_always_raises_with_nothing_changed(bad: float, nonfinite: str) -> None:
    x, loss = line(1.0, 2.0)
    optimizer = cocd.CoCD([x], lr=0.1, weight_decay=0.1, nonfinite=nonfinite, compute_budget=1)
    optimizer.step(loss)
    before = world(optimizer)
    with pytest.raises(cocd.NonFiniteLoss, match=str(bad)):
        optimizer.step(lambda: loss() * bad)
    assert world(optimizer) == before
    assert optimizer.evaluations == 4  # the three of the first step and that one


@pytest.mark.parametrize(
    ("dtype", "huge"),
    [(torch.float32, 1e38), (torch.bfloat16, 1e38), (torch.float16, 1e38), (torch.float64, 1e308)],
    ids=str,
)
def test_quotient_that_overflows_is_not_stored(dtype: torch.dtype, huge: float) -> None:
    x = torch.ones(2, dtype=dtype, requires_grad=True)
    optimizer = cocd.CoCD([x], lr=0.0, eps=0.1, compute_budget=2)
    with pytest.warns(cocd.NonFiniteWarning):
        optimizer.step(lambda: huge * (x[0].double() - 1).sign() + 2 * x[1].double())
    assert optimizer.estimate()[0].item() == 0.0
    assert optimizer.estimate()[1].isfinite()
    assert optimizer.skipped == 1


def test_difference_that_overflows_is_not_stored() -> None:
    x, _ = line(1.0)
    optimizer = cocd.CoCD([x], lr=0.1, eps=1.0, compute_budget=1)
    with pytest.warns(cocd.NonFiniteWarning):
        optimizer.step(lambda: 1.7e308 * (x[0] - 1).sign())
    assert optimizer.estimate().tolist() == [0.0]
    assert x.tolist() == [1.0]


def test_a_warning_made_an_error_leaves_the_step_undone() -> None:
    x, loss = line(1.0, 2.0)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=2)
    before = world(optimizer)
    with pytest.raises(cocd.NonFiniteWarning):
        optimizer.step(Raising(loss, 2, lambda: math.nan))
    assert world(optimizer) == before


# --- a radius that is lost in rounding ---------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "eps"),
    [(torch.float16, 1e-4), (torch.bfloat16, 1e-3), (torch.float32, 1e-8), (torch.float64, 1e-17)],
    ids=str,
)
def test_eps_lost_in_rounding_warns(dtype: torch.dtype, eps: float) -> None:
    x, loss = line(1.0, 2.0, dtype=dtype)
    before = frozen(x)
    optimizer = cocd.CoCD([x], lr=0.1, eps=eps, compute_budget=2)
    with pytest.warns(cocd.RadiusWarning, match="at 2 of 2 weights"):
        optimizer.step(loss)
    assert frozen(x) == before
    assert optimizer.estimate().tolist() == [0.0, 0.0]


def test_eps_lost_on_the_side_that_is_used_warns() -> None:
    # Next to 1 the float32 numbers lie twice as dense below as above.
    for difference, lost in [("forward", True), ("backward", False), ("central", False)]:
        x, loss = line(1.0, dtype=torch.float32)
        optimizer = cocd.CoCD([x], lr=0.1, eps=4e-8, difference=difference, compute_budget=1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.step(loss)
        assert all(w.filename == __file__ for w in caught)
        assert [w.category for w in caught] == [cocd.RadiusWarning] * lost
        assert bool(optimizer.estimate().item() == 0.0) is lost
