"""Noise on top of a function: relative, additive, or computed from x."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .instance import Function, Instance, Vector


def relative(level: float) -> Callable[[Function, Instance, np.random.Generator], Function]:
    """Gaussian noise that grows with the distance from the optimum."""

    def with_noise(fun: Function, made: Instance, rng: np.random.Generator) -> Function:
        def seen(x: Vector) -> float:
            f = fun(x)
            return f + level * (f - made.optimum) * float(rng.standard_normal())

        return seen

    return with_noise


def additive(
    level: float, tails: float | None = None
) -> Callable[[Function, Instance, np.random.Generator], Function]:
    """Noise of the same size everywhere, in parts of f(x0) - optimum; Student's with `tails`."""

    def with_noise(fun: Function, made: Instance, rng: np.random.Generator) -> Function:
        size = level * (fun(made.x0) - made.optimum)

        def seen(x: Vector) -> float:
            z = rng.standard_normal() if tails is None else rng.standard_t(tails)
            return fun(x) + size * float(z)

        return seen

    return with_noise


def computed(level: float) -> Callable[[Function, Instance, np.random.Generator], Function]:
    """Noise that is the same at the same point, as of an iterative solver."""

    def with_noise(fun: Function, made: Instance, rng: np.random.Generator) -> Function:
        size = level * (fun(made.x0) - made.optimum)
        phase = rng.uniform(1e6, 2e6, len(made.x0))

        def seen(x: Vector) -> float:
            return fun(x) + size * float(np.sin(phase @ x))

        return seen

    return with_noise
