"""``python -m benchmarks.blackbox.contest``: every method on the problems by class; a row a run.

A run is one call of one method with a budget of 50, 200 or 1000 evaluations per coordinate; what
counts is the true value at the point it recommends. Without noise that is the best point it has
evaluated. Rows are appended to a file as they come, and a run that is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import process_time
from types import FrameType
from typing import Any

import numpy as np

from .cases.instance import Case
from .classes import CASES
from .counted import Counted, Spent
from .peers import METHODS, alone, missing

BUDGETS = (50, 200, 1000)  # evaluations for each coordinate
SECONDS = 30  # of the processor that a run may take; what it has by then counts
Row = dict[str, Any]


class _TooLong(BaseException):
    """Ends a run whose time is over; not an `Exception`, because methods catch those."""


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def over(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Watched(Counted):
    """Counts evaluations and keeps the point with the lowest value that a method saw."""

    x: Any = None

    def __call__(self, x: Any) -> float:
        """One evaluation."""
        before = self.best
        value = super().__call__(x)
        if self.best < before:
            self.x = np.array(x, dtype=np.float64)
        return value


def perform(case: Case, method: str, budget: int, seed: int) -> Row:
    """One run as a row; `error` is relative to f(x0) - optimum."""
    made = case.open(seed)
    fun = Watched(made.seen, budget * case.n)
    found, failure, began = None, None, process_time()
    with alone(seed), _at_most(SECONDS):
        try:
            found = METHODS[method].run(
                fun, made.x0.copy(), made.bounds, fun.budget, seed, made.scale
            )
        except Spent:
            pass
        except _TooLong:
            failure = f"{SECONDS} s of the processor were over"
        except Exception as error:  # an error inside a peer counts as a result
            failure = f"{type(error).__name__}: {error}"
    used = process_time() - began
    if found is None or case.noise is None:
        found = fun.x
    start = made.true(made.x0)
    value = start if found is None else made.true(np.asarray(found, dtype=np.float64))
    return {
        "problem": case.name,
        "kind": case.kind,
        "held": case.held,
        "n": case.n,
        "method": method,
        "budget": budget,
        "seed": seed,
        "evaluations": fun.count,
        "error": max(0.0, float(value - made.optimum) / (start - made.optimum)),
        "overhead": fun.now.overhead if fun.count else None,
        "seconds": used,
        "failure": failure,
    }


def seeds(case: Case) -> tuple[int, ...]:
    """Three where chance is part of the problem."""
    return (1, 2, 3) if case.kind in ("noisy", "multimodal") else (1,)


def load(paths: list[Path]) -> list[Row]:
    """The rows of some files; a line that was cut off is left out."""
    rows: list[Row] = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            with suppress(ValueError):
                rows.append(json.loads(line))
    return rows


def key(row: Row) -> tuple[Any, ...]:
    """The key of a row."""
    return tuple(row[name] for name in ("problem", "n", "method", "budget", "seed"))


def main() -> None:
    """Make the missing runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, help="the file that rows are appended to")
    parser.add_argument("--method", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--kind", nargs="+", default=sorted({case.kind for case in CASES}))
    parser.add_argument("--budget", nargs="+", type=int, default=list(BUDGETS))
    parser.add_argument("--seed", nargs="+", type=int, default=[1, 2, 3])
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--held", action="store_true", help="only what no choice may look at")
    group.add_argument("--open", action="store_true", help="only the others")
    args = parser.parse_args()
    there = {key(row) for row in load([args.rows])}
    methods = [m for m in args.method if not missing(METHODS[m].needs, METHODS[m].extra)]
    for seed in args.seed:
        for budget in args.budget:
            for case in CASES:
                wanted = case.held if args.held else not (args.open and case.held)
                if case.kind not in args.kind or seed not in seeds(case) or not wanted:
                    continue
                for method in methods:
                    if (case.name, case.n, method, budget, seed) in there:
                        continue
                    row = perform(case, method, budget, seed)
                    with args.rows.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
