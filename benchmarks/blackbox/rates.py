"""``python -m benchmarks.blackbox.rates``: methods with a learning rate on rotated bbob functions.

Ill-conditioned functions whose axes are rotated: do slopes along random directions (WASP) help
beside slopes along coordinates (CoCD)? Each method has the whole budget for every learning rate of
a grid, and the best end counts: what a user who tunes at no cost would get. "auto" runs once.
"""

from __future__ import annotations

import argparse
from functools import partial

import cocd

from .peers import alone
from .problems import Problem, opened

FUNCTIONS = (10, 11, 12, 13)  # rotated ellipsoid, discus, bent cigar, sharp ridge
RATES = tuple(10.0**-k for k in range(1, 10))
METHODS = {
    "wasp, rotation": partial(cocd.minimize, method="wasp", basis="rotation", rng=0),
    "wasp, identity": partial(cocd.minimize, method="wasp", basis="identity", rng=0),
    "cocd": partial(cocd.minimize, method="cocd", rng=0),
}


def end(problem: Problem, budget: int, method: str, lr: float | None = None) -> float:
    """How far from the optimum one run ends."""
    run = METHODS.get(method, partial(cocd.minimize, rng=0))
    with opened(problem) as box, alone(0):
        return (
            float(run(box.fun, box.x0, lr=lr, maxfev=budget * problem.dimension).fun) - box.optimum
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimension", type=int, default=20)
    parser.add_argument("--budget", type=int, default=100, help="evaluations a coordinate")
    args = parser.parse_args()
    print(f"| function | {' | '.join(METHODS)} | auto |")
    print("| :-- |" + " --: |" * (len(METHODS) + 1))
    for function in FUNCTIONS:
        problem = Problem("bbob", function, args.dimension, 1)
        cells = []
        for method in METHODS:
            ends = {lr: end(problem, args.budget, method, lr) for lr in RATES}
            best = min(ends, key=lambda lr: ends[lr])
            cells.append(f"{ends[best]:.2g} (lr {best:.0e})")
        cells.append(f"{end(problem, args.budget, 'auto'):.2g}")
        print(f"| {problem} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
