"""`AskTell`: the caller evaluates, wherever and however."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult

from ..errors import NonFiniteLoss
from .arguments import (
    check_bounds,
    check_limit,
    check_random,
    check_settings,
    check_start,
    check_values,
    fingerprint,
)
from .engine import FAILURES
from .plain import Plain
from .rule import FTOL, Matrix, Points, Rule, Vector

_VERSION = 1  # of the saved state
EVALUATIONS = 1000  # times n + 1: the limit where neither maxfev nor maxiter is given

RUNNING, CONVERGED, MAXFEV, MAXITER, FAILED, STUCK, INTERRUPTED, STOPPED = -1, 0, 1, 2, 3, 4, 5, 99
_LIMITS = (MAXFEV, MAXITER)
_UNDER_WAY = "the search is under way"


class _Phase(NamedTuple):
    """The points that are out, and the answers so far."""

    points: Points
    limit: int | None  # what the rule was asked with, to ask again when a state is loaded
    last: bool  # the final iterate alone: nothing of it goes to the rule
    values: Vector
    told: NDArray[np.bool_]


class AskTell:
    """A search whose evaluations are made by the caller.

    `ask` gives points as the rows of an array; `tell` takes their values, all at once or some at
    a time (``tell(values, index=rows)``), NaN for an evaluation that failed. When the last value
    of a batch has been told the next batch is ready. Arguments as for `minimize`.

    >>> import cocd
    >>> search = cocd.AskTell([3.0, -2.0], lr=0.2, eps=0.1, compute_budget=1, maxfev=200)
    >>> while not search.done:
    ...     points = search.ask()
    ...     search.tell([((p - 1) ** 2).sum() for p in points])
    >>> search.result.x.round(3), search.result.nfev
    (array([1., 1.]), ...)
    """

    def __init__(
        self,
        x0: Any,
        *,
        lr: float | None = None,
        eps: float | None = None,
        compute_budget: int | None = None,
        memory_budget: int | None = None,
        decay: float | None = None,
        bounds: Any = None,
        maxfev: int | None = None,
        maxiter: int | None = None,
        ftol: float | None = FTOL,
        nonfinite: str = "skip",
        rng: Any = None,
    ) -> None:
        start, self._shape = check_start(x0)
        box = check_bounds(bounds, start, self._shape)
        options = check_settings(
            len(start),
            lr=lr,
            eps=eps,
            compute_budget=compute_budget,
            memory_budget=memory_budget,
            decay=decay,
            ftol=ftol,
            nonfinite=nonfinite,
        )
        self._maxfev, self._maxiter = check_limit("maxfev", maxfev), check_limit("maxiter", maxiter)
        if self._maxfev is None and self._maxiter is None:
            self._maxfev = EVALUATIONS * (len(start) + 1)
        self._settings: dict[str, Any] = {
            "shape": list(self._shape),
            "x0": fingerprint(start),
            "bounds": None if box is None else fingerprint(*box),
            **options,
        }
        self._nonfinite = options.pop("nonfinite")
        generator = check_random(rng)
        self._rule: Rule
        if options["lr"] is None:
            from .auto import Auto

            self._rule = Auto(
                start, bounds=box, nonfinite=self._nonfinite, rng=generator, **options
            )
        else:
            self._rule = Plain(start, bounds=box, rng=generator, **options)
        self._best, self._fun = start.copy(), np.nan
        self._nfev = self._nfailed = self._streak = 0
        self._status, self._message = RUNNING, _UNDER_WAY
        self._phase: _Phase | None = None
        self._begin(None)

    # --- the caller's side ---------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether there is nothing more to evaluate."""
        return self._status != RUNNING

    @property
    def x(self) -> NDArray[np.float64]:
        """The best point seen so far, x0 before there is one; in the shape of x0."""
        return self._best.reshape(self._shape).copy()

    @property
    def fun(self) -> float:
        """Its value, NaN before there is one."""
        return float(self._fun)

    @property
    def nfev(self) -> int:
        """Values told so far, those that were not finite included."""
        return self._nfev

    @property
    def nit(self) -> int:
        """Whole steps made."""
        return self._rule.nit

    @property
    def pending(self) -> NDArray[np.intp]:
        """Rows of the batch that is out whose values have not been told."""
        return np.empty(0, np.intp) if self._phase is None else np.flatnonzero(~self._phase.told)

    @property
    def result(self) -> OptimizeResult:
        """The best point seen so far, and why the search ended if it has."""
        return OptimizeResult(
            x=self.x,
            fun=self.fun,
            nfev=self._nfev,
            nit=self._rule.nit,
            nfailed=self._nfailed,
            status=self._status,
            success=self._status == CONVERGED,
            message=self._message,
        )

    def ask(self) -> Matrix:
        """The points to evaluate, one a row; the same ones until all their values are told."""
        return np.array(self.points())

    def points(self) -> Points:
        """The same without a copy: to be read, row by row, and not to be written."""
        if self._phase is None:
            raise ValueError(f"there is nothing to ask, the search is done: {self._message}")
        self._asked = True
        return self._phase.points

    def tell(self, values: Any, index: Any = None) -> None:
        """The values of the points asked for, or of those whose rows `index` names.

        NaN and infinite values are failed evaluations: they are counted and otherwise skipped,
        or refused with `NonFiniteLoss` if ``nonfinite="raise"``. What is refused changes nothing.
        """
        phase = self._phase
        if phase is None or not self._asked:
            why = "the search is done" if phase is None else "call ask() first"
            raise ValueError(f"tell is out of turn: {why}")
        rows = self._rows(phase, index)
        new = check_values(values, len(rows))
        finite = np.isfinite(new)
        if self._nonfinite == "raise" and not finite.all():
            raise NonFiniteLoss(
                f"{np.sum(~finite)} of {len(new)} values are not finite, the first is "
                f"{new[~finite][0]}; nothing has been changed"
            )
        if self._opening and not np.isfinite(new[rows == 0]).all():
            raise NonFiniteLoss(
                f"fun is {new[rows == 0][0]} at x0; start where it can be evaluated and is finite"
            )
        new[~finite] = np.nan
        answers, told = phase.values.copy(), phase.told.copy()
        answers[rows], told[rows] = new, True
        self._learn(phase.points, rows, new)
        self._phase = phase._replace(values=answers, told=told)
        if told.all():
            self._close(self._phase)

    def _rows(self, phase: _Phase, index: Any) -> NDArray[np.intp]:
        k = len(phase.told)
        if index is None:
            if phase.told.any():
                raise ValueError(
                    f"index is needed: {phase.told.sum()} of {k} values have been told already; "
                    "`pending` names the rows that are left"
                )
            return np.arange(k)
        rows = np.atleast_1d(np.asarray(index))
        whole = rows.ndim == 1 and (rows.dtype.kind in "iu" or not rows.size)
        if not whole or (rows.size and not (rows.min() >= 0 and rows.max() < k)):
            raise ValueError(f"index must hold row numbers from 0 to {k - 1}, got {index!r}")
        if len(np.unique(rows)) < len(rows) or phase.told[rows.astype(np.intp)].any():
            raise ValueError(f"index names a row twice, or one that has been told: {index!r}")
        return rows.astype(np.intp)

    # --- counting ------------------------------------------------------------------------------

    def _learn(self, points: Points, rows: NDArray[np.intp], new: Vector) -> None:
        self._nfev += len(new)
        self._nfailed += int(np.isnan(new).sum())
        if np.isnan(new).all():
            return
        k = int(np.nanargmin(new))
        if not new[k] >= self._fun:  # also when nothing has been seen yet
            self._best, self._fun = np.array(points[int(rows[k])]), new[k]

    def _close(self, phase: _Phase) -> None:
        """All values of a phase are there."""
        for failed in np.isnan(phase.values).tolist():
            self._streak = self._streak + 1 if failed else 0
        if phase.last:
            self._finish(*self._verdict)
            return
        try:
            self._rule.tell(phase.values)
        except NonFiniteLoss as error:
            self._finish(STUCK, f"the method cannot go on: {error}")
        else:
            self._begin(phase.points)

    def _begin(self, before: Points | None) -> None:
        """The next phase, or the end; `before` are the points of the phase that is over."""
        self._status, self._asked = RUNNING, False
        self._verdict = self._judge()
        if self._verdict[0] == RUNNING:
            # One evaluation is kept for the last iterate, which nobody would see otherwise.
            limit = None if self._maxfev is None else self._maxfev - self._nfev - 1
            if len(points := self._rule.ask(limit)):
                self._open(points, limit, last=False)
                return
            self._verdict = MAXFEV, f"stopped at maxfev={self._maxfev}"
        fits = self._maxfev is None or self._nfev < self._maxfev
        if self._verdict[0] != FAILED and fits and not self._seen(before):
            self._open(self._rule.x[None].copy(), None, last=True)
        else:
            self._finish(*self._verdict)

    def _judge(self) -> tuple[int, str]:
        if self._streak >= FAILURES:
            return FAILED, f"{self._streak} evaluations in a row failed or were not finite"
        if self._rule.converged:
            return CONVERGED, self._rule.converged
        if self._maxiter is not None and self._rule.nit >= self._maxiter:
            return MAXITER, f"stopped at maxiter={self._maxiter}"
        if self._maxfev is not None and self._nfev >= self._maxfev:
            return MAXFEV, f"stopped at maxfev={self._maxfev}"
        return RUNNING, _UNDER_WAY

    def _open(self, points: Points, limit: int | None, last: bool) -> None:
        k = len(points)
        self._opening = not self._nfev
        self._phase = _Phase(points, limit, last, np.full(k, np.nan), np.zeros(k, dtype=np.bool_))

    def _seen(self, before: Points | None) -> bool:
        """Whether the current iterate has been evaluated."""
        if not self._nfev:
            return False
        known = self._best[None] if before is None else np.vstack([self._best, np.asarray(before)])
        return bool((known == self._rule.x).all(axis=1).any())

    def _finish(self, status: int, message: str) -> None:
        self._phase, self._status, self._message = None, status, message

    def stop(self, status: int, message: str) -> None:
        """End the search from outside."""
        self._finish(status, message)

    # --- saving --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed search needs, partial answers included: data alone, copied."""
        phase = self._phase
        return {
            "version": _VERSION,
            "method": type(self._rule).__name__,
            "settings": dict(self._settings),
            "limits": [self._maxfev, self._maxiter],
            "rule": self._rule.state_dict(),
            "best": self._best.copy(),
            "fun": float(self._fun),
            "counts": [self._nfev, self._nfailed, self._streak],
            "verdict": list(self._verdict),
            "end": [self._status, self._message],
            "phase": None
            if phase is None
            else {
                "limit": phase.limit,
                "last": phase.last,
                "values": phase.values.copy(),
                "told": phase.told.copy(),
                "asked": self._asked,
                "opening": self._opening,
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where a saved search stopped; a state of another problem is refused whole.

        The limits (`maxfev`, `maxiter`) are this object's: a search that ended at lower ones goes
        on.
        """
        refuse_state(state, type(self._rule).__name__, self._settings)
        backup = self._rule.state_dict()
        try:
            self._rule.load_state_dict(state["rule"])
            best, phase = np.array(state["best"], dtype=np.float64), state["phase"]
            counts, verdict, end = map(list, (state["counts"], state["verdict"], state["end"]))
            raised = state["limits"] != [self._maxfev, self._maxiter] and verdict[0] in _LIMITS
            opened = None
            if phase is not None and not (raised and phase["last"]):
                last, x = bool(phase["last"]), self._rule.x
                points = x[None].copy() if last else self._rule.ask(phase["limit"])
                answers = np.array(phase["values"], np.float64), np.array(phase["told"], np.bool_)
                opened = _Phase(points, phase["limit"], last, *answers)
                if answers[0].shape != (len(points),) or answers[1].shape != (len(points),):
                    raise ValueError("values")
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
            self._rule.load_state_dict(backup)
            raise ValueError(f"state is damaged: {error!r}") from None
        self._best, self._fun = best, float(state["fun"])
        self._nfev, self._nfailed, self._streak = map(int, counts)
        self._verdict, (self._status, self._message) = (int(verdict[0]), str(verdict[1])), end
        self._phase, self._asked = opened, bool(phase and phase["asked"])
        self._opening = bool(phase and phase["opening"])
        if raised and opened is None:
            self._begin(None)


def refuse_state(state: Any, method: str, settings: dict[str, Any]) -> None:
    """Say in one sentence why a saved state does not fit, if it does not."""
    if not isinstance(state, dict) or "version" not in state:
        raise ValueError("state is not that of a cocd.AskTell")
    if state["version"] != _VERSION:
        raise ValueError(f"state has version {state['version']!r}, this release reads {_VERSION}")
    there = {"method": state.get("method"), **(state.get("settings") or {})}
    for name, here in {"method": method, **settings}.items():
        if there.get(name) != here:
            raise ValueError(
                f"state belongs to another problem: it has {name}={there.get(name)!r}, this one "
                f"has {name}={here!r}"
            )
