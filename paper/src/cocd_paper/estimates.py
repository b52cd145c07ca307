"""How far an estimate lies from the finite-difference gradient, beside the theorem's bound."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

from cocd import theory
from cocd.diagnostics import Coherence, Error

from .data import Splits
from .runs import Run
from .training import Training


def measure(run: Run, splits: Splits, go_on: Callable[[], None]) -> dict[str, Any]:
    """Train for `epochs` times `steps_per_epoch` steps and look at the last step of each epoch.

    The first sweep comes before: the theorem is about a buffer that holds all estimates. `L` is
    the largest quotient that the run showed, a lower bound of the true constant.
    """
    training = Training(run, splits)
    fixed = run.group == "fixed batch"
    n, budget = training.parameters, int(run.options["compute_budget"])
    tracker = Coherence(training.optimizer)
    batch = training.batches.next() if fixed else None

    def step() -> Any:
        x, y = batch or training.batches.next()
        assert training.objective is not None
        closure = training.objective(x, y)
        training.optimizer.step(closure)
        go_on()
        return closure

    for _ in range(-(-n // budget)):
        step()
    samples: list[Error] = []
    for _ in range(run.epochs):
        for _ in range(run.steps_per_epoch - 1):
            step()
        samples.append(tracker.error(step(), L=0.0))
    smoothness = float(tracker.summary()["smoothness"] or 0.0)
    return {
        "n": n,
        "compute_budget": budget,
        **_numbers(samples, n, budget, smoothness, fixed),
        "gradient": fmean(sample.gradient for sample in samples),
        "L_eps": smoothness,
        "delta": fmean(sample.delta for sample in samples),
        "samples": len(samples),
        "evaluations": int(training.optimizer.evaluations) + tracker.evaluations,
    }


def _numbers(samples: list[Error], n: int, budget: int, L: float, fixed: bool) -> dict[str, float]:
    """Where batches change the theorem says nothing, and the error goes by another name."""
    errors = [sample.measured for sample in samples]
    if not fixed:
        return {"minibatch_error": fmean(errors), "worst_minibatch_error": max(errors)}
    bounds = [theory.error_bound(n, budget, L, sample.delta) for sample in samples]
    sharper = [theory.euclidean_error_bound(n, budget, L, sample.delta) for sample in samples]
    return {
        "error": fmean(errors),
        "worst_error": max(errors),
        "bound": fmean(bounds),
        "euclidean_bound": fmean(sharper),
    }
