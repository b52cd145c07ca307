"""`AskTell`: a search whose caller evaluates the points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import NonFiniteLoss
from ..parts.types import NonFinite, State
from .arguments import (
    OPTIONS,
    Basis,
    Bounds,
    Method,
    Seed,
    check_bounds,
    check_limit,
    check_random,
    check_settings,
    check_start,
    check_values,
    fingerprint,
)
from .executors.engine import FAILURES
from .methods.plain import Plain
from .methods.rule import FTOL, Box, Matrix, Points, Rule, Vector, holds
from .phase import Phase
from .progress import (
    CONVERGED,
    FAILED,
    MAXFEV,
    MAXITER,
    RUNNING,
    STUCK,
    VERSION,
    Progress,
    refuse_state,
)

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

UNBOUNDED = 1e250  # values below minus this count as unbounded
EVALUATIONS = 1000  # times n + 1: the limit if neither maxfev nor maxiter is given

_LIMITS = (MAXFEV, MAXITER)
_UNDER_WAY = "the search is running"


class AskTell:
    """A search whose evaluations the caller makes.

    `ask` returns points as the rows of an array. `tell` takes their values, all at once or some at
    a time (``tell(values, index=rows)``), with NaN for a failed evaluation. The next batch is ready
    once every value of the current one has been told. The arguments are those of `minimize`.

    >>> import cocd
    >>> search = cocd.AskTell([3.0, -2.0], maxfev=200)
    >>> while not search.done:
    ...     points = search.ask()
    ...     search.tell([((p - 1) ** 2).sum() for p in points])
    >>> search.result.x.round(3), search.result.nfev
    (array([1., 1.]), ...)
    """

    def __init__(
        self,
        x0: ArrayLike,
        *,
        method: Method = "auto",
        lr: float | None = None,
        eps: float | None = None,
        compute_budget: int | None = None,
        memory_budget: int | None = None,
        decay: float | None = None,
        basis: Basis | None = None,
        bounds: Bounds | None = None,
        maxfev: int | None = None,
        maxiter: int | None = None,
        ftol: float | None = FTOL,
        nonfinite: NonFinite = "skip",
        rng: Seed = None,
    ) -> None:
        start, self._shape = check_start(x0)
        box = check_bounds(bounds, start, self._shape)
        if box is not None and method == "wasp":
            raise ValueError(
                "method='wasp' does not support bounds, because its probes move all "
                "coordinates at once: use method='auto'"
            )
        options = check_settings(
            len(start),
            method=method,
            lr=lr,
            eps=eps,
            compute_budget=compute_budget,
            memory_budget=memory_budget,
            decay=decay,
            basis=basis,
            ftol=ftol,
            nonfinite=nonfinite,
        )
        self._maxfev, self._maxiter = check_limit("maxfev", maxfev), check_limit("maxiter", maxiter)
        if self._maxfev is None and self._maxiter is None:
            self._maxfev = EVALUATIONS * (len(start) + 1)
        self._settings: State = {
            "shape": list(self._shape),
            "x0": fingerprint(start),
            "bounds": None if box is None else fingerprint(*box),
            **options,
        }
        self._nonfinite = options["nonfinite"]
        self._rule = _rule(start, box, check_random(rng), options)
        self._best, self._fun = start.copy(), np.nan
        self._first = np.nan  # f(x0)
        self._final: tuple[Vector, float] | None = None  # with noise: last iterate, mean value
        self._nfev = self._nfailed = self._streak = 0
        self._status, self._message = RUNNING, _UNDER_WAY
        self._phase: Phase | None = None
        self._begin(None)

    # --- the caller's side ---------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether there is nothing more to evaluate."""
        return self._status != RUNNING

    @property
    def x(self) -> NDArray[np.float64]:
        """The best point so far (x0 before the first value), in the shape of x0.

        With noise: the point that the averages lead to, because the lowest single value is luck.
        """
        return self._report[0].reshape(self._shape).copy()

    @property
    def fun(self) -> float:
        """The value at `x`, NaN before the first value; with noise the mean of its values."""
        return float(self._report[1])

    @property
    def _report(self) -> tuple[Vector, float]:
        if self._final is not None:
            return self._final
        averaged = self._rule.averaged
        better = averaged is not None and averaged[1] <= self._first
        return averaged if averaged is not None and better else (self._best, self._fun)

    @property
    def nfev(self) -> int:
        """Values told so far, non-finite ones included."""
        return self._nfev

    @property
    def nit(self) -> int:
        """Completed steps."""
        return self._rule.nit

    @property
    def pending(self) -> NDArray[np.intp]:
        """Rows of the current batch whose values have not been told."""
        return np.empty(0, np.intp) if self._phase is None else np.flatnonzero(~self._phase.told)

    @property
    def result(self) -> OptimizeResult:
        """The best point so far, and why the search ended if it has."""
        from scipy.optimize import OptimizeResult  # slow to import: only when needed

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
        """The points to evaluate, one per row; unchanged until all their values are told."""
        return np.array(self.points())

    def points(self) -> Points:
        """The points of `ask` without a copy: read-only."""
        if self._phase is None:
            raise ValueError(f"nothing left to ask, the search is done: {self._message}")
        self._asked = True
        return self._phase.points

    def tell(self, values: ArrayLike, index: ArrayLike | None = None) -> None:
        """Report the values of all points asked for, or of the rows in `index`.

        NaN and infinite values are failed evaluations: the search counts and skips them, or raises
        `NonFiniteLoss` with ``nonfinite="raise"``. A call that raises changes nothing.
        """
        phase = self._phase
        if phase is None or not self._asked:
            why = "the search is done" if phase is None else "call ask() first"
            raise ValueError(f"tell is out of turn: {why}")
        rows = phase.rows(index)
        new = check_values(values, len(rows))
        finite = np.isfinite(new)
        if self._nonfinite == "raise" and not finite.all():
            raise NonFiniteLoss(
                f"{np.sum(~finite)} of {len(new)} values are not finite, the first is "
                f"{new[~finite][0]}; nothing has changed"
            )
        if phase.opening and not np.isfinite(new[rows == 0]).all():
            raise NonFiniteLoss(
                f"fun is {new[rows == 0][0]} at x0; start where it can be evaluated and is finite"
            )
        new[~finite] = np.nan
        self._learn(phase.points, rows, new)
        self._phase = phase.answered(rows, new)
        if self._phase.told.all():
            self._close(self._phase)

    # --- counting ------------------------------------------------------------------------------

    def _learn(self, points: Points, rows: NDArray[np.intp], new: Vector) -> None:
        self._nfev += len(new)
        self._nfailed += int(np.isnan(new).sum())
        if np.isnan(self._first) and 0 in rows.tolist():
            self._first = float(new[rows == 0][0])
        if np.isnan(new).all():
            return
        k = int(np.nanargmin(new))
        if not new[k] >= self._fun:  # also when nothing has been seen yet
            self._best, self._fun = np.array(points[int(rows[k])]), new[k]

    def _close(self, phase: Phase) -> None:
        """Pass a complete phase to the rule and begin the next one, or end the search."""
        for failed in np.isnan(phase.values).tolist():
            self._streak = self._streak + 1 if failed else 0
        if phase.last:
            values = phase.values[np.isfinite(phase.values)]
            if self._rule.averaged is not None and len(values) and values.mean() <= self._first:
                self._final = np.array(phase.points[0]), float(values.mean())
            self._finish(*self._verdict)
            return
        try:
            self._rule.tell(phase.values)
        except NonFiniteLoss as error:
            self._finish(STUCK, f"the method cannot continue: {error}")
        else:
            self._begin(phase.points)

    def _begin(self, before: Points | None) -> None:
        """Begin the next phase or end the search; `before` holds the points of the last phase."""
        self._status, self._asked = RUNNING, False
        self._verdict = self._judge()
        if self._verdict[0] == RUNNING:
            # Reserve evaluations for the last iterate, which would otherwise have no value.
            left = None if self._maxfev is None else self._maxfev - self._nfev
            limit = None if left is None else max(0, left - self._rule.final_evaluations)
            if len(points := self._rule.ask(limit)):
                self._phase = Phase.of(points, limit, last=False, opening=not self._nfev)
                return
            self._verdict = MAXFEV, f"stopped at maxfev={self._maxfev}"
        closing = self._rule.final_evaluations
        if self._maxfev is not None:
            closing = min(closing, self._maxfev - self._nfev)
        if self._verdict[0] != FAILED and closing > 0 and not self._seen(before):
            here = np.repeat(self._rule.x[None], closing, axis=0)
            self._phase = Phase.of(here, None, last=True, opening=not self._nfev)
        else:
            self._finish(*self._verdict)

    def _judge(self) -> tuple[int, str]:
        if self._streak >= FAILURES:
            return FAILED, f"{self._streak} evaluations in a row failed or were not finite"
        if self._fun < -UNBOUNDED:
            return STUCK, f"fun seems to fall without bound: {self._fun:g} at the best point seen"
        if self._rule.converged:
            return CONVERGED, self._rule.converged
        if self._maxiter is not None and self._rule.nit >= self._maxiter:
            return MAXITER, f"stopped at maxiter={self._maxiter}"
        if self._maxfev is not None and self._nfev >= self._maxfev:
            return MAXFEV, f"stopped at maxfev={self._maxfev}"
        return RUNNING, _UNDER_WAY

    def _seen(self, before: Points | None) -> bool:
        """Whether the current iterate needs no further evaluation."""
        if not self._nfev or self._rule.final_evaluations > 1:
            return False
        x = self._rule.x
        return np.array_equal(x, self._best) or (before is not None and holds(before, x))

    def _finish(self, status: int, message: str) -> None:
        settled = self._rule.settled
        if status == MAXFEV and settled is not None and self._fun >= settled.value:
            # The convergence test had held here, and the search around has found nothing lower.
            status, message = CONVERGED, f"{settled.why}; {message}"
        self._phase, self._status, self._message = None, status, message

    def stop(self, status: int, message: str) -> None:
        """End the search from outside."""
        self._finish(status, message)

    # --- saving --------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """A copy of all that a resumed search needs, partial answers included."""
        return {
            "version": VERSION,
            "settings": dict(self._settings),
            "limits": [self._maxfev, self._maxiter],
            "rule": self._rule.state_dict(),
            "best": self._best.copy(),
            "fun": float(self._fun),
            "first": float(self._first),
            "final": None if self._final is None else [self._final[0].copy(), self._final[1]],
            "counts": [self._nfev, self._nfailed, self._streak],
            "verdict": list(self._verdict),
            "end": [self._status, self._message],
            "asked": self._asked,
            "phase": None if self._phase is None else self._phase.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Resume a saved search. A state of another problem raises and changes nothing.

        This object's `maxfev` and `maxiter` apply: a search that ended at lower limits continues.
        """
        refuse_state(state, self._settings)
        backup = self._rule.state_dict()
        try:
            self._rule.load_state_dict(state["rule"])
            progress = Progress.read(state, len(self._best))
            other = state["limits"] != [self._maxfev, self._maxiter]
            other = other and progress.verdict[0] in _LIMITS
            saved, asked = state["phase"], bool(state["asked"])
            over = saved is None or (other and bool(saved["last"]))
            phase = None if over else Phase.restored(saved, self._rule)
            if saved is None and progress.end[0] == RUNNING:
                raise ValueError("a search under way without points")
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
            self._rule.load_state_dict(backup)
            raise ValueError(f"state is damaged: {error!r}") from None
        self._best, self._fun, self._first = progress.best, progress.fun, progress.first
        self._nfev, self._nfailed, self._streak = progress.counts
        self._verdict, (self._status, self._message) = progress.verdict, progress.end
        self._phase, self._asked, self._final = phase, asked, progress.final
        if other and over:
            self._final = None
            self._begin(None)


def _rule(x0: Vector, box: Box | None, rng: np.random.Generator, options: State) -> Rule:
    given = {name: options[name] for name in OPTIONS[options["method"]]}
    if options["method"] == "cocd":
        return Plain(x0, bounds=box, rng=rng, ftol=options["ftol"], **given)
    if options["method"] == "wasp":
        from .methods.wasp import Wasp

        return Wasp(x0, rng=rng, ftol=options["ftol"], **given)
    if options["method"] == "auto":
        from .methods.auto import Auto

        return Auto(x0, bounds=box, rng=rng, ftol=options["ftol"], **given)
    from .methods.evolution import Evolution

    return Evolution(x0, bounds=box, rng=rng, ftol=options["ftol"])
