"""One method, trained and scored: a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import cocd

from . import task
from .methods import Method
from .task import Task

POINTS = 40  # of the test curve

Closure = Callable[[], Any]
Report = Callable[["Point"], None]


@dataclass(frozen=True)
class Point:
    """Where a run stands. Seconds are of training alone, without the scoring."""

    step: int
    evaluations: int
    seconds: float
    loss: float
    test_loss: float
    test_accuracy: float


@dataclass(frozen=True)
class Row:
    """What one method gave; `diverged_at` is the step that could not be taken, if there was one."""

    method: str
    settings: dict[str, float]
    first_order: bool
    steps: int
    evaluations: int
    seconds: float
    test_loss: float
    test_accuracy: float
    diverged_at: int | None
    curve: list[Point]


def train(method: Method, data: Task, steps: int, seed: int, report: Report) -> Row:
    """Take `steps` steps, or as many as there are before the loss is no longer finite."""
    model = task.network(seed)
    optimizer = method.optimizer(model.parameters(), **method.settings)
    loss_on = task.objective(model)
    batches = task.batches(data.train, seed)
    scored_at = {round(k * steps / POINTS) for k in range(1, POINTS + 1)}

    curve = [Point(0, 0, 0.0, math.nan, *task.score(model, data.test))]
    seconds, diverged = 0.0, False
    for step in range(1, steps + 1):
        closure: Closure = loss_on(*next(batches))
        if method.first_order:
            closure = _with_gradient(optimizer, closure)
        began = perf_counter()
        loss = _step(optimizer, closure)
        seconds += perf_counter() - began
        diverged = not math.isfinite(loss)
        scored = step in scored_at or diverged
        last = curve[-1]
        scores = task.score(model, data.test) if scored else (last.test_loss, last.test_accuracy)
        evaluations = step if method.first_order else optimizer.evaluations
        point = Point(step, evaluations, seconds, loss, *scores)
        report(point)
        if scored:
            curve.append(point)
        if diverged:
            break

    end = curve[-1]
    return Row(
        method=method.name,
        settings=method.settings,
        first_order=method.first_order,
        steps=end.step,
        evaluations=end.evaluations,
        seconds=end.seconds,
        test_loss=end.test_loss,
        test_accuracy=end.test_accuracy,
        diverged_at=end.step if diverged else None,
        curve=curve,
    )


def _step(optimizer: Any, closure: Closure) -> float:
    """One step; NaN if it could not be taken. A method that diverges is a result, not an error."""
    try:
        return float(optimizer.step(closure))
    except cocd.NonFiniteLoss:
        return math.nan


def _with_gradient(optimizer: Any, closure: Closure) -> Closure:
    def evaluate() -> Any:
        optimizer.zero_grad()
        loss = closure()
        loss.backward()
        return loss.detach()

    return evaluate
