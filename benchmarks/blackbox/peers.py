"""The methods, through one interface: ``run(fun, x0, bounds, budget, seed, scale)``.

Each minimises `fun` from `x0` until it has enough or `fun` raises `Spent`, and returns the point
that it recommends, or None for the best value that `fun` has seen. `budget` is how many
evaluations remain, for methods that plan ahead. `scale` is for those that cannot start without a
length; `cocd.minimize` is not told.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.optimize import minimize as scipy_minimize

import cocd as library

from .counted import Counted, Spent
from .problems import Array

Bounds = list[tuple[float, float]] | None
INF = np.inf
LARGE = 100  # above this, CMA keeps a diagonal: a full matrix costs n^2 an evaluation


def cocd(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> Array:
    """`cocd.minimize`, with nothing but the function, the start and the budget."""
    return library.minimize(fun, x0, bounds=bounds, maxfev=budget, rng=seed).x


def spsa(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> Array:
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
    with suppress(Spent):
        for k in range(budget):
            x = x - a / (k + 1 + stability) ** 0.602 * slope(x, c / (k + 1) ** 0.101)
            x = np.clip(x, low, high)
    return x


def cma(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> Array:
    """The package pycma with its defaults; sep-CMA above 100 coordinates."""
    search = _evolution(x0, bounds, seed, scale)
    with suppress(Spent):
        while not search.stop():
            points = search.ask()
            search.tell(points, [fun(point) for point in points])
    return search.result.xfavorite


def _evolution(x0: Array, bounds: Bounds, seed: int, scale: float, **more: object) -> Any:
    package = import_module("cma")
    # A seed of 0 would be the clock.
    options = {"seed": seed + 1, "verbose": -9, "CMA_diagonal": x0.size > LARGE, **more}
    if bounds:
        options["bounds"] = [list(side) for side in zip(*bounds, strict=True)]
    return package.CMAEvolutionStrategy(x0, scale, options)


def bipop(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """BIPOP-CMA-ES as pycma has it: restarts with large and small populations by turns."""
    package = import_module("cma")
    options = {"seed": seed + 1, "verbose": -9, "CMA_diagonal": x0.size > LARGE}
    options["maxfevals"] = budget
    if bounds:
        options["bounds"] = [list(side) for side in zip(*bounds, strict=True)]
    package.fmin2(fun, x0, scale, options, restarts=9, bipop=True)


def lbfgsb(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """SciPy's L-BFGS-B; forward differences with its own radius."""
    limits = {"maxfun": budget + 1, "maxiter": budget + 1}
    scipy_minimize(fun, x0, method="L-BFGS-B", bounds=bounds, options=limits)


def lbfgsb_central(
    fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float
) -> None:
    """L-BFGS-B on central differences, their radius from the spread of ten values near x0."""
    rng = np.random.default_rng(seed)
    size = np.maximum(1.0, np.abs(x0))
    low, high = (np.array(side) for side in zip(*bounds, strict=True)) if bounds else (-INF, INF)
    near = [np.clip(x0 + 1e-10 * size * rng.standard_normal(x0.size), low, high) for _ in range(10)]
    values = [fun(x) for x in near]
    noise = max(float(np.std(values)) / max(abs(values[0]), 1e-300), 1e-16)
    h = size * min(np.cbrt(noise), 0.3)

    def slope(x: Array) -> Array:
        g = np.empty_like(x)
        up, down = np.clip(x + h, low, high), np.clip(x - h, low, high)
        for i in range(x.size):
            one, other = x.copy(), x.copy()
            one[i], other[i] = up[i], down[i]
            g[i] = (fun(one) - fun(other)) / (up[i] - down[i])
        return g

    limits = {"maxfun": budget + 1, "maxiter": budget + 1}
    scipy_minimize(fun, x0, jac=slope, method="L-BFGS-B", bounds=bounds, options=limits)


