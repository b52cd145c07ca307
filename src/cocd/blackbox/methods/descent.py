"""Descend along finite differences; a line search chooses the length of each step.

A step has two or three phases: the probes of a block, three trial points along the direction, and
perhaps one more at the minimum of a parabola through them. If a block is the whole vector (B = n),
directions use the curvature seen in the last steps (`curvature_pairs`), or are conjugate if that
does not pay; a smaller block moves alone. `cocd.auto.direction` explains the mechanism.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...auto.direction import scaled
from ...auto.line_search import Length, Search
from ...errors import NonFiniteLoss
from ...parts.types import State
from ...schedules import Cyclic
from ..radius import ROUNDING
from ..stencil import Stencil
from . import hessian as hessians
from .curvature_pairs import CurvaturePairs
from .hessian import Demand, Hessian
from .rule import Points, Vector
from .saving import fields, numbers, restore, search_of, search_state
from .surface import Surface, differences, probes

WIDE = 0.1  # the first radius, in units of scale: wide enough to smooth roughness
_NARROWER = 0.25  # factor on the radius after a failed step
_WIDER = 4.0  # factor on the radius on a plateau
_WIDEST = 1e3  # the largest radius on a plateau, in units of scale
_NARROW = 1e-3  # the radius must fall below this before convergence counts
_FAR = 10.0  # the furthest a coordinate moves: this many probe widths (or scales, with pairs)
_SCALE = 1.0  # without pairs also at most this many times its scale
_PAID = 0.05  # if pairs gain a smaller part of what the slope promised, they are dropped
_REST = 5  # steps without pairs after that
_CLEAR = 3.0  # the lowest of a few values must gain this many times the noise
_FAITHFUL = 0.1  # a search that ends at a smaller part of the Hessian's step refutes the Hessian
_CLOSER = 0.4  # of the last radius: close enough to tell a kink from a smooth curve
_ROUNDING = 1e3 * ROUNDING  # second differences below this part of the value are rounding
_SWEEPS = 2  # sweeps without change that mean convergence


class Descent:
    """Descends from x until nothing nearby is lower; `done` is the reason, or empty."""

    def __init__(
        self, surface: Surface, x: Vector, f: float, B: int, ftol: float, known: bool = True
    ) -> None:
        """`f` is the value at x, or that of a nearby point if not `known`."""
        n = len(x)
        self._known = known
        self.surface, self._ftol, self._B = surface, ftol, B
        self.x, self.f, self.steps, self.skipped, self.done = x.copy(), f, 0, 0, ""
        self.enough = np.inf  # a value: the descent ends if progress towards it is too slow
        self.g, self.c = np.zeros(n), np.zeros(n)
        self.pairs = CurvaturePairs(n)
        self._schedule = Cyclic(n)
        self._radius = WIDE  # of a coordinate's scale
        self._length, self._own = Length(), Length()  # for conjugate directions; for pairs
        self._rest = 0
        self._d, self._before, self._power = np.zeros(n), np.zeros(n), 0.0
        self._from: Vector | None = None  # x at the last whole sweep; then its slopes
        self._slopes = np.zeros(n)
        self._search: Search | None = None
        self._quasi = False
        self._spare: tuple[float, Vector] = (np.inf, self.x.copy())  # the best probe of a step
        self._recent: list[float] = []
        self._first = f
        self._hessian: Hessian | None = None
        self._demand = Demand()
        self._plateau = False  # whether the radius was widened because x is on a plateau
        self._whole = False  # whether the last block was all of x
        self._width = np.zeros(n)  # of the last differences
        self.kink = False  # whether slopes jump at x
        self._parabolic = True  # whether a smaller radius shows the same curvature
        self.lost = False  # whether noise hides what steps gain

    def inherit(self, c: Vector, pairs: CurvaturePairs) -> None:
        """Start with the curvature that another stage has found."""
        self.c, self.pairs = c.copy(), pairs
        self._radius = _NARROW

    # --- asking --------------------------------------------------------------------------------

    def ask(self, limit: int | None) -> Points:
        """The next probes or trial points."""
        if (hessian := self._unfinished) is not None:
            points = hessian.ask()
            return points if limit is None or len(points) <= limit else np.empty((0, len(self.x)))
        if self._search is None:
            return self._probes(limit)
        lengths = self._search.lengths
        if limit is not None and limit < len(lengths):
            return np.empty((0, len(self.x)))
        return np.stack([self.surface.inside(self.x + s * self._d) for s in lengths])

    def _probes(self, limit: int | None) -> Points:
        B = self._B if limit is None else min(self._B, (limit - 1) // 2)
        if B < 1:
            return np.empty((0, len(self.x)))
        block = np.concatenate([np.arange(*stretch) for stretch in self._schedule.next(B)])
        h = self._radii()
        self._measuring = self._wants_hessian(block, limit)
        if self._measuring:
            size = self.surface.scales(self.x)
            h = np.maximum(h, hessians.radii(size, self.f, self.c))
        self._stencil = self.surface.stencil(block, self.x, h)
        return probes(self.x, self._stencil)

    def _radii(self) -> Vector:
        if self.surface.eps is not None:
            return np.full(len(self.x), self.surface.eps)
        least = self.surface.least(self.x, self.f, self.c)
        return np.maximum(least, self._radius * self.surface.scales(self.x))

    @property
    def _unfinished(self) -> Hessian | None:
        return None if self._hessian is None or self._hessian.done else self._hessian

    def _wants_hessian(self, block: NDArray[np.intp], limit: int | None) -> bool:
        whole = len(block) == len(self.x) and not block[0] and len(self.pairs) > 0
        calm = not (self._rest or self.surface.noise or self._plateau)
        return whole and calm and self._demand.due(len(self.x), limit)

    # --- learning ------------------------------------------------------------------------------

    def tell(self, values: Vector) -> None:
        """Learn from a phase and begin the next."""
        if (hessian := self._unfinished) is not None:
            hessian.tell(values)
            if self._unfinished is None:
                self.pairs.clear()
                self._own = Length()
                self._demand.met()
                self._go(np.arange(len(self.x)), self._width)
            return
        self._demand.spent += len(values)
        if self._search is None:
            self._propose(values)
            return
        self._search.learn([float(v) for v in values])
        if not self._search.lengths:
            self._settle(self._search)

    def _propose(self, values: Vector) -> None:
        """Turn the differences of a block into a search direction."""
        stencil, f = self._stencil, float(values[0])
        if self._known:
            self.surface.twice(self.f, f)
        self._known = True
        if not np.isfinite(f):  # this evaluation failed; use the earlier value
            f = self.f
        if not np.isfinite(f):
            raise NonFiniteLoss("fun cannot be evaluated at the current point")
        self.f = f
        g, c, seen = differences(stencil, f, values[1:])
        good = np.isfinite(g)
        self.skipped += int((~good).sum())
        block = stencil.block
        self._whole = len(block) == len(self.x)
        self._keep_spare(stencil, seen)
        self._schedule.advance(len(block))
        if 2 * good.sum() < len(good):  # too few probes to conclude that nothing is lower
            self._recent = []
            self._fail()
            return
        self._compare_radii(stencil, f, c)
        self.g[block] = np.where(good, g, 0.0)
        self.c[block] = np.where(np.isfinite(c), c, np.where(good, self.c[block], 0.0))
        if not (g[good].any() or self.c[block].any() or (seen != f).any()):
            self._widen()
            return
        if self._measuring and good.all():
            self._hessian = Hessian.begun(self.x, f, stencil, seen, self.c)
            return
        self._go(block, stencil.width)

    def _go(self, block: NDArray[np.intp], width: Vector) -> None:
        """Begin a line search."""
        self._d = self._direction(block, width)
        slope = float(self.g[block] @ self._d[block])
        if slope >= 0 or not np.isfinite(slope):
            self._fail()
            return
        self._search = Search(self.f, slope, (self._own if self._quasi else self._length).value)

    def _compare_radii(self, stencil: Stencil, f: float, c: Vector) -> None:
        """Detect kinks: a smaller radius raises the curvature at a kink, not of a parabola."""
        block, h = stencil.block, stencil.width / 2
        before, old = self._width[block] / 2, np.abs(self.c[block])
        closer = (h <= _CLOSER * before) & (before > 0)
        if closer.any():
            seen = closer & (np.abs(c) * h * h > _ROUNDING * abs(f))
            self.kink = bool((seen & (c * h > 0.5 * old * before)).any())
            self._parabolic = not (seen & ((np.abs(c) > 2 * old) | (np.abs(c) < 0.5 * old))).any()
        self._width[block] = stencil.width

    def _widen(self) -> None:
        """Widen the radius on a plateau; end if the function is flat at the widest radius."""
        x, eps = self.x, self.surface.eps
        size, box = self.surface.scales(x), self.surface.box
        far = _WIDEST * size if box is None else np.minimum(_WIDEST * size, box.upper - box.lower)
        if eps is not None or (self._radii() >= far).all():
            self._end(f"fun is the same at all radii up to {float(self._radii().max()):g}")
            return
        self._radius *= _WIDER
        self._plateau = True
        self.steps += 1

    def _keep_spare(self, stencil: Stencil, seen: Vector) -> None:
        """Keep the best probe, in case the line search finds nothing lower."""
        lowest = np.where(np.isfinite(seen), seen, np.inf)
        k, side = np.unravel_index(int(lowest.argmin()), lowest.shape)
        point = self.x.copy()
        end = (stencil.up, stencil.down)[side][k]
        if np.isfinite(end):
            point[stencil.block[k]] = end
        self._spare = (float(lowest[k, side]), point)

    def _direction(self, block: NDArray[np.intp], width: Vector) -> Vector:
        """Use pairs or conjugacy if all of x was probed, otherwise only scale by curvature."""
        x, g, surface = self.x[block], self.g[block].copy(), self.surface
        if surface.box is not None:  # a coordinate at its bound does not move outwards
            low, high = surface.box.lower[block], surface.box.upper[block]
            g[(x <= low) & (g > 0) | (x >= high) & (g < 0)] = 0.0
        noise = max(ROUNDING * max(abs(self.f), 1e-300), surface.noise)
        floor = 8 * noise / (width / 2) ** 2
        floor = np.maximum(floor, 1e-12 * np.abs(self.c).max(initial=1e-300))
        self._quasi = False
        if self._whole:
            self._learn_pair(noise / float(width.min()))
            if self._rest:
                self._rest -= 1
            elif len(self.pairs) or self._hessian is not None:
                d = self.pairs.direction(g, self._inverse(g, floor))
                if float(g @ d) < 0 and np.isfinite(d).all():
                    self._quasi, self._power = True, 0.0
                    reach = _FAR * surface.scales(self.x)
                    return d * min(1.0, float((reach / np.maximum(np.abs(d), 1e-300)).min()))
        # Clip each coordinate separately, so that a distant one does not slow the others.
        reach = np.minimum(_FAR * width, _SCALE * surface.scales(self.x)[block])
        p = np.clip(scaled(g, self.c[block], floor), -reach, reach)
        d = np.zeros_like(self.x)
        d[block] = p
        power = -float(g @ p)
        if self._whole:
            change = float((g - self._before) @ -p)
            beta = change / self._power if self._power > 0 else 0.0
            if 0 < beta < 10 and float(g @ (p + beta * self._d)) < -1e-3 * power:
                d += beta * self._d
            self._before, self._power = g.copy(), power
        return d

    def _inverse(self, g: Vector, floor: Vector) -> Vector | Callable[[Vector], Vector]:
        """The initial inverse Hessian: measured, or from the curvature along coordinates."""
        measured = self._hessian
        if measured is None:
            return np.asarray(1 / (np.abs(self.c) + floor))
        return lambda q: measured.solve(q, g != 0)

    def _learn_pair(self, error: float) -> None:
        """Add a pair of the last two whole sweeps if slopes changed by more than their error."""
        if self._from is not None:
            y = self.g - self._slopes
            if float(y @ y) > 4 * len(y) * error * error:
                self.pairs.add(self.x - self._from, y)
        self._from, self._slopes = self.x.copy(), self.g.copy()

    def _settle(self, search: Search) -> None:
        """Move to the lowest point seen, or narrow the radius if none is lower."""
        (self._own if self._quasi else self._length).observe(search.length, search.best)
        spare, point = self._spare
        lower = min(search.value, spare)
        if self.f - lower < _CLEAR * self.surface.noise and self._hidden():
            self.lost = True
            return
        promised = -search.slope * search.best
        share = (self.f - search.value) / promised if self._quasi and promised > 0 else 0.0
        self._demand.stepped(share)
        if self._quasi and not share > _PAID:
            self.pairs.clear()
            self._drop_hessian()
            self._rest, self._own = _REST, Length()
        elif self._quasi and search.best < _FAITHFUL:
            self._drop_hessian()
        if not lower < self.f:
            self._fail()
            return
        if search.value <= spare:
            new = self.surface.inside(self.x + search.best * self._d)
        else:
            new = point
            self._power = 0.0
        moved = float(np.max(np.abs(new - self.x) / self.surface.scales(self.x)))
        if self.surface.eps is None and search.best:
            self._radius = float(np.clip(moved, _NARROWER * self._radius, self._radius))
        self.x[:] = new
        self.f = lower
        self._plateau = False
        self._finish()

    def _drop_hessian(self) -> None:
        """Drop the measured Hessian, because its steps gain less than predicted."""
        if self._hessian is not None:
            self._hessian = None
            self._demand.refused()

    def _narrow(self) -> bool:
        """Whether the radius is as small as it can be."""
        if self.surface.eps is not None:
            return True
        return bool(np.all(self._radii() <= self.surface.least(self.x, self.f, self.c)))

    def _hidden(self) -> bool:
        """Whether noise hides what a step gains, because the radius cannot be smaller."""
        return self._whole and self._narrow()

    def _fail(self) -> None:
        """End or narrow the radius after a step that found no lower point."""
        if self._plateau and self._whole:
            self._end(
                f"fun is flat here, with no lower value within {float(self._radii().max()):.3g}"
            )
            return
        self._power = 0.0
        self._d[:] = 0.0
        if self.surface.noise and self._hidden():
            self.lost = True
        narrow = self._narrow()
        self._radius *= _NARROWER
        self._finish(stuck=narrow, failed=True)

    def _finish(self, stuck: bool = False, failed: bool = False) -> None:
        self._search = None
        self.steps += 1
        steps = _SWEEPS * -(-len(self.x) // self._B) + 2
        self._recent = [*self._recent[1 - steps :], self.f]
        if len(self._recent) < steps:
            return
        change = max(self._recent) - min(self._recent)
        # A failed step may only mean that its radius was too wide.
        shown = self._radius < _NARROW and (not failed or self._parabolic)
        narrow = stuck or self.surface.eps is not None or shown
        if narrow and change <= self._ftol * max(abs(self.f), min(1.0, self._first - self.f)):
            self._end(f"fun changed by at most {change:.3g} over {_SWEEPS} sweeps")
        elif self.f - self.enough > 20 * change:
            self._end("others are lower")

    def _end(self, why: str) -> None:
        self._search, self.done = None, why
        self.steps += 1

    # --- saving --------------------------------------------------------------------------------

    _FIELDS = (
        *("x", "f", "g", "c", "steps", "skipped", "done", "enough", "lost", "kink"),
        *("_B", "_radius", "_rest", "_d", "_before", "_power", "_slopes", "_quasi", "_first"),
        *("_plateau", "_known", "_parabolic", "_width", "_whole"),
    )

    def state_dict(self) -> State:
        """Everything that a resumed run needs."""
        return {
            **fields(self, self._FIELDS),
            "pairs": self.pairs.state_dict(),
            "schedule": self._schedule.state_dict(),
            "lengths": [self._length.value, self._own.value],
            "from": None if self._from is None else self._from.copy(),
            "recent": list(self._recent),
            "demand": self._demand.state_dict(),
            "hessian": None if self._hessian is None else self._hessian.state_dict(),
            "spare": [self._spare[0], self._spare[1].copy()],
            "search": search_state(self._search),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state."""
        restore(self, state, self._FIELDS)
        n = len(self.x)
        if not 1 <= self._B <= n:
            raise ValueError(f"compute_budget is {self._B}")
        self.pairs.load_state_dict(state["pairs"])
        self._schedule.load_state_dict(state["schedule"])
        self._length, self._own = map(Length, numbers(state["lengths"]))
        if min(self._length.value, self._own.value, self._radius) <= 0:
            raise ValueError("a length is not above 0")
        vector = state["from"]
        self._from = None if vector is None else np.array(vector, dtype=np.float64).reshape(n)
        self._recent = numbers(state["recent"])
        self._demand.load_state_dict(state["demand"])
        self._hessian = None
        if state["hessian"] is not None:
            self._hessian = Hessian.empty(n)
            self._hessian.load_state_dict(state["hessian"])
        lowest, point = state["spare"]
        self._spare = (numbers([lowest])[0], np.array(point, dtype=np.float64).reshape(n))
        self._search = search_of(state["search"])
