"""The WASP method: probe slopes along the vectors of a basis one by one until they agree."""

from __future__ import annotations

from math import isfinite, sqrt

import numpy as np
import torch

from ...basis import named
from ...errors import NonFiniteLoss
from ...parts.stop import agrees
from ...parts.types import State
from ..radius import ROUNDING, scales
from .rule import Points, Vector
from .saving import fields, restore

TOLERANCE = 1.1  # from the paper: slopes within this factor of each other agree
_LARGEST_ROTATION = 1000  # the most coordinates for which a dense rotation is the default

_SAVED = ("x", "nit", "skipped", "converged", "_seed", "_slopes", "_next", "_made")
_LOOKED = ("_f", "_known", "_low", "_high", "_calm")


class Wasp:
    """WASP with a given learning rate; implements `Rule`.

    It does what `cocd.baselines.WASP` does to a float64 parameter, up to rounding. A phase is one
    probe, because its value decides whether another follows; the first phase of a step adds x_t.
    """

    settled = averaged = None
    final_evaluations = 1

    def __init__(
        self,
        x0: Vector,
        *,
        lr: float,
        eps: float | None,
        compute_budget: int | None,
        basis: str | None,
        ftol: float | None,
        rng: np.random.Generator,
    ) -> None:
        n = len(x0)
        self.x = x0.copy()
        self.nit = self.skipped = 0
        self.converged = ""
        self._lr, self._eps, self._ftol = lr, eps, ftol
        self._most = n if compute_budget is None else compute_budget
        self._kind = basis or ("rotation" if n <= _LARGEST_ROTATION else "hadamard")
        self._seed = int(rng.integers(2**31))
        self._basis = named(self._kind, n, self._seed)
        self._slopes = np.zeros(n)
        self._next = 0  # the vector that is probed next
        self._made = 0  # probes of this step
        self._f, self._known = 0.0, False  # f(x_t), once it is known
        self._low, self._high, self._calm = np.inf, -np.inf, 0  # for `converged`

    # --- asking --------------------------------------------------------------------------------

    def ask(self, limit: int | None) -> Points:
        """One probe, preceded by x_t if f(x_t) is not known."""
        u = self._basis.vector(self._next).numpy()
        probe = (self.x + self._radius * u)[None]
        points = probe if self._known else np.vstack([self.x, probe])
        return points if limit is None or len(points) <= limit else points[:0]

    @property
    def _radius(self) -> float:
        """The square root of rounding balances the errors rounding / h and O(h)."""
        return (
            sqrt(ROUNDING) * float(scales(self.x, None).max()) if self._eps is None else self._eps
        )

    # --- learning ------------------------------------------------------------------------------

    def tell(self, values: Vector) -> None:
        """Store the slope; move if it agrees with the one that it replaces."""
        if not self._known:
            self._f, self._known = float(values[0]), True
        fresh = (float(values[-1]) - self._f) / self._radius
        stale = float(self._slopes[self._next])
        if isfinite(fresh):
            self._slopes[self._next] = fresh
        else:
            self.skipped += 1
        self._next = (self._next + 1) % len(self.x)
        self._made += 1
        self._watch(float(values[-1]))
        enough = agrees(fresh, stale, TOLERANCE) or self._made >= self._most
        if enough or not isfinite(self._f):  # without f(x_t) no probe tells anything
            self._move()

    def _move(self) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            x = self.x - self._lr * self._basis.combine(torch.from_numpy(self._slopes)).numpy()
        if not np.isfinite(x).all():
            raise NonFiniteLoss(f"x overflows in step {self.nit + 1}: lr={self._lr:g} is too large")
        self.x = x
        self.nit += 1
        self._made, self._f, self._known = 0, 0.0, False

    def _watch(self, probe: float) -> None:
        """Set `converged` if over a sweep f(x_t) has not changed and no probe was lower."""
        if self._ftol is None:
            return
        low, high = min(self._low, self._f), max(self._high, self._f)
        much = self._ftol * max(abs(low), abs(high), 1.0)
        if high - low <= much and self._f - probe <= much:  # False where one of them is NaN
            self._low, self._high, self._calm = low, high, self._calm + 1
        else:
            self._low, self._high, self._calm = np.inf, -np.inf, 0
        if self._calm > len(self.x):
            self.converged = (
                f"converged: fun changed by at most {high - low:.3g} over probes along all "
                f"{len(self.x)} vectors of the basis, which were no lower (ftol={self._ftol:g})"
            )

    # --- saving --------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything that a resumed run needs; the basis follows from its seed."""
        return fields(self, _SAVED + _LOOKED)

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state."""
        restore(self, state, _SAVED + _LOOKED)
        if not self._next < len(self.x):
            raise ValueError(f"next is {self._next}")
        self._basis = named(self._kind, len(self.x), self._seed)
