"""How a step's time grows with the compute budget B and with the number of parameters n.

The coordinates are those of the last layer of a wide MLP. Probes, the unperturbed pass and the
rest of the step (memory, update, bookkeeping) are timed separately: the last two must grow with n,
the probes must not.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import log
from statistics import median

import torch
from cocd_paper import networks
from torch.nn.functional import mse_loss

from . import report as output
from .report import Report, Row
from .stepper import Stepper, accelerator

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
BUDGETS = (16, 64, 256, 1024, 4096, 16_384)
QUICK_SIZES = (10_000, 100_000, 1_000_000)
QUICK_BUDGETS = (16, 64, 256, 1024)
BATCH = 64
ROUNDS = 25
QUICK_ROUNDS = 7

FIXED_BUDGET = 64  # while n varies
FIXED_SIZE = 1_000_000  # while B varies
_SETTINGS = {"lr": 1e-4, "eps": 0.1, "decay": 0.99, "weight_decay": 1e-4}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    sizes = {"sizes": QUICK_SIZES, "budgets": QUICK_BUDGETS, "rounds": QUICK_ROUNDS}
    small = sizes if args.quick else {}
    rows = output.run(args, lambda report: scaling(**small, report=report))  # type: ignore[arg-type]
    title = f"A step over n and over B, last layer of a wide MLP, {rows[0]['engine']} engine"
    output.show(title, *table(rows))
    print("\n".join(summary(rows)))
    return 0


def scaling(
    sizes: Sequence[int] = SIZES,
    budgets: Sequence[int] = BUDGETS,
    *,
    fixed_size: int = FIXED_SIZE,
    fixed_budget: int = FIXED_BUDGET,
    rounds: int = ROUNDS,
    report: Report = lambda *_: None,
) -> list[Row]:
    """Rows over n at a fixed B, then over B at a fixed n, the sizes taking turns."""
    steppers: dict[int, Stepper] = {}
    for n in sorted({*sizes, fixed_size}):
        report(f"scaling: a network of {n:,} parameters", 0.0)
        steppers[n] = _stepper(n)
    points = [("n", n, fixed_budget) for n in sizes] + [("B", fixed_size, B) for B in budgets]
    starts = {n: _last_layer(stepper) for n, stepper in steppers.items()}
    for _, n, B in points:
        steppers[n].step(starts[n], B)  # checks and first allocations
    steps: list[list[tuple[float, float, float, float]]] = [[] for _ in points]
    for done in range(rounds):
        for i, (_, n, B) in enumerate(points):
            report(f"scaling: n = {n:,}, B = {B:,}", (done + i / len(points)) / rounds)
            step = steppers[n].step(starts[n], B)
            steps[i].append((step.seconds, sum(step.probes.values()), step.forward, step.update))
    report("scaling: done", 1.0)
    return [
        {
            "sweep": sweep,
            "engine": steppers[n].engine,
            "parameters": steppers[n].n,
            "compute_budget": B,
            "batch": BATCH,
            **{
                name: median(column)
                for name, column in zip(
                    ("seconds_per_step", "probe_seconds", "forward_seconds", "update_seconds"),
                    zip(*measured, strict=True),
                    strict=True,
                )
            },
        }
        for (sweep, n, B), measured in zip(points, steps, strict=True)
    ]


def exponent(rows: list[Row], x: str, y: str) -> float:
    """The slope of log y over log x, by least squares: 0 for a constant, 1 for proportional.

    >>> round(exponent([{"x": x, "y": 3 * x**2} for x in (1, 10, 50)], "x", "y"), 6)
    2.0
    """
    points = [(log(row[x]), log(row[y])) for row in rows]
    mean_x = sum(a for a, _ in points) / len(points)
    mean_y = sum(b for _, b in points) / len(points)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in points)
    return covariance / sum((a - mean_x) ** 2 for a, _ in points)


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Milliseconds, part by part."""
    parts = ("seconds_per_step", "probe_seconds", "forward_seconds", "update_seconds")
    columns = ["varies", "n", "B", "ms per step", "probes", "forward pass", "update"]
    cells = [
        [
            row["sweep"],
            f"{row['parameters']:,}",
            f"{row['compute_budget']:,}",
            *(f"{1e3 * row[part]:,.3f}" for part in parts),
        ]
        for row in rows
    ]
    return columns, cells


def summary(rows: list[Row]) -> list[str]:
    """Summarise the rows in sentences."""
    over_n = [row for row in rows if row["sweep"] == "n"]
    over_b = [row for row in rows if row["sweep"] == "B"]
    sentences = []
    if len(over_n) > 1:
        power = exponent(over_n, "parameters", "probe_seconds")
        sentences.append(f"Time of the probes over n at fixed B: n^{power:.2f}.")
    if len(over_b) > 1:
        power = exponent(over_b, "compute_budget", "probe_seconds")
        each = [row["probe_seconds"] / row["compute_budget"] for row in over_b]
        sentences.append(
            f"Time of the probes over B at fixed n: B^{power:.2f} (linear at most); per coordinate "
            f"{1e6 * each[0]:.1f} µs at the smallest B, {1e6 * each[-1]:.1f} µs at the largest."
        )
    return sentences


def _stepper(n: int) -> Stepper:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, 32, generator=generator)
    y = torch.randn(BATCH, 32, generator=generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = networks.wide_mlp(n)
    engine = "accelerated" if accelerator() else "incremental"
    return Stepper(engine, model, mse_loss, (x, y), _SETTINGS)


def _last_layer(stepper: Stepper) -> int:
    *_, weight, _ = stepper.offsets().values()
    return weight
