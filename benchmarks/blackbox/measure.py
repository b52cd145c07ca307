"""Runs as rows: a row for each problem, method and budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any

import numpy as np

from ..report import environment
from .counted import Counted, Mark, Spent
from .peers import METHODS, alone
from .problems import Box, Problem, opened

Row = dict[str, Any]
Key = tuple[Any, ...]
_SAMPLE = 200  # evaluations of the run that an estimate of its time is made from


@dataclass(frozen=True)
class Run:
    """One method on one problem, at all budgets: looked at on the way to the largest."""

    problem: Problem
    method: str
    budgets: tuple[int, ...]  # evaluations for each coordinate
    seed: int = 0

    @property
    def maxfev(self) -> int:
        """Evaluations of the whole run."""
        return max(self.budgets) * self.problem.dimension

    @property
    def keys(self) -> list[Key]:
        """What the run's rows are known by."""
        return [
            (*asdict(self.problem).values(), self.method, self.seed, self.maxfev, budget)
            for budget in sorted(self.budgets)
        ]


def key(row: Row) -> Key:
    """What a row is known by: as `Run.keys`."""
    names = ("suite", "function", "dimension", "instance", "start", "bounded")
    return tuple(row[name] for name in (*names, "method", "seed", "maxfev", "budget"))


def plan(
    problems: Iterable[Problem],
    methods: Iterable[str],
    budgets: Callable[[Problem], tuple[int, ...]],
    seed: int = 0,
) -> list[Run]:
    """Every method on every problem, a problem at a time: what there is can be compared early."""
    methods = list(methods)
    return [Run(problem, m, budgets(problem), seed) for problem in problems for m in methods]


def measure(
    runs: list[Run],
    rows: Iterable[Row] = (),
    *,
    minutes: float = math.inf,
    keep: Callable[[list[Row]], None] = lambda rows: None,
    report: Callable[[str, float], None] = lambda text, share: None,
) -> list[Row]:
    """The rows that there are and those of the runs that are not among them.

    After `minutes` no other run is begun. `keep` gets all rows after each run.
    """
    rows = list(rows)
    known = {key(row) for row in rows}
    began = monotonic()
    for i, run in enumerate(runs):
        if known.issuperset(run.keys):
            continue
        if monotonic() - began > 60 * minutes:
            break
        report(f"{run.problem.dimension}-D {run.problem}: {run.method}", i / len(runs))
        new = perform(run)
        rows = [row for row in rows if key(row) not in run.keys] + new
        keep(rows)
    return rows


def perform(run: Run) -> list[Row]:
    """One run, a row for each of its budgets.

    A method that ends by itself is started again, elsewhere, until the budget is spent: so all
    have as many evaluations. Where all start again depends on the seed alone. The rows have what
    there was at the first end, too. An exception of the method's own ends its run for good.
    """
    n = run.problem.dimension
    with opened(run.problem) as box:
        fun = Counted(
            box.fun,
            run.maxfev,
            marks=[n * budget for budget in run.budgets],
            targets=[box.optimum + target for target in box.targets],
        )
        first, failure = _to_the_end(fun, box, run)
    # A method that failed stays where it was.
    marks = fun.marks + [fun.now] * (len(run.budgets) - len(fun.marks))
    shared = {
        **asdict(run.problem),
        "problem": str(run.problem),
        "method": run.method,
        "seed": run.seed,
        "maxfev": run.maxfev,
        "targets": len(box.targets),
        "failure": failure,
        **environment(),
    }
    return [
        {**shared, "budget": budget, **_outcome(mark, first, fun.reached, box.optimum)}
        for budget, mark in zip(sorted(run.budgets), marks, strict=True)
    ]


def _to_the_end(fun: Counted, box: Box, run: Run) -> tuple[Mark, str | None]:
    """How things stood when the method ended for the first time, and what it failed by."""
    rng = np.random.default_rng([run.seed, run.problem.instance])
    x0, first, attempt = box.x0, None, 0
    method = METHODS[run.method].run
    with alone(run.seed):
        while fun.left:
            before = fun.count
            failure = None
            try:
                method(fun, x0.copy(), box.bounds, fun.left, run.seed + 1000 * attempt, box.scale)
            except Spent:
                break
            except Exception as error:  # an error inside a peer counts as a result
                failure = f"{type(error).__name__}: {error}"
            first = first or fun.now
            if failure or fun.count == before:
                return first, failure or "ended without an evaluation"
            x0, attempt = box.again(rng), attempt + 1
    return first or fun.now, None


def _outcome(mark: Mark, first: Mark, reached: list[int], optimum: float) -> Row:
    """A row's figures; `error` is None where no value was finite."""
    at_first = first if first.evaluations < mark.evaluations else mark
    return {
        "evaluations": mark.evaluations,
        "error": _finite(mark.best - optimum),
        "first_end": first.evaluations if first.evaluations < mark.evaluations else None,
        "first_error": _finite(at_first.best - optimum),
        "seconds": mark.seconds,
        "overhead": mark.overhead,
        "reached": [count for count in reached if count <= mark.evaluations],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def estimate(runs: list[Run]) -> float:
    """Seconds that the runs will take, from the first evaluations of one of each kind.

    A run of each method at each dimension of each suite is begun, as if to the end, and stopped
    after 200 evaluations. What a method does less often than that is not in it.
    """
    kinds: dict[Key, float] = {}
    for run in runs:
        kind = (run.problem.suite, run.problem.dimension, run.method)
        if kind not in kinds:
            with opened(run.problem) as box:
                fun = Counted(box.fun, min(_SAMPLE, run.maxfev))
                with alone(run.seed), suppress(Spent, Exception):
                    METHODS[run.method].run(
                        fun, box.x0.copy(), box.bounds, run.maxfev, run.seed, box.scale
                    )
                kinds[kind] = fun.now.seconds / max(fun.count, 1)
    return sum(
        run.maxfev * kinds[run.problem.suite, run.problem.dimension, run.method] for run in runs
    )
