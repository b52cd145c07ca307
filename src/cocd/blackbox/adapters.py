"""Adapters that run `AskTell` from Optuna and nevergrad."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from .ask_tell import AskTell
from .methods.rule import Vector

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, TrialState


def optuna_sampler(space: dict[str, tuple[float, float]], **options: Any) -> BaseSampler:
    """A sampler for `optuna.create_study`; ``space`` maps each float to its (low, high).

    The search starts at the midpoint and minimises; ``options`` go to `AskTell`. Trials can run in
    parallel while a batch has points left. After that, and for parameters outside ``space``, the
    sampler draws values at random.

    >>> import cocd, optuna  # doctest: +SKIP
    >>> sampler = cocd.optuna_sampler({"x": (-5, 5), "y": (-5, 5)})  # doctest: +SKIP
    >>> study = optuna.create_study(sampler=sampler)  # doctest: +SKIP
    """
    samplers = import_module("optuna.samplers")
    low, high = np.array(list(space.values()), dtype=np.float64).T
    search = AskTell((low + high) / 2, bounds=np.stack([low, high], axis=1), **options)
    random = samplers.RandomSampler()
    rows: deque[int] = deque(search.pending.tolist())
    out: dict[int, int] = {}  # the row of each trial

    class Sampler(samplers.BaseSampler):  # type: ignore[misc, name-defined]
        def infer_relative_search_space(
            self, study: Study, trial: FrozenTrial
        ) -> dict[str, BaseDistribution]:
            float_ = import_module("optuna.distributions").FloatDistribution
            return {name: float_(a, b) for name, (a, b) in space.items()}

        def sample_relative(
            self, study: Study, trial: FrozenTrial, found: dict[str, BaseDistribution]
        ) -> dict[str, float]:
            if search.done or not rows:
                return {}
            row = rows.popleft()
            point = search.ask()[row]
            out[trial.number] = row
            return dict(zip(space, point.tolist(), strict=True))

        def sample_independent(
            self, study: Study, trial: FrozenTrial, name: str, kind: BaseDistribution
        ) -> object:
            return random.sample_independent(study, trial, name, kind)

        def after_trial(
            self,
            study: Study,
            trial: FrozenTrial,
            state: TrialState,
            values: Sequence[float] | None,
        ) -> None:
            if trial.number not in out:
                return
            value = np.nan if values is None else values[0]
            search.tell([value], index=[out.pop(trial.number)])
            if not rows and not out:  # the batch is complete
                rows.extend(search.pending.tolist())

    return Sampler()


class Candidate:
    """A point with the attributes of nevergrad's candidates."""

    def __init__(self, value: Vector, row: int) -> None:
        self.value, self.args, self.row = value, (value,), row
        self.kwargs: dict[str, object] = {}


class Nevergrad:
    """nevergrad's optimizer interface: `minimize`, or `ask`, `tell` and `provide_recommendation`.

    >>> import cocd, numpy as np
    >>> optimizer = cocd.Nevergrad(np.zeros(3), budget=300)
    >>> optimizer.minimize(lambda x: ((x - 1) ** 2).sum()).value.round(3)
    array([1., 1., 1.])
    """

    def __init__(self, x0: Sequence[float] | Vector, budget: int, **options: Any) -> None:
        self.search, self.budget = AskTell(x0, maxfev=budget, **options), budget
        self._rows: deque[int] = deque(self.search.pending.tolist())
        self._out = 0

    def ask(self) -> Candidate:
        """The next point; all points of a batch may be evaluated at the same time."""
        if not self._rows:
            raise RuntimeError(
                "all points of this batch are out; tell their values before asking for more"
            )
        row = self._rows.popleft()
        self._out += 1
        return Candidate(self.search.ask()[row].reshape(self.search.x.shape), row)

    def tell(self, candidate: Candidate, value: float) -> None:
        """Report the value of a candidate."""
        self.search.tell([value], index=[candidate.row])
        self._out -= 1
        if not self._rows and not self._out:  # the batch is complete
            self._rows.extend(self.search.pending.tolist())

    def provide_recommendation(self) -> Candidate:
        """The best point so far."""
        return Candidate(self.search.x, -1)

    def minimize(self, fun: Callable[[Vector], float]) -> Candidate:
        """Search until the budget is spent or the search converges."""
        while not self.search.done:
            candidate = self.ask()
            self.tell(candidate, fun(candidate.value))
        return self.provide_recommendation()
