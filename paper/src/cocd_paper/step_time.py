"""What remembering costs in time: steps of CoCD and of BCCD by turns, in one process.

Both probe the same coordinates of the same network on the same batch, so that a pair of steps
differs in the memory alone, and whatever else the machine does slows both.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median, quantiles
from time import process_time
from typing import Any

import torch

import cocd

from . import methods, tasks
from .data import generated
from .runs import Run

PAIRS = 120
WARM = 5  # pairs that come before: loops are compiled, engines checked


def measure(run: Run, go_on: Callable[[], None]) -> dict[str, Any]:
    """The median of the ratios of processor time, one thread, with its quartiles."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        steps = [_stepper(run, method) for method in ("cocd", "bccd")]
        pairs: list[tuple[float, float]] = []
        count = 4 if run.smoke else PAIRS
        for done in range(-WARM, count):
            go_on()
            first = done % 2  # each begins in turn
            seconds = {i: steps[i]() for i in (first, 1 - first)}
            if done >= 0:
                pairs.append((seconds[0], seconds[1]))
    finally:
        torch.set_num_threads(threads)
    ratios = [ours / theirs for ours, theirs in pairs]
    low, _, high = quantiles(ratios, n=4)
    return {
        "cocd_over_bccd": round(median(ratios), 4),
        "lower_quartile": round(low, 4),
        "upper_quartile": round(high, 4),
        "cocd_ms": round(1e3 * median(ours for ours, _ in pairs), 3),
        "bccd_ms": round(1e3 * median(theirs for _, theirs in pairs), 3),
        "pairs": len(pairs),
    }


def _stepper(run: Run, method: str) -> Callable[[], float]:
    """Takes a step and gives its seconds."""
    task, model = tasks.find(run.task), tasks.network(run)
    takes = methods.find(method).takes
    options = {name: value for name, value in run.options.items() if name in takes}
    optimizer = methods.find(method).build(model.parameters(), **options)
    objective = cocd.trace(model, task.loss)
    rows = generated(task.dataset, run.seed, rows=int(run.options["batch_size"]))

    def step() -> float:
        began = process_time()
        optimizer.step(objective(rows.train_x, rows.train_y))
        return process_time() - began

    return step
