"""What is compared, and with which settings.

Every method has settings of its own that suit it. They are the best of a small grid by validation
loss, at the evaluations of the whole demo, on rows taken from the training rows
(``task.digits(seed, validation=True)``), mean of seeds 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil, lcm
from typing import Any, NamedTuple

import torch

import cocd


class Method(NamedTuple):
    """An optimizer with its settings and what a step of it costs in evaluations."""

    name: str
    optimizer: Callable[..., Any]
    settings: dict[str, float]
    cost: int
    first_order: bool = False


def methods(seed: int) -> list[Method]:
    """CoCD, what it is compared with, and the first-order oracle.

    >>> [(method.name, method.cost) for method in methods(seed=0)]
    [('CoCD', 33), ('BCCD', 33), ('SPSA', 10), ('SGD', 1)]
    """
    return [
        # The longer the memory, the smaller the step it bears: 0.98 wanted lr 0.08, 0.95 wanted
        # 0.15, and both learnt more slowly; lr 0.4 at this decay does not learn reliably.
        _coordinates("CoCD", cocd.CoCD, lr=0.3, eps=0.1, compute_budget=16, decay=0.9),
        # Without memory a coordinate moves once a sweep, with this decay about ten times: hence
        # ten times the learning rate of CoCD. Tried 1.5 to 4.
        _coordinates("BCCD", cocd.baselines.BCCD, lr=3.0, eps=0.1, compute_budget=16),
        # Few directions and many steps. The noise of a direction grows with n, so the step is
        # small; 0.03 already goes astray for one of the seeds.
        _directions("SPSA", cocd.baselines.SPSA, lr=0.02, eps=0.01, directions=5, seed=seed),
        Method("SGD", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, cost=1, first_order=True),
    ]


def equal_evaluations(chosen: Iterable[Method], steps: int) -> list[tuple[Method, int]]:
    """How many steps each method takes: at least `steps` of the first one.

    The zeroth-order ones spend exactly the same number of evaluations, so it is rounded up to one
    that is a whole number of steps for each of them. A first-order method takes as many steps as
    the first one does.

    >>> [steps for _, steps in equal_evaluations(methods(seed=0), 3)]
    [10, 10, 33, 10]
    """
    chosen = list(chosen)
    first = chosen[0]
    block = lcm(*(method.cost for method in chosen if not method.first_order))
    evaluations = block * ceil(steps * first.cost / block)
    return [
        (method, evaluations // (first.cost if method.first_order else method.cost))
        for method in chosen
    ]


def _coordinates(name: str, optimizer: Callable[..., Any], **settings: float) -> Method:
    # Central differences, and the loss at x itself.
    return Method(name, optimizer, settings, cost=2 * int(settings["compute_budget"]) + 1)


def _directions(name: str, optimizer: Callable[..., Any], **settings: float) -> Method:
    return Method(name, optimizer, settings, cost=2 * int(settings["directions"]))