def powell(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """SciPy's Powell: line searches along directions that it learns."""
    limits = {"maxfev": budget + 1, "maxiter": budget + 1}
    scipy_minimize(fun, x0, method="Powell", bounds=bounds, options=limits)


def cobyqa(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """SciPy's COBYQA: quadratic models in a trust region."""
    limits = {"maxfev": budget + 1, "initial_tr_radius": scale}
    scipy_minimize(fun, x0, method="COBYQA", bounds=bounds, options=limits)


def _nlopt(name: str, fun: Counted, x0: Array, bounds: Bounds, budget: int, scale: float) -> None:
    package = import_module("nlopt")
    search = package.opt(getattr(package, name), x0.size)
    search.set_min_objective(lambda x, slope: fun(x))
    if bounds:
        low, high = zip(*bounds, strict=True)
        search.set_lower_bounds(list(low))
        search.set_upper_bounds(list(high))
    search.set_initial_step(scale)
    search.set_maxeval(budget + 1)
    with suppress(package.RoundoffLimited):  # an end like any other
        search.optimize(x0)


def newuoa(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """Powell's NEWUOA from NLopt; with bounds NLopt's variant of it."""
    _nlopt("LN_NEWUOA_BOUND" if bounds else "LN_NEWUOA", fun, x0, bounds, budget, scale)


def bobyqa(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> None:
    """Powell's BOBYQA from NLopt."""
    _nlopt("LN_BOBYQA", fun, x0, bounds, budget, scale)


def pybobyqa(
    fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float
) -> Array:
    """Py-BOBYQA, told whether values are noisy by asking twice at x0; restarts where it does."""
    package = import_module("pybobyqa")
    noisy = fun(x0) != fun(x0)
    box = tuple(np.array(side) for side in zip(*bounds, strict=True)) if bounds else None
    found = package.solve(
        fun,
        x0,
        bounds=box,
        rhobeg=scale,
        maxfun=max(budget - 2, x0.size + 3),
        objfun_has_noise=noisy,
        do_logging=False,
    )
    return found.x


def _nevergrad(
    name: str, fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float
) -> Array:
    ng = import_module("nevergrad")
    box: dict[str, Any] = {}
    if bounds:
        low, high = np.transpose(bounds)
        box = {"lower": np.maximum(low, -1e3), "upper": np.minimum(high, 1e3)}
    point = ng.p.Array(init=x0, **box).set_mutation(sigma=scale)
    point.random_state = np.random.RandomState(seed)
    search = ng.optimizers.registry[name](parametrization=point, budget=budget)
    for _ in range(budget):
        candidate = search.ask()
        search.tell(candidate, fun(candidate.value))
    return search.provide_recommendation().value


def ngopt(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> Array:
    """NGOpt of nevergrad, which chooses among its methods by n and the budget."""
    return _nevergrad("NGOpt", fun, x0, bounds, budget, seed, scale)


def tbpsa(fun: Counted, x0: Array, bounds: Bounds, budget: int, seed: int, scale: float) -> Array:
    """TBPSA of nevergrad: a population that grows with the noise."""
    return _nevergrad("TBPSA", fun, x0, bounds, budget, seed, scale)


@dataclass(frozen=True)
class Method:
    """A method by name, and what it imports beyond SciPy."""

    name: str
    run: Callable[[Counted, Array, Bounds, int, int, float], Array | None]
    needs: dict[str, str] = field(default_factory=dict)  # import name: what pip calls it
    extra: str = "blackbox"


METHODS = {
    method.name: method
    for method in (
        Method("cocd", cocd),
        Method("cma", cma, {"cma": "cma"}),
        Method("bipop", bipop, {"cma": "cma"}),
        Method("l-bfgs-b", lbfgsb),
        Method("l-bfgs-b-central", lbfgsb_central),
        Method("powell", powell),
        Method("cobyqa", cobyqa),
        Method("newuoa", newuoa, {"nlopt": "nlopt"}),
        Method("bobyqa", bobyqa, {"nlopt": "nlopt"}),
        Method("py-bobyqa", pybobyqa, {"pybobyqa": "Py-BOBYQA"}),
        Method("ngopt", ngopt, {"nevergrad": "nevergrad"}),
        Method("tbpsa", tbpsa, {"nevergrad": "nevergrad"}),
        Method("spsa", spsa),
    )
}


def missing(needs: dict[str, str], extra: str) -> str:
    """The reason why something cannot run here, if any.

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
    """Silence warnings of other packages; seed NumPy's global generator and restore it."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(state)
