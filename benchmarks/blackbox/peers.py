"""The methods, through one interface: ``run(fun, x0, bounds, budget, seed, scale)``.

Each minimises `fun` from `x0` until it has enough or `fun` raises `Spent`; what it returns nobody
reads, for `fun` keeps the books. `budget` is how many evaluations remain, for methods that plan
ahead. `scale` is for those that cannot start without a length; `cocd.minimize` is not told.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec

import numpy as np
from scipy.optimize import minimize as scipy_minimize

from cocd.blackbox import minimize

from .counted import Counted
from .problems import Array

Bounds = list[tuple[float, float]] | None
LARGE = 100  # above this, CMA keeps a diagonal: a full matrix costs n^2 an evaluation


def cocd(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """`cocd.minimize`, with nothing but the function, the start and the budget."""
    minimize(fun, x0, bounds=bounds, maxfev=budget, rng=seed)


def spsa(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """Spall's SPSA with the standard gains: exponents 0.602 and 0.101, A a tenth of the steps.

    `a` is such that the first steps move each coordinate by a tenth of `scale`, judged by five
    differences at x0; Spall's own advice for where nothing is known.
    """
    rng, x, c = np.random.default_rng(seed), x0.copy(), 0.01 * scale
    low, high = zip(*bounds, strict=True) if bounds else (-np.inf, np.inf)
    stability = 0.1 * budget / 2

    def slope(x: Array, c: float) -> Array:
        signs = rng.choice((-1.0, 1.0), x.size)
        up, down = np.clip(x + c * signs, low, high), np.clip(x - c * signs, low, high)
        return (fun(up) - fun(down)) / (2 * c) * signs

    size = np.mean([np.abs(slope(x, c)).mean() for _ in range(5)])
    a = 0.1 * scale * (1 + stability) ** 0.602 / max(size, 1e-300)
    for k in range(budget):
        x = x - a / (k + 1 + stability) ** 0.602 * slope(x, c / (k + 1) ** 0.101)
        x = np.clip(x, low, high)


def cma(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """The package pycma with its defaults; sep-CMA above 100 coordinates."""
    package = import_module("cma")
    options = {"seed": seed + 1, "verbose": -9, "CMA_diagonal": x0.size > LARGE}
    if bounds:
        options["bounds"] = [list(side) for side in zip(*bounds, strict=True)]
    search = package.CMAEvolutionStrategy(x0, scale, options)  # a seed of 0 would be the clock
    while not search.stop():
        points = search.ask()
        search.tell(points, [fun(point) for point in points])


def lbfgsb(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """SciPy's L-BFGS-B; forward differences with its own radius."""
    limits = {"maxfun": budget + 1, "maxiter": budget + 1}
    scipy_minimize(fun, x0, method="L-BFGS-B", bounds=bounds, options=limits)


def powell(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """SciPy's Powell: line searches along directions that it learns."""
    limits = {"maxfev": budget + 1, "maxiter": budget + 1}
    scipy_minimize(fun, x0, method="Powell", bounds=bounds, options=limits)


def ngopt(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """NGOpt of nevergrad, which chooses among its methods by n and the budget."""
    ng = import_module("nevergrad")
    box = dict(zip(("lower", "upper"), np.transpose(bounds), strict=True)) if bounds else {}
    point = ng.p.Array(init=x0, **box).set_mutation(sigma=scale)
    point.random_state = np.random.RandomState(seed)
    search = ng.optimizers.NGOpt(parametrization=point, budget=budget)
    for _ in range(budget):
        candidate = search.ask()
        search.tell(candidate, fun(candidate.value))


@dataclass(frozen=True)
class Method:
    """A method by name, and what it imports beyond SciPy."""

    name: str
    run: Callable[[Counted, Array, Bounds, int, int, float], None]
    needs: dict[str, str] = field(default_factory=dict)  # import name: what pip calls it
    extra: str = "blackbox"


METHODS = {
    method.name: method
    for method in (
        Method("cocd", cocd),
        Method("cma", cma, {"cma": "cma"}),
        Method("l-bfgs-b", lbfgsb),
        Method("powell", powell),
        Method("ngopt", ngopt, {"nevergrad": "nevergrad"}),
        Method("spsa", spsa),
    )
}


def missing(needs: dict[str, str], extra: str) -> str:
    """Why something cannot run here, or nothing.

    >>> missing({"torch": "torch"}, "blackbox")
    ''
    >>> missing({"no_such_module": "no-such-package"}, "blackbox")
    "no-such-package is not installed: pip install 'cocd[blackbox]'"
    """
    for module, package in needs.items():
        if find_spec(module) is None:
            return f"{package} is not installed: pip install 'cocd[{extra}]'"
        try:
            with alone(0):
                import_module(module)
        except Exception as error:  # its dependencies clash: any exception, and not ours to fix
            return f"{package} cannot be imported: {type(error).__name__}: {error}"
    return ""


@contextmanager
def alone(seed: int) -> Iterator[None]:
    """Other people's warnings unheard, NumPy's global generator seeded and put back."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(state)
