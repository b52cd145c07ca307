"""AutoCoCD along the axes and along a random basis, on problems with and without axes.

The problems are ill-conditioned functions whose narrow valleys follow the axes, and the same
functions with a random rotation. The result is the final value over the first, median over seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

import cocd

from . import report as output
from .report import Report, Row

SIZES: tuple[int, ...] = (50, 200)
SEEDS, QUICK_SEEDS = 3, 1
BASES = (None, "hadamard", "rotation")
LENGTHS: tuple[int, ...] = (30,)  # evaluations over n; each is a separate run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    sizes, seeds, lengths = SIZES, SEEDS, LENGTHS
    if args.quick:
        sizes, seeds = SIZES[:1], QUICK_SEEDS
    rows = output.run(
        args, lambda report: bases(sizes=sizes, seeds=seeds, lengths=lengths, report=report)
    )
    print("| problem | n | basis | " + " | ".join(f"{k}n" for k in lengths) + " |")
    print("| :-- | --: | :-- |" + " --: |" * len(lengths))
    for row in rows:
        left = " | ".join(f"{value:.2g}" for value in row["left"])
        print(f"| {row['problem']} | {row['n']} | {row['basis'] or 'none'} | {left} |")
    return 0


def bases(
    *,
    sizes: tuple[int, ...],
    seeds: int,
    lengths: tuple[int, ...],
    report: Report = lambda *_: None,
) -> list[Row]:
    """A row for each problem, n and basis: f(x) over f(x_0) after these lengths."""
    cases = [(name, n, basis) for name in PROBLEMS for n in sizes for basis in BASES]
    rows = []
    for done, (name, n, basis) in enumerate(cases):
        report(f"bases: {name}, n = {n}, {basis}", done / len(cases))
        left = [
            _median([_left(name, n, basis, seed, length * n) for seed in range(seeds)])
            for length in lengths
        ]
        rows.append({"problem": name, "n": n, "basis": basis, "lengths": lengths, "left": left})
    report("bases: done", 1.0)
    return rows


Function = Callable[[Tensor], Tensor]


def ellipsoid(x: Tensor) -> Tensor:
    """Curvatures from 1 to 10^4 along the axes."""
    return (torch.logspace(0, 4, len(x), dtype=x.dtype) * x**2).sum()


def rosenbrock(x: Tensor) -> Tensor:
    """A curved valley; neighbours are coupled."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


PROBLEMS: dict[str, tuple[Function, bool]] = {
    "ellipsoid": (ellipsoid, False),
    "ellipsoid, rotated": (ellipsoid, True),
    "Rosenbrock": (rosenbrock, False),
    "Rosenbrock, rotated": (rosenbrock, True),
}


def _left(name: str, n: int, basis: str | None, seed: int, evaluations: int) -> float:
    function, rotated = PROBLEMS[name]
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(n, generator=generator, dtype=torch.float64)
    turn: cocd.basis.Basis = cocd.basis.Identity(n)
    if rotated:
        turn = cocd.basis.Rotation(n, seed=1000 + seed)  # differs from the method's rotation
    x = start.clone().requires_grad_()
    optimizer = cocd.AutoCoCD([x], basis=basis, max_evaluations=evaluations)

    first = float(function(turn.combine(start)))
    while optimizer.evaluations < evaluations:
        optimizer.step(lambda: function(turn.combine(x)))
    return float(function(turn.combine(x.detach()))) / first


def _median(values: list[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).median())
