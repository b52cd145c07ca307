"""What a run takes here: a stored table of costs, scaled by a quick measurement."""

from __future__ import annotations

from statistics import fmean
from time import perf_counter, process_time

import torch

from . import methods, tasks
from .plans import paper
from .runs import Run
from .training import Training

# Milliseconds of processor time on one thread: for a coordinate probed through `cocd.trace` (in
# float32, in float64, by AutoCoCD at its plan's budgets, one evaluation per probe), a direction,
# a step with gradients, and a pass over the held-out rows. What no plan needs was not measured.
TABLE: dict[str, dict[str, float]] = {
    "sarcos": {
        "float32": 0.060, "float64": 0.15, "auto": 0.15, "sequential": 0.42,
        "direction": 1.7, "gradient": 1.1, "held": 7,
    },
    "mnist": {
        "float32": 0.19, "float64": 0.36, "auto": 0.32,
        "direction": 61, "gradient": 44, "held": 2700,
    },
    "cifar10": {
        "float32": 0.27, "float64": 0.62, "auto": 0.26,
        "direction": 75, "gradient": 67, "held": 3700,
    },
    "cifar10-small": {"float32": 0.45, "auto": 0.6, "held": 1500},
    "cifar10-resnet": {"float32": 31, "held": 39e3},
    "error-bound": {"float64": 0.072, "held": 6},
}  # fmt: skip
REFERENCE = 3.5  # milliseconds of a CoCD step on SARCOS with the paper's settings, in that session
MEASUREMENT = 10.0  # seconds for a memory measurement in a process of its own: a rough figure
# To which the table's numbers belong; other batches are taken to cost in proportion.
BATCH = {"cifar10-resnet": 32, "cifar10-small": 64, "error-bound": 64}


def seconds(run: Run, speed: float = 1.0) -> float:
    """An estimate of what the run takes on a machine that is `speed` times as fast.

    >>> run = paper.make("x", "sarcos", "cocd", "CoCD", {}, epochs=50)
    >>> 60 < seconds(run) < 600
    True
    """
    if not run.epochs:
        return MEASUREMENT / speed
    options, table = run.options, TABLE[run.task]
    if options.get("engine") == "sequential":
        step = int(options["compute_budget"]) * table["sequential"]
    elif methods.find(run.method).automatic:
        B = options["compute_budget"]
        step = (methods.AUTOMATIC_BUDGET if methods.finds_budget(run) else int(B)) * table["auto"]
    elif "compute_budget" in options:
        step = int(options["compute_budget"]) * table[str(options.get("dtype", "float32"))]
    elif methods.find(run.method).first_order:
        step = table["gradient"]
    else:
        step = int(options["directions"]) * table["direction"]
    scale = int(options["batch_size"]) / BATCH.get(run.task, int(options["batch_size"]))
    step *= scale
    if run.task == "cifar10-resnet":  # a probe at a quarter of the width took a ninth as long
        step *= (int(options.get("width", 16)) / 16) ** 1.6
    total = run.epochs * (run.steps_per_epoch * step + table["held"])
    if run.task == "error-bound":  # the first sweep, and all coordinates at every sample
        every = tasks.network(run).parameters()
        total += (1 + run.epochs) * sum(p.numel() for p in every) * table["float64"] * scale
    return total / 1e3 / speed


def measure_speed(limit: float = 1.0) -> float:
    """How many times as fast as the table's machine this one is, by steps of CoCD on SARCOS."""
    run = paper.make("list", "sarcos", "cocd", "CoCD", {}, smoke=True)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with torch.random.fork_rng(devices=[]):
            training = Training(run, tasks.load(run, None))
            training.step()  # loops are compiled, engines checked
            began, taken = perf_counter(), list[float]()
            while len(taken) < 20 or perf_counter() - began < limit:
                before = process_time()
                training.step()
                taken.append(process_time() - before)
    finally:
        torch.set_num_threads(threads)
    # Some of these steps meet a tensor for the first time: the slowest fifth does not count.
    return REFERENCE / 1e3 / fmean(sorted(taken)[: 4 * len(taken) // 5])


def duration(seconds: float) -> str:
    """In the unit that suits.

    >>> [duration(s) for s in (3, 200, 7000, 300_000)]
    ['3 s', '3 min', '1.9 h', '3.5 days']
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"
