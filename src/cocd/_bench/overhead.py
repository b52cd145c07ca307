"""What a CoCD step costs beyond the bare evaluations that it makes.

On the network of 12,727 parameters at B = 64 and batch 64, through an ordinary closure. A step
and as many bare calls of its closure take turns; what counts is the median of their ratios.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import torch

from .. import CoCD
from .measure import Report, Row
from .workloads import SARCOS, Workload

PAIRS = 80
QUICK_PAIRS = 15


def overhead(
    workload: Workload = SARCOS, *, pairs: int = PAIRS, report: Report = lambda *_: None
) -> list[Row]:
    """One row."""
    model, (x, y) = workload.model(), workload.data()
    budget = workload.compute_budget
    optimizer = CoCD(model.parameters(), **workload.settings, compute_budget=budget)  # type: ignore[arg-type]
    evaluations = 2 * budget + 1

    def closure() -> torch.Tensor:
        return workload.loss(model(x), y)

    def step() -> float:
        started = perf_counter()
        optimizer.step(closure)
        return perf_counter() - started

    def bare() -> float:
        started = perf_counter()
        with torch.no_grad():
            for _ in range(evaluations):
                closure()
        return perf_counter() - started

    step(), bare()  # first allocations
    measured = []
    for done in range(pairs):
        report("overhead: a step and its evaluations by turns", done / pairs)
        if done % 2:
            measured.append((step(), bare()))
        else:
            seconds = bare()
            measured.append((step(), seconds))
    report("overhead: done", 1.0)
    ratios = sorted(a / b for a, b in measured)
    return [
        {
            "workload": workload.name,
            "evaluations": evaluations,
            "seconds_per_step": median(a for a, _ in measured),
            "seconds_of_evaluations": median(b for _, b in measured),
            "overhead": median(ratios) - 1,
            "overhead_quartiles": [ratios[pairs // 4] - 1, ratios[(3 * pairs) // 4] - 1],
            "pairs": pairs,
        }
    ]


def sentence(row: Row) -> str:
    """The result."""
    low, high = row["overhead_quartiles"]
    return (
        f"A step of {row['evaluations']} evaluations takes {1e3 * row['seconds_per_step']:.2f} ms, "
        f"the evaluations alone {1e3 * row['seconds_of_evaluations']:.2f} ms: overhead "
        f"{row['overhead']:.1%} (median of {row['pairs']} pairs, quartiles {low:.1%} and "
        f"{high:.1%})."
    )
