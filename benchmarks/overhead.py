"""What a CoCD step costs beyond the bare evaluations that it makes.

The network has 12,727 parameters, at B = 64 and batch 64, with an ordinary closure. Three loops
take turns: a step; the same evaluations in the shortest loop written by hand (a weight up, down and
back, each loss read, without a step's guarantees); and as many calls of the closure at one point,
with unread losses. The results are medians of the ratios.
"""

from __future__ import annotations

import argparse
from itertools import cycle
from statistics import median
from time import perf_counter

import torch

from cocd import CoCD

from . import report as output
from .report import Report, Row
from .workloads import SARCOS, Workload

PAIRS = 80
QUICK_PAIRS = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    pairs = QUICK_PAIRS if args.quick else PAIRS
    rows = output.run(args, lambda report: overhead(pairs=pairs, report=report))
    print(sentence(rows[0]))
    return 0


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

    eps = workload.settings["eps"]
    places = [p.detach().numpy().reshape(-1) for p in model.parameters()]
    places = [
        flat[start : start + budget] for flat in places for start in range(0, len(flat), budget)
    ]
    block = cycle([flat for flat in places if len(flat) == budget])

    def by_hand() -> float:
        started = perf_counter()
        flat, losses = next(block), []
        with torch.no_grad():
            losses.append(closure().item())
            for i in range(budget):
                old = flat[i]
                flat[i] = old + eps
                losses.append(closure().item())
                flat[i] = old - eps
                losses.append(closure().item())
                flat[i] = old
        return perf_counter() - started

    def at_one_point() -> float:
        started = perf_counter()
        with torch.no_grad():
            for _ in range(evaluations):
                closure()
        return perf_counter() - started

    lanes = (step, by_hand, at_one_point)
    for lane in lanes:  # first allocations
        lane()
    measured = []
    for done in range(pairs):
        report("overhead: a step and its evaluations by turns", done / pairs)
        turn = {k % 3: lanes[k % 3]() for k in range(done, done + 3)}  # each is first in turn
        measured.append([turn[k] for k in range(3)])
    report("overhead: done", 1.0)
    steps, bare, still = zip(*measured, strict=True)
    ratios = sorted(a / b for a, b in zip(steps, bare, strict=True))
    return [
        {
            "workload": workload.name,
            "evaluations": evaluations,
            "seconds_per_step": median(steps),
            "seconds_of_evaluations": median(bare),
            "seconds_at_one_point": median(still),
            "overhead": median(ratios) - 1,
            "overhead_quartiles": [ratios[pairs // 4] - 1, ratios[(3 * pairs) // 4] - 1],
            "overhead_at_one_point": median(a / b for a, b in zip(steps, still, strict=True)) - 1,
            "pairs": pairs,
        }
    ]


def sentence(row: Row) -> str:
    """The result."""
    low, high = row["overhead_quartiles"]
    return (
        f"A step of {row['evaluations']} evaluations takes {1e3 * row['seconds_per_step']:.2f} ms, "
        f"the same evaluations in a loop by hand {1e3 * row['seconds_of_evaluations']:.2f} ms: "
        f"overhead {row['overhead']:.1%} (median of {row['pairs']} turns, quartiles {low:.1%} and "
        f"{high:.1%}); over as many calls of the closure at one point, whose losses are not read "
        f"({1e3 * row['seconds_at_one_point']:.2f} ms), it is {row['overhead_at_one_point']:.1%}."
    )
