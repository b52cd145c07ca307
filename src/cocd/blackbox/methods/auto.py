"""The automatic method: no learning rate, and a sequence of stages that depends on the function.

It measures the noise at x0 and runs a `Descent`. If noise hides what steps gain, an `Averaging`
follows. If no nearby point is lower, a `CoordinateScan` follows, then a `Continuation` from a wide
radius and a descent from its end, until several attempts in a row find nothing lower.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...parts.types import State
from ..radius import MEASUREMENTS, TABLE, measuring_points, relative_noise
from .averaging import Averaging
from .continuation import Continuation
from .coordinate_scan import CoordinateScan
from .curvature_pairs import CurvaturePairs
from .descent import Descent
from .rule import Box, Points, Settled, Vector
from .saving import fields, restore
from .surface import Surface

Stage = Descent | Averaging | CoordinateScan | Continuation

_SWEEPS = 8  # sweeps that a limit should leave room for if compute_budget is None
_QUIETER = 0.1  # fraction of the earlier noise at which values can be compared again
_WIDTHS = (1.0, 3.0, 0.5, 2.0, 6.0)  # first radii of successive continuations, in units of scale
_LOOKED = (2.0, 1.0, 4.0, 0.5)  # first radii of successive coordinate scans, in units of scale
_LOOKS = 10  # evaluations averaged at the last iterate with noise
# If fun falls without bound, differences overflow; values that are not finite are not used.
_EXTREMES: Any = {"over": "ignore", "invalid": "ignore", "divide": "ignore"}
_ATTEMPTS = 10  # in a row that find nothing lower


class Auto:
    """CoCD without a learning rate; implements `Rule`."""

    def __init__(
        self,
        x0: Vector,
        *,
        eps: float | None,
        compute_budget: int | None,
        bounds: Box | None,
        ftol: float | None,
        rng: np.random.Generator,
    ) -> None:
        self._x0 = x0.copy()
        self._never = ftol is None
        self._ftol, self._B, self._rng = ftol or 0.0, compute_budget, rng
        self.surface = Surface(len(x0), bounds, eps)
        self._signs = rng.choice([-1.0, 1.0], size=len(x0))
        self._stage: Stage | None = None
        self.converged = ""
        self.settled: Settled | None = None
        self._steps = self._skips = 0  # of the stages that are over
        self._best, self._lowest = x0.copy(), np.inf  # end of the lowest descent so far
        self._bend = np.zeros(len(x0))  # curvatures at `_best`
        self._why = ""  # why that descent ended
        self._kink = False  # whether slopes jump at `_best`
        self._first = 0.0  # f(x0)
        self._attempts = self._vain = 0

    @property
    def x(self) -> Vector:
        """The current iterate."""
        return self._x0 if self._stage is None else self._stage.x

    @property
    def nit(self) -> int:
        """Completed steps."""
        return self._steps + (0 if self._stage is None else self._stage.steps)

    @property
    def skipped(self) -> int:
        """Estimates not stored because an evaluation failed."""
        return self._skips + (0 if self._stage is None else self._stage.skipped)

    @property
    def averaged(self) -> tuple[Vector, float] | None:
        """With noise: the last evaluated point and its mean value."""
        stage = self._stage
        if stage is None or not self.surface.noise:
            return None
        return stage.at if isinstance(stage, Averaging) else (stage.x, stage.f)

    @property
    def final_evaluations(self) -> int:
        """Evaluations of the last iterate: several with noise, otherwise one."""
        return _LOOKS if self.surface.noise else 1

    def ask(self, limit: int | None) -> Points:
        """x0 and its neighbours first, then the points of the current stage."""
        if self._stage is not None:
            with np.errstate(**_EXTREMES):
                return self._stage.ask(limit)
        if self._B is None:
            n = len(self._x0)
            room = n if limit is None else (limit - MEASUREMENTS) // (2 * _SWEEPS)
            self._B = int(np.clip(room, 1, n))
        points = measuring_points(self._x0, self._signs, self.surface.box)
        count = MEASUREMENTS if limit is None or limit >= 3 * MEASUREMENTS else 1
        return points[: min(count, len(points) if limit is None else max(limit, 0))]

    def tell(self, values: Vector) -> None:
        """Learn from a phase and begin the next."""
        with np.errstate(**_EXTREMES):
            self._learn(values)

    def _learn(self, values: Vector) -> None:
        if self._stage is None:
            if len(values) == MEASUREMENTS:
                self.surface.measure(values[:TABLE], relative_noise(values))
            self._first = float(values[0])
            self._stage = self._descent(self._x0, self._first)
            return
        self._stage.tell(values)
        following = self._following(self._stage)
        if following is not None:
            self._steps += self._stage.steps
            self._skips += self._stage.skipped
            self._stage = following

    def _descent(self, x: Vector, f: float, known: bool = True) -> Descent:
        assert self._B is not None
        return Descent(self.surface, x, f, self._B, self._ftol, known)

    def _following(self, stage: Stage) -> Stage | None:
        """The next stage, or None if this one continues; sets `converged` at the end."""
        surface = self.surface
        if isinstance(stage, Averaging):
            if surface.noise >= _QUIETER * stage.began:
                return None
            following = self._descent(stage.x, stage.f, known=False)
            following.inherit(stage.c, stage.pairs)
            return following
        if isinstance(stage, Continuation):
            if not stage.done:
                return None
            descent = self._descent(stage.x, stage.f, known=False)
            descent.enough = self._lowest
            return descent
        if isinstance(stage, CoordinateScan):
            if not stage.done:
                return None
            lower = stage.lowest < self._lowest
            if lower and not stage.rippled:
                return self._descent(stage.where, stage.lowest)
            if not lower and not self._never:
                self.settled = Settled(self._lowest, self._why)
            width = _WIDTHS[self._attempts % len(_WIDTHS)]
            return Continuation(surface, self._best, self._lowest, width, self._rng)
        if stage.lost:
            return Averaging(surface, stage.x, stage.f, stage.c, stage.pairs)
        if not stage.done:
            return None
        gained = self._lowest - stage.f
        much = self._ftol * max(abs(stage.f), min(1.0, self._first - stage.f))
        self._vain = 0 if gained > much else self._vain + 1
        if gained > 0:
            self._best, self._lowest, self._bend = stage.x.copy(), stage.f, stage.c.copy()
            self._kink = stage.kink
            self._why = f"converged: {stage.done} (ftol={self._ftol:g}), {self._around}"
        alone = surface.noise > 0 or surface.eps is not None  # wider radii are no use here
        if not self._never and (alone or self._vain > _ATTEMPTS):
            self.converged = self._why
            return None
        self._attempts += 1
        width = _LOOKED[self._attempts % len(_LOOKED)]
        bend, kink = self._bend, self._kink
        return CoordinateScan(surface, self._best, self._lowest, bend, width, self._rng, kink)

    @property
    def _around(self) -> str:
        if self.surface.eps is not None:
            return f"with probes at eps={self.surface.eps:g} alone"
        if self.surface.noise:
            return "its surroundings not searched"
        return "no lower point nearby" + (
            " along coordinates and random lines; it is at a kink, where others may lead down"
            if self._kink
            else ""
        )

    # --- saving --------------------------------------------------------------------------------

    _FIELDS: tuple[str, ...] = (
        *("_signs", "converged", "_steps", "_skips", "_attempts", "_vain"),
        *("_first", "_best", "_lowest", "_bend", "_kink"),
    )

    def state_dict(self) -> State:
        """Everything that a resumed run needs."""
        stage = self._stage
        return {
            **fields(self, self._FIELDS),
            "B": self._B,
            "why": self._why,
            "settled": None if self.settled is None else list(self.settled),
            "surface": self.surface.state_dict(),
            "random": self._rng.bit_generator.state,
            "stage": None if stage is None else [type(stage).__name__, stage.state_dict()],
        }

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state."""
        restore(self, state, self._FIELDS)
        B = state["B"]
        if B is not None and not (isinstance(B, int) and 1 <= B <= len(self._x0)):
            raise ValueError(f"compute_budget is {B!r}")
        self._B = B
        self._why = str(state["why"])
        settled = state["settled"]
        self.settled = None if settled is None else Settled(float(settled[0]), str(settled[1]))
        self.surface.load_state_dict(state["surface"])
        self._stage = None
        if state["stage"] is not None:
            name, saved = state["stage"]
            self._stage = self._empty(name)
            self._stage.load_state_dict(saved)
        self._rng.bit_generator.state = state["random"]  # last: `_empty` may draw

    def _empty(self, name: str) -> Stage:
        x = self._x0
        if name not in ("Averaging", "CoordinateScan", "Continuation", "Descent"):
            raise ValueError(f"there is no stage {name!r}")
        if name == "Averaging":
            return Averaging(self.surface, x, 0.0, np.zeros(len(x)), CurvaturePairs(len(x)))
        if name == "CoordinateScan":
            return CoordinateScan(self.surface, x, 0.0, np.zeros(len(x)), 1.0, self._rng)
        if name == "Continuation":
            return Continuation(self.surface, x, 0.0, 1.0, self._rng)
        return Descent(self.surface, x, 0.0, self._B or 1, self._ftol)
