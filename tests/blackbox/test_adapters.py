"""`AskTell` behind the interfaces of other packages, driven by these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from blackboxes import bowl

import cocd


def drive(optimizer: cocd.Nevergrad, fun: Callable[..., float]) -> Any:
    """As nevergrad's users do, with any of its optimizers."""
    for _ in range(optimizer.budget):
        candidate = optimizer.ask()
        optimizer.tell(candidate, fun(*candidate.args, **candidate.kwargs))
    return optimizer.provide_recommendation().value


def test_the_same_loop_drives_nevergrad_and_cocd() -> None:
    ng = pytest.importorskip("nevergrad")
    theirs = ng.optimizers.OnePlusOne(parametrization=ng.p.Array(init=np.ones(4)), budget=90)
    ours = cocd.Nevergrad(np.ones(4), budget=90, rng=0)
    assert drive(theirs, bowl) is not None
    ours.budget = 80  # what is kept for the last look need not be asked for
    assert bowl(drive(ours, bowl)) < 1e-3


def test_minimize_is_the_search() -> None:
    there = cocd.minimize(bowl, np.ones((2, 2)), maxfev=200, rng=0)
    here = cocd.Nevergrad(np.ones((2, 2)), budget=200, rng=0).minimize(bowl)
    assert here.value.tobytes() == there.x.tobytes() and here.value.shape == (2, 2)


def test_no_more_points_than_a_batch_has() -> None:
    optimizer = cocd.Nevergrad(np.ones(2), budget=50, rng=0)
    with pytest.raises(RuntimeError, match="tell"):
        for _ in range(50):
            optimizer.ask()


@pytest.fixture
def study() -> Any:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = cocd.optuna_sampler({"a": (-2.0, 3.0), "b": (-1.0, 4.0)}, maxfev=300, rng=0)
    return optuna.create_study(sampler=sampler)


def objective(trial: Any) -> Any:
    a, b = trial.suggest_float("a", -2, 3), trial.suggest_float("b", -1, 4)
    return (a - 1) ** 2 + 10 * (b - a) ** 2


def test_optuna_minimises_with_the_sampler(study: Any) -> None:
    study.optimize(objective, n_trials=80)
    assert study.best_value < 1e-6


def test_optuna_may_prune_and_ask_for_more(study: Any) -> None:
    import optuna

    def moody(trial: Any) -> Any:
        value = objective(trial) + trial.suggest_float("other", 0, 0.1)
        if trial.number % 7 == 6:
            raise optuna.TrialPruned
        return value

    study.optimize(moody, n_trials=60)
    assert len(study.trials) == 60 and study.best_value < 1
