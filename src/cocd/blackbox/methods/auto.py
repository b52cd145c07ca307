"""The automatic rule: no learning rate; each step finds its own length.

One step is two or three phases: the probes of a block, three trial points along the proposed step,
one more where a parabola through them is lowest. Along the whole vector (B = n) the steps are
conjugate directions; a block moves alone. `cocd.auto.direction` has the mechanism and why it is so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...auto.direction import scaled
from ...auto.line_search import Length, Search
from ...errors import NonFiniteLoss
from ...schedules import Cyclic
from ..radius import MEASUREMENTS, ROUNDING, measuring_points, radii, relative_noise, scales
from ..sides import Sides, sides_of
from .rule import Box, Points, Probes, Vector

_STEPS = 25  # that a limit should leave room for, where the budget is not given
_WIDE = 0.1  # the first radius, of a coordinate's scale: what is rough is smoothed
_NARROWER = 0.25  # the radius after a step that failed, of what it was
_FAR = 10.0  # no coordinate moves further than so many radii at once, nor
_SCALE = 1.0  # than this many times its scale


class Auto:
    """CoCD that needs no learning rate; `Rule` says what is asked of it."""

    def __init__(
        self,
        x0: Vector,
        *,
        lr: None,
        eps: float | None,
        compute_budget: int | None,
        memory_budget: int | None,
        decay: float | None,
        bounds: Box | None,
        nonfinite: str,
        ftol: float | None,
        rng: np.random.Generator,
    ) -> None:
        for name, value in (("memory_budget", memory_budget), ("decay", decay)):
            if value is not None:
                raise ValueError(
                    f"{name}={value!r} needs lr: without one only fresh estimates move x; give lr, "
                    f"or leave {name} out"
                )
        n = len(x0)
        self.x = x0.copy()
        self.nit = self.skipped = 0
        self.converged = ""
        self._box, self._ftol = bounds, ftol
        self._eps, self._B = eps, compute_budget
        self._signs = rng.choice([-1.0, 1.0], size=n)
        self._schedule = Cyclic(n)
        self._g, self._c = np.zeros(n), np.zeros(n)
        self._d = np.zeros(n)  # the last direction, and what the gradient was then:
        self._before, self._power = np.zeros(n), 0.0  # preconditioned, and its product with g
        self._radius = _WIDE  # of a coordinate's scale
        self._length = Length()
        self._f, self._noise = np.nan, 0.0
        self._phase = "start"
        self._search: Search | None = None
        self._spare: tuple[float, Vector] = (np.inf, self.x.copy())  # the best probe of a step
        self._recent: list[float] = []
        self._blind = False

    # --- asking --------------------------------------------------------------------------------

    def ask(self, limit: int | None) -> Points:
        """x0 and its neighbours; then, by turns, probes and trial points."""
        if self._phase == "start":
            points = measuring_points(self.x, self._signs, self._box)
            count = MEASUREMENTS if limit is None or limit >= 3 * MEASUREMENTS else 1
            return points[: min(count, len(points) if limit is None else max(limit, 0))]
        if self._phase == "probe":
            return self._probes(limit)
        assert self._search is not None
        lengths = self._search.lengths
        if limit is not None and limit < len(lengths):
            return np.empty((0, len(self.x)))
        return np.stack([self._inside(self.x + s * self._d) for s in lengths])

    def _probes(self, limit: int | None) -> Points:
        room = np.inf if limit is None else (limit - 1) // 2
        if self._B is None:
            n = len(self.x)
            self._B = int(min(n, max(1, np.inf if limit is None else room // _STEPS)))
        B = int(min(self._B, room))
        if B < 1:
            return np.empty((0, len(self.x)))
        block = np.concatenate([np.arange(*stretch) for stretch in self._schedule.next(B)])
        box = None if self._box is None else Box(self._box.lower[block], self._box.upper[block])
        self._sides = sides = sides_of(block, self.x[block], self._radii()[block], box)
        values = np.stack([sides.up, sides.down], axis=1).ravel()
        moved = ~np.isnan(values)
        return Probes(self.x, np.repeat(block, 2)[moved], values[moved])

    def _radii(self) -> Vector:
        if self._eps is not None:
            return np.full(len(self.x), self._eps)
        floor = radii(self.x, self._box, self._noise)
        return np.maximum(floor, self._radius * scales(self.x, self._box))

    def _inside(self, x: Vector) -> Vector:
        return x if self._box is None else np.clip(x, *self._box)

    # --- learning ------------------------------------------------------------------------------

    def tell(self, values: Vector) -> None:
        """Learn from a phase and begin the next."""
        if self._phase == "start":
            self._f = float(values[0])
            self._noise = relative_noise(values) if len(values) == MEASUREMENTS else 0.0
            self._phase = "probe"
        elif self._phase == "probe":
            self._propose(values)
        else:
            assert self._search is not None
            self._search.learn([float(v) for v in values])
            if not self._search.lengths:
                self._settle(self._search)

    def _propose(self, values: Vector) -> None:
        """From differences to a direction."""
        sides, moved = self._sides, self._sides.moved
        f = float(values[0])
        if not np.isfinite(f):  # it has been evaluated before: this time it failed
            f = self._f
        if not np.isfinite(f):
            raise NonFiniteLoss("fun cannot be evaluated at the current point")
        self._f = f
        probed = np.full(moved.shape, f)
        probed[moved] = values[1:]
        block, both = sides.block, moved.all(axis=1)
        g = (probed[:, 0] - probed[:, 1]) / sides.width
        g[~moved.any(axis=1)] = 0.0  # a coordinate that its bounds fix
        c = np.where(both, (probed[:, 0] - 2 * f + probed[:, 1]) / (sides.width / 2) ** 2, 0.0)
        good = np.isfinite(g) & np.isfinite(c)
        self.skipped += int((~good).sum())
        if 2 * good.sum() < len(good):
            self._recent = []  # where most probes failed, that nothing is lower shows nothing
            self._blind = True
        self._keep_spare(sides, probed)
        g, c = np.where(good, g, 0.0), np.where(good, c, 0.0)
        c = np.where(both, c, self._c[block])
        self._schedule.advance(len(block))
        self._g[block], self._c[block] = g, c
        self._d = self._direction(block, sides.width)
        slope = float(self._g[block] @ self._d[block])
        if slope >= 0 or not np.isfinite(slope):
            self._fail()
            return
        self._search = Search(f, slope, self._length.value)
        self._phase = "trial"

    def _keep_spare(self, sides: Sides, probed: Vector) -> None:
        """The best of the probes, which a step that finds nothing can fall back on."""
        lowest = np.where(np.isfinite(probed), probed, np.inf)
        k, side = np.unravel_index(int(lowest.argmin()), lowest.shape)
        point = self.x.copy()
        end = (sides.up, sides.down)[side][k]
        if np.isfinite(end):
            point[sides.block[k]] = end
        self._spare = (float(lowest[k, side]), point)

    def _direction(self, block: Any, width: Vector) -> Vector:
        """Scaled by curvature; conjugate to the last one where all of x was probed."""
        x, g = self.x[block], self._g[block]
        reach = np.minimum(_FAR * width, _SCALE * scales(x, None))
        floor = 8 * max(ROUNDING, self._noise) * max(abs(self._f), 1e-300) / (width / 2) ** 2
        floor = np.maximum(floor, 1e-12 * np.abs(self._c).max(initial=1e-300))
        # One by one: here a coordinate that is far off must not hold up the others.
        p = np.clip(scaled(g, self._c[block], floor), -reach, reach)
        if self._box is not None:  # what points out of the box stays
            out = (x <= self._box.lower[block]) & (p < 0) | (x >= self._box.upper[block]) & (p > 0)
            p[out] = 0.0
        d = np.zeros_like(self.x)
        d[block] = p
        power = -float(g @ p)
        if len(block) == len(self.x):
            change = float((g - self._before) @ -p)
            beta = change / self._power if self._power > 0 else 0.0
            if 0 < beta < 10 and float(g @ (p + beta * self._d)) < -1e-3 * power:
                d += beta * self._d
            self._before, self._power = g.copy(), power
        return d

    def _settle(self, search: Search) -> None:
        """Move to the best of what was seen, or make everything smaller."""
        self._length.observe(search.length, search.best)
        spare, point = self._spare
        if not min(search.value, spare) < self._f:
            self._fail()
            return
        if search.value <= spare:
            new, f = self._inside(self.x + search.best * self._d), search.value
        else:
            new, f = point, spare
            self._power = 0.0
        moved = float(np.max(np.abs(new - self.x) / scales(self.x, self._box)))
        if self._eps is None and search.best:
            self._radius = float(np.clip(moved, _NARROWER * self._radius, self._radius))
        self.x[:] = new
        self._f = f
        self._finish()

    def _fail(self) -> None:
        """No point was lower."""
        self._power = 0.0
        self._d[:] = 0.0
        narrow = self._eps is not None or bool(
            np.all(self._radii() <= radii(self.x, self._box, self._noise))
        )
        self._radius *= _NARROWER
        self._finish(stuck=narrow)

    def _finish(self, stuck: bool = False) -> None:
        self._phase, self._search = "probe", None
        self.nit += 1
        if self._ftol is None:
            return
        assert self._B is not None
        steps = 3 * -(-len(self.x) // self._B) + 2
        self._recent = [*self._recent[1 - steps :], self._f]
        if self._blind:
            self._recent, self._blind = [], False
            return
        low, high = min(self._recent), max(self._recent)
        narrow = stuck or self._eps is not None or self._radius < 1e-3
        small = high - low <= self._ftol * max(abs(low), abs(high), 1e-300)
        if len(self._recent) == steps and narrow and small:
            self.converged = (
                f"converged: fun changed by at most {high - low:.3g} over three sweeps of all "
                f"coordinates (ftol={self._ftol:g})"
            )

    # --- saving --------------------------------------------------------------------------------

    _PLAIN = ("nit", "skipped", "converged", "_radius", "_f", "_noise", "_phase", "_power", "_B")
    _ARRAYS = ("x", "_g", "_c", "_d", "_before", "_signs")

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        search = self._search
        return {
            **{name: getattr(self, name) for name in self._PLAIN},
            **{name: getattr(self, name).copy() for name in self._ARRAYS},
            "schedule": self._schedule.state_dict(),
            "length": self._length.value,
            "recent": list(self._recent),
            "spare": [self._spare[0], self._spare[1].copy()],
            "search": None
            if search is None
            else {
                "f0": search.f0,
                "slope": search.slope,
                "length": search.length,
                "lengths": list(search.lengths),
                "seen": [list(pair) for pair in search.seen],
                "rounds": search.rounds,
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where another one stopped."""
        for name in self._PLAIN:
            setattr(self, name, state[name])
        for name in self._ARRAYS:
            getattr(self, name)[:] = state[name]
        self._schedule.load_state_dict(state["schedule"])
        self._length = Length(float(state["length"]))
        self._recent = [float(f) for f in state["recent"]]
        self._spare = (float(state["spare"][0]), np.array(state["spare"][1], dtype=np.float64))
        saved = state["search"]
        self._search = None
        if saved is not None:
            self._search = Search(
                saved["f0"],
                saved["slope"],
                saved["length"],
                lengths=[float(s) for s in saved["lengths"]],
                seen=[(float(s), float(v)) for s, v in saved["seen"]],
                rounds=int(saved["rounds"]),
            )
