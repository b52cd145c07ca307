"""The paper's method: one phase has f(x_t) and 2B probes, and makes one step."""

from __future__ import annotations

import numpy as np
import torch

from ...errors import NonFiniteLoss
from ...parts.layout import Layout
from ...parts.memory import Memory
from ...parts.types import State
from ...parts.update import descend, descend_whole
from ...schedules import Cyclic
from ..radius import MEASUREMENTS, measuring_points, radii, relative_noise
from ..stencil import Stencil, stencil_of
from .rule import Box, Points, Probes, Vector

DEFAULT_BUDGET = 32  # coordinates per step by default: enough to keep many workers busy


class Plain:
    """CoCD with a given learning rate; implements `Rule`.

    It reproduces the numbers of `cocd.CoCD` on a float64 parameter: the same schedule, memory and
    update act on a view of x. With bounds, a coordinate without room for ±eps is probed only on
    the side with more room, and iterates are clipped.
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
        memory_budget: int | None,
        decay: float | None,
        bounds: Box | None,
        ftol: float | None,
        rng: np.random.Generator,
    ) -> None:
        n = len(x0)
        self.x = x0.copy()
        self.nit = self.skipped = 0
        self.converged = ""
        self._lr, self._eps, self._ftol = lr, eps, ftol
        self._gamma = 1.0 if decay is None else decay
        most = n if memory_budget is None else memory_budget
        self._B = min(most, DEFAULT_BUDGET) if compute_budget is None else compute_budget
        self._box = bounds
        self._tensor = torch.from_numpy(self.x)  # a view: moving it moves x
        self._memory = Memory(Layout([self._tensor]), memory_budget)
        self._schedule = Cyclic(n)
        self._recent: list[float] = []  # f(x_t) over the last sweep, for `converged`
        self._noise: float | None = None  # measured in the first phase if eps is None
        self._signs = rng.choice([-1.0, 1.0], size=n) if eps is None else None

    # --- asking --------------------------------------------------------------------------------

    def ask(self, limit: int | None) -> Points:
        """x_t and its probes; near the limit, as many coordinates as fit."""
        if self._measuring:
            assert self._signs is not None
            points = measuring_points(self.x, self._signs, self._box)
            return points if limit is None or limit >= MEASUREMENTS else points[:0]
        B = self._B if limit is None else min(self._B, (limit - 1) // 2)
        if B < 1:
            return np.empty((0, len(self.x)))
        self._stencil = stencil = self._choose(B)
        # The torch optimizer's order: up and down for each coordinate in turn.
        values = np.stack([stencil.up, stencil.down], axis=1).ravel()
        moved = ~np.isnan(values)
        return Probes(self.x, np.repeat(stencil.block, 2)[moved], values[moved])

    @property
    def _measuring(self) -> bool:
        return self._eps is None and self._noise is None

    def _choose(self, B: int) -> Stencil:
        stretches = [np.arange(*stretch) for stretch in self._schedule.next(B)]
        block = np.concatenate(stretches)
        x = self.x[block]
        box = None if self._box is None else Box(self._box.lower[block], self._box.upper[block])
        h = radii(x, box, self._noise or 0.0) if self._eps is None else np.full(B, self._eps)
        return stencil_of(block, x, h, box)

    # --- learning ------------------------------------------------------------------------------

    def tell(self, values: Vector) -> None:
        """Store the estimates and move along the memory."""
        if self._measuring:
            self._noise = relative_noise(values)
            return
        f, stencil = values[0], self._stencil
        moved = ~np.isnan(np.stack([stencil.up, stencil.down], axis=1))
        f_probe = np.full(moved.shape, f)
        f_probe[moved] = values[1:]
        fresh = (f_probe[:, 0] - f_probe[:, 1]) / stencil.width
        fresh[~moved.any(axis=1)] = 0.0  # coordinates fixed by their bounds
        with np.errstate(invalid="ignore"):
            self._step(fresh)
        # If most probes failed, an unchanged value does not show convergence.
        known = 2 * int(np.isfinite(fresh).sum()) >= len(fresh)
        self._watch(float(f) if known else np.nan, float(np.nanmin(f_probe, initial=np.inf)))

    def _step(self, fresh: Vector) -> None:
        """Decay, overwrite, move: eqs. 5 to 7."""
        before = self.x.copy()
        B = len(fresh)
        block = self._memory.block(self._schedule, B)
        self._memory.decay(lambda _: self._gamma, self._schedule)
        self._memory.write(block, torch.from_numpy(fresh))
        self._schedule.advance(B)
        for segment in self._memory.remembered(self._schedule):
            estimates = self._memory.values(segment)
            if len(estimates) == len(self.x):
                descend_whole([self._tensor], [estimates], self._lr)
            else:
                descend(self._tensor, segment.part, estimates, self._lr)
        if not np.isfinite(self.x).all():
            self.x[:] = before
            raise NonFiniteLoss(f"x overflows in step {self.nit + 1}: lr={self._lr:g} is too large")
        if self._box is not None:
            np.clip(self.x, *self._box, out=self.x)
        self.nit += 1
        self.skipped += B - int(np.isfinite(fresh).sum())

    def _watch(self, f: float, lowest: float) -> None:
        """Set `converged` if over a sweep f(x_t) has not changed and no probe was lower."""
        if self._ftol is None:
            return
        if f - lowest > self._ftol * max(abs(f), 1.0):  # a probe is lower: not converged
            f = np.nan
        steps = -(-len(self.x) // self._B) + 1
        self._recent = [*self._recent[1 - steps :], f] if np.isfinite(f) else []
        low, high = min(self._recent, default=0.0), max(self._recent, default=0.0)
        if len(self._recent) == steps and high - low <= self._ftol * max(abs(low), abs(high), 1.0):
            self.converged = (
                f"converged: fun changed by at most {high - low:.3g} over a sweep of all "
                f"coordinates, whose probes were no lower (ftol={self._ftol:g})"
            )

    # --- saving --------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything that a resumed run needs."""
        return {
            "x": self.x.copy(),
            "nit": self.nit,
            "skipped": self.skipped,
            "converged": self.converged,
            "schedule": self._schedule.state_dict(),
            "memory": self._memory.buffers[0].numpy().copy(),
            "recent": list(self._recent),
            "noise": self._noise,
            "signs": None if self._signs is None else self._signs.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state."""
        self.x[:] = state["x"]
        self.nit, self.skipped = int(state["nit"]), int(state["skipped"])
        self.converged = str(state["converged"])
        self._schedule.load_state_dict(state["schedule"])
        buffer = torch.from_numpy(np.array(state["memory"], dtype=np.float64))
        self._memory.load_state_dict({"buffers": [buffer], "written": [self._schedule.count]})
        self._recent = [float(f) for f in state["recent"]]
        self._noise, self._signs = state["noise"], state["signs"]
