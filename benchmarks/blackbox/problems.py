"""The problems: COCO's suites, a small network, and a function that costs nothing.

COCO's bbob are 24 functions with known optima, in instances (shifted and rotated otherwise);
bbob-largescale are the same with rotations by blocks. They are defined everywhere; the box
[-5, 5]^n is where the optimum is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

Array = Any
Function = Callable[[Array], float]

BBOB = (
    "sphere",
    "ellipsoid",
    "Rastrigin",
    "Büche-Rastrigin",
    "linear slope",
    "attractive sector",
    "step ellipsoid",
    "Rosenbrock",
    "rotated Rosenbrock",
    "rotated ellipsoid",
    "discus",
    "bent cigar",
    "sharp ridge",
    "different powers",
    "rotated Rastrigin",
    "Weierstrass",
    "Schaffer F7",
    "Schaffer F7, condition 1000",
    "Griewank-Rosenbrock",
    "Schwefel",
    "Gallagher, 101 peaks",
    "Gallagher, 21 peaks",
    "Katsuura",
    "Lunacek bi-Rastrigin",
)


@dataclass(frozen=True)
class Suite:
    """A family of functions, and the defaults of the full form."""

    dimensions: tuple[int, ...]
    budgets: tuple[int, ...]  # in evaluations for each of the n coordinates
    instances: tuple[int, ...]
    functions: tuple[str, ...]
    needs: dict[str, str]  # import name: what pip calls it
    extra: str


SUITES = {
    "bbob": Suite(
        (20, 40), (10, 100, 1000), (1, 2, 3), BBOB, {"cocoex": "coco-experiment"}, "blackbox"
    ),
    "bbob-largescale": Suite(
        (160, 320), (10, 100, 1000), (1, 2, 3), BBOB, {"cocoex": "coco-experiment"}, "blackbox"
    ),
    "digits": Suite(
        (1898,), (1, 10, 100), (1, 2, 3), ("digits CNN",), {"sklearn": "scikit-learn"}, "demo"
    ),
    "overhead": Suite((1000,), (10,), (1,), ("ellipsoid",), {}, ""),
}
# What COCO has instances of; others would be refused by its library with an exit of the process.
COCO_DIMENSIONS = {
    "bbob": (2, 3, 5, 10, 20, 40),
    "bbob-largescale": (20, 40, 80, 160, 320, 640),
}
INSTANCES = 15
TARGETS = tuple(10 ** (2 - 0.2 * i) for i in range(51))  # 1e2 to 1e-8, as COCO has them
_LOSSES = tuple(10 ** (0.3 - 0.1 * i) for i in range(34))  # 2 to 1e-3: a chance's loss is 2.3


@dataclass(frozen=True)
class Problem:
    """Which function: to be made by `opened`.

    >>> str(Problem("bbob", 8, 40, 1))
    'f8 Rosenbrock'
    """

    suite: str
    function: int
    dimension: int
    instance: int
    start: str = "centre"
    bounded: bool = False

    def __str__(self) -> str:
        name = SUITES[self.suite].functions[self.function - 1]
        return f"f{self.function} {name}" if self.suite in COCO_DIMENSIONS else name


@dataclass(frozen=True)
class Box:
    """A black box: what all methods are given, and how they are measured.

    Args:
        fun: the function.
        x0: where to start.
        again: where to start after a method has ended by itself.
        bounds: pairs, or None.
        scale: how far from x0 it is sensible to look; for methods that have to be told.
        optimum: the least value there is, or a bound below it.
        targets: distances from it, falling.
    """

    fun: Function
    x0: Array
    again: Callable[[np.random.Generator], Array]
    bounds: list[tuple[float, float]] | None
    scale: float
    optimum: float
    targets: tuple[float, ...] = TARGETS


@contextmanager
def opened(problem: Problem) -> Iterator[Box]:
    """Open the function of `problem`, and free its memory afterwards."""
    if problem.suite in COCO_DIMENSIONS:
        with _coco(problem) as box:
            yield box
    else:
        yield (_digits if problem.suite == "digits" else _ellipsoid)(problem)


@contextmanager
def _coco(problem: Problem) -> Iterator[Box]:
    cocoex = import_module("cocoex")
    chosen = (
        f"dimensions:{problem.dimension} function_indices:{problem.function} "
        f"instance_indices:{problem.instance}"
    )
    suite = cocoex.Suite(problem.suite, f"instances:1-{INSTANCES}", chosen)
    fun = suite[0]
    # An optimum depends on the function and the instance alone, in both suites.
    optimum = cocoex.BareProblem("bbob", problem.function, 2, problem.instance).best_value()
    n = problem.dimension

    def again(rng: np.random.Generator) -> Array:
        return rng.uniform(-4, 4, n)

    x0 = np.array(fun.initial_solution, dtype=float)
    if problem.start == "random":
        x0 = again(np.random.default_rng([problem.function, problem.instance]))
    bounds = [(-5.0, 5.0)] * n if problem.bounded else None
    try:
        yield Box(fun, x0, again, bounds, scale=2.0, optimum=optimum)
    finally:
        fun.free()


def _digits(problem: Problem) -> Box:
    """Cross-entropy of examples/digits.py's network on 200 digits; the instance is its seed."""
    from examples.digits import digits, network

    rows, _ = digits(problem.instance)
    images, labels = rows.x[:200].double(), rows.y[:200]
    # Double precision: the usual radius of finite differences would vanish in single.
    model = network(problem.instance).requires_grad_(False).double()

    def flat(net: torch.nn.Module) -> Array:
        return torch.nn.utils.parameters_to_vector(net.parameters()).detach().double().numpy()

    def fun(x: Array) -> float:
        vector = torch.as_tensor(np.array(x, dtype=float))
        torch.nn.utils.vector_to_parameters(vector, model.parameters())
        with torch.no_grad():
            return float(torch.nn.functional.cross_entropy(model(images), labels))

    def again(rng: np.random.Generator) -> Array:
        return flat(network(int(rng.integers(2**31))))

    return Box(fun, flat(model), again, None, scale=0.1, optimum=0.0, targets=_LOSSES)


def _ellipsoid(problem: Problem) -> Box:
    """A little more than nothing, so that nobody is done at once: its time is taken off."""
    n = problem.dimension
    weights = np.logspace(0, 3, n)

    def again(rng: np.random.Generator) -> Array:
        return rng.uniform(-4, 4, n)

    x0 = again(np.random.default_rng(problem.instance))
    bounds = [(-5.0, 5.0)] * n if problem.bounded else None
    return Box(lambda x: float(weights @ (x * x)), x0, again, bounds, scale=2.0, optimum=0.0)
