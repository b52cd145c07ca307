"""How well methods track a gradient along a random walk, and the calls that each gradient takes.

The functions are WASP's: compositions of sines and cosines, from R^n to R. x makes a random walk,
like a robot's configuration between two solves, and each method estimates the gradient at every
point. Memory pays if a step is short relative to the wavelength.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from math import sqrt

import torch
from torch import Tensor

import cocd
from cocd.baselines import WASP

from . import report as output
from .report import Report, Row

SIZES = (1, 10, 100, 1000)
STEP = 0.05  # length of one step of the walk, at every n
POINTS, QUICK_POINTS = 100, 15
EPS = 1e-4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    sizes, points = (SIZES[:3], QUICK_POINTS) if args.quick else (SIZES, POINTS)
    rows = output.run(args, lambda report: gradients(sizes=sizes, points=points, report=report))
    print("| n | method | calls per gradient | relative error | cosine |")
    print("| --: | :-- | --: | --: | --: |")
    for row in rows:
        print(
            f"| {row['n']:,} | {row['method']} | {row['calls']:.1f} | {row['error']:.3g} "
            f"| {row['cosine']:.3f} |"
        )
    return 0


def gradients(
    *, sizes: tuple[int, ...], points: int, report: Report = lambda *_: None
) -> list[Row]:
    """A row for each n and method; errors are medians over the second half of the walk."""
    rows = []
    for done, n in enumerate(sizes):
        report(f"gradients: n = {n:,}", done / len(sizes))
        f, path = function(n), walk(n, points)
        for name, follow in methods(n).items():
            found = [follow(f, x) for x in path]
            pairs = [(estimate, true(f, x)) for (estimate, _), x in zip(found, path, strict=True)]
            late = pairs[points // 2 :]
            rows.append(
                {
                    "n": n,
                    "method": name,
                    "points": points,
                    "calls": sum(calls for _, calls in found) / points,
                    "error": _median([float((g - t).norm() / t.norm()) for g, t in late]),
                    "cosine": _median([float(torch.cosine_similarity(g, t, 0)) for g, t in late]),
                }
            )
    report("gradients: done", 1.0)
    return rows


Function = Callable[[Tensor], Tensor]
Follow = Callable[[Function, Tensor], tuple[Tensor, int]]


def function(n: int) -> Function:
    """A sum of n terms sin(a x_i + cos(b x_j)), with random a, b, i and j."""
    generator = torch.Generator().manual_seed(n)
    a, b = (torch.rand(2, n, generator=generator, dtype=torch.float64) * 2 - 1).unbind()
    i, j = (torch.randperm(n, generator=generator) for _ in range(2))
    return lambda x: torch.sin(a * x[i] + torch.cos(b * x[j])).sum()


def walk(n: int, points: int) -> list[Tensor]:
    """Points of a random walk with steps of one length."""
    generator = torch.Generator().manual_seed(1)
    steps = torch.randn(points, n, generator=generator, dtype=torch.float64)
    start = torch.randn(n, generator=generator, dtype=torch.float64)
    return list(start + (STEP * steps / steps.norm(dim=1, keepdim=True)).cumsum(0))


def true(f: Function, x: Tensor) -> Tensor:
    """The gradient itself."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(f(x), x)[0]


def methods(n: int) -> dict[str, Follow]:
    """The methods; each returns its estimate at a point and the calls that it took."""
    budget = max(1, round(sqrt(n)))
    found = {
        "finite differences": _remembering(
            lambda p: cocd.CoCD(p, lr=0.0, eps=EPS, compute_budget=n, difference="forward"), n
        ),
        "CoCD, B = sqrt(n)": _remembering(
            lambda p: cocd.CoCD(p, lr=0.0, eps=EPS, compute_budget=budget, difference="forward"), n
        ),
        "SPSA, as many calls": _spsa((budget + 1) // 2),
    }
    for basis in ("identity", "hadamard", "rotation"):
        for tolerance in (1.1, 1.3):
            found[f"WASP, {basis}, tolerance {tolerance}"] = _remembering(
                partial(WASP, lr=0.0, eps=EPS, basis=basis, tolerance=tolerance), n
            )
    return found


def _remembering(build: Callable[[list[Tensor]], cocd.CoCD | WASP], n: int) -> Follow:
    """An optimizer with a learning rate of 0, whose parameters are set to points of the walk."""
    parameter = torch.zeros(n, dtype=torch.float64, requires_grad=True)
    optimizer = build([parameter])

    def follow(f: Function, x: Tensor) -> tuple[Tensor, int]:
        before = optimizer.evaluations
        parameter.data.copy_(x)
        optimizer.step(lambda: f(parameter))
        return optimizer.estimate().double(), optimizer.evaluations - before

    return follow


def _spsa(pairs: int) -> Follow:
    generator = torch.Generator().manual_seed(2)

    def follow(f: Function, x: Tensor) -> tuple[Tensor, int]:
        found = torch.zeros_like(x)
        for _ in range(pairs):
            u = torch.randint(0, 2, x.shape, generator=generator, dtype=x.dtype) * 2 - 1
            found += u * (f(x + EPS * u) - f(x - EPS * u)) / (2 * EPS * pairs)
        return found, 2 * pairs

    return follow


def _median(values: list[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).median())
