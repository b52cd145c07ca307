"""The tracker: what a run tells of its own coherence."""

from __future__ import annotations

from itertools import chain, groupby
from math import hypot

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import theory
from ..objective.protocol import Closure
from ..optim.coherent_gradient import CoherentGradient, method_of
from ..optim.coordinate import CoordinateMethod
from ..parts.layout import Layout
from ..parts.memory import Segment
from ..parts.types import State
from ..parts.validation import check_count
from .error import Error, caveats, gradient_at, remembered
from .moments import Array, quietly, row_of
from .windows import Windows

_VERSION = 1  # of the saved state
_NUMBERS, _ARRAYS = ("steps", "evaluations", "path", "length"), ("last", "when", "where")
_SAVED = {"version", "windows", "x", *_NUMBERS, *_ARRAYS}
_ADDED = {"eps", "altered"}  # since then


class Coherence:
    """Compares each fresh estimate with the one it replaces, without an evaluation.

    Attach it to any coordinate method (`CoCD`, `AutoCoCD`, `CoherentGradient`, `BCCD`,
    `FiniteDifference`, `RandomCoordinate`); the run stays the same bit for bit. The stale estimate
    is the coordinate's last one as measured, without decay, even if the optimizer has forgotten
    it. Takes 24 bytes per coordinate and a copy of the parameters.

    Args:
        optimizer: the method to watch from now on.
        window: steps in a window of `history`; None for one sweep, ceil(n / B).
        keep: number of windows (even); neighbours are merged when all are full.

    >>> import torch, cocd
    >>> x = torch.tensor([3.0, -2.0, 1.0, 2.0], requires_grad=True)
    >>> optimizer = cocd.CoCD([("x", x)], lr=0.05, compute_budget=2)
    >>> tracker = cocd.diagnostics.Coherence(optimizer)
    >>> for _ in range(12):
    ...     loss = optimizer.step(lambda: (x**2).sum() / 2)
    >>> tracker
    Coherence(CoCD, 12 steps: correlation 1, relative change 0.1, regression 0.9, age 2)
    >>> tracker.summary()["by_tensor"]["x"]["pairs"], tracker.ages(), optimizer.evaluations
    (20, {0: 2, 1: 2}, 60)
    """

    def __init__(
        self,
        optimizer: CoordinateMethod | CoherentGradient,
        *,
        window: int | None = None,
        keep: int = 128,
    ) -> None:
        method = method_of(optimizer)
        if not isinstance(method, CoordinateMethod):
            raise ValueError(
                f"optimizer must be a coordinate method (CoCD, AutoCoCD, CoherentGradient, BCCD, "
                f"RandomCoordinate), got {type(optimizer).__name__}, which keeps no estimates of "
                "single coordinates"
            )
        if check_count("keep", keep) % 2:
            raise ValueError(f"keep must be an even number of at least 2, got {keep!r}")
        self._optimizer = method
        self._layout = method._memory.layout
        sweep = -(-self._layout.n // method.compute_budget)
        self._length = sweep if window is None else check_count("window", window)
        self._windows = Windows(self._length, keep)
        self.evaluations = 0
        self.steps = 0
        self._path = 0.0  # length of the way so far
        self._last: Array  # each coordinate's latest estimate,
        self._when: NDArray[np.int64]  # the number of its step, 0 for none,
        self._where: Array  # and the way so far at that step
        self._x: list[Tensor]  # the point of the last refresh, tensor by tensor
        self._eps: list[float] = []  # and each tensor's radius there
        self._altered = 0  # the last step at which older estimates were decayed, or a radius new
        self._forget(self._layout)
        method._observers = (*method._observers, self._observe)

    # --- reading --------------------------------------------------------------------------------

    def summary(self) -> State:
        """Statistics since the beginning or the last `reset`, as plain numbers.

        `correlation` of fresh with stale; `relative_change` ||fresh - stale|| / ||stale||;
        `regression` of fresh on stale through the origin (the decay that fits best; negative
        where slopes overshoot); `age_mean` and `age_max` in steps when an estimate is replaced;
        `smoothness`, the largest change divided by the distance moved since, a lower bound of
        L_eps for a fixed objective, up to rounding (meaningless in single precision once steps are
        tiny), 0 for `AutoCoCD`, whose radii vary; `pairs` compared, `first` estimates without a
        pair; `step_norm` and `step_max`, mean and largest ||x_t - x_(t-1)||; `steps`; and
        `by_tensor`. None means: no data.
        """
        return self._windows.whole().report(self._names())

    def history(self) -> list[State]:
        """The same for each window, with the numbers of its first and last step."""
        names = self._names()
        return [
            {"from": w.start, "to": w.start + w.steps - 1, **w.report(names)}
            for w in self._windows.all()
        ]

    def ages(self) -> dict[int, int]:
        """A count of coordinates for each age of their latest estimate (0: the last step)."""
        made = self._when[self._when > 0]
        ages, counts = np.unique(self.steps - made, return_counts=True)
        return dict(zip(ages.tolist(), counts.tolist(), strict=True))

    @property
    def cold(self) -> int:
        """Coordinates that have not been estimated since the tracker was attached."""
        return int((self._when == 0).sum())

    def error(self, closure: Closure, L: float | None = None) -> Error:
        """The error of the estimate at the point of its last refresh, beside the theorem's bound.

        Makes 2n + 1 evaluations (one-sided: n + 1), counted in `evaluations` and not by the
        optimizer. Nothing else changes. `closure` is the objective of that step. Without `L` the
        bound uses `smoothness`, a lower bound of L_eps, so it may be too low.
        """
        self._follow()
        if self._observe not in self._optimizer._observers:
            raise ValueError("error needs an attached tracker, and this one has been detached")
        if not self._x:
            raise ValueError("error needs at least one step: make a step first")
        optimizer, before = self._optimizer, self.evaluations
        n, B, delta = self._layout.n, optimizer.compute_budget, self._longest_step()
        made = self._when[self._trainable()]
        lags, oldest = int((self.steps - made[made > 0]).sum()), int(made.min(initial=self.steps))
        found = caveats(optimizer, int((made == 0).sum()), lags, oldest < self._altered)
        if L is not None:
            theory.error_bound(n, B, L, delta)  # refuses an L that is none before anything is spent
        gradient = gradient_at(optimizer, closure, self._x, self._count)
        off, known = remembered(optimizer) - gradient, gradient.isfinite()
        if missing := int((~known).sum()):
            found.append(f"{missing} coordinates are frozen or could not be probed: left out")
        if L is None:
            L = float(self.summary()["smoothness"] or 0.0)
            found.append("L is estimated from below")
        return Error(
            measured=float(off[known].norm()),
            gradient=float(gradient[known].norm()),
            bound=float(theory.error_bound(n, B, L, delta)),
            euclidean_bound=float(theory.euclidean_error_bound(n, B, L, delta)),
            L=float(L),
            delta=delta,
            evaluations=self.evaluations - before,
            caveats=tuple(found),
        )

    def __repr__(self) -> str:
        whole = self.summary()
        shown = {
            "correlation": whole["correlation"],
            "relative change": whole["relative_change"],
            "regression": whole["regression"],
            "age": whole["age_mean"],
        }
        numbers = (f"{name} {'-' if x is None else format(x, '.3g')}" for name, x in shown.items())
        method = self._optimizer._name
        return f"Coherence({method}, {whole['steps']} steps: {', '.join(numbers)})"

    # --- controlling ----------------------------------------------------------------------------

    def reset(self) -> None:
        """Clear the records; the last estimates stay, to be compared with the next."""
        self._windows = Windows(self._length, self._windows.keep)
        self._windows.open.start = self.steps + 1

    def detach(self) -> None:
        """Stop watching; the records stay."""
        watching = self._optimizer._observers
        self._optimizer._observers = tuple(o for o in watching if o != self._observe)

    def state_dict(self) -> State:
        """What a resumed run needs to continue its records bit for bit; later steps leave it."""
        self._follow()
        return {
            "version": _VERSION,
            "steps": self.steps,
            "evaluations": self.evaluations,
            "path": self._path,
            "length": self._length,
            "windows": self._windows.state_dict(),
            "last": torch.from_numpy(self._last.copy()),
            "when": torch.from_numpy(self._when.copy()),
            "where": torch.from_numpy(self._where.copy()),
            "x": [tensor.clone() for tensor in self._x],
            "eps": list(self._eps),
            "altered": self._altered,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue saved records, before or after the optimizer's own state is loaded."""
        version = state.get("version") if isinstance(state, dict) else None
        if version != _VERSION or state.keys() - _ADDED != _SAVED:
            raise ValueError(
                f"state must be what Coherence.state_dict gave (version {_VERSION}), got "
                f"{type(state).__name__} of version {version!r}"
            )
        layout = self._optimizer._memory.layout
        shapes = [tuple(tensor.shape) for tensor in state["x"]]
        here = [tuple(tensor.shape) for tensor in layout.tensors]
        if len(state["last"]) != layout.n or shapes != here[: len(shapes)]:
            raise ValueError(
                f"state belongs to {len(state['last'])} coordinates in shapes {shapes}, the "
                f"optimizer has {layout.n} in {here}; load the optimizer's own state first"
            )
        self._windows = Windows.from_state(state["windows"])
        self.steps, self.evaluations = int(state["steps"]), int(state["evaluations"])
        self._path, self._length = float(state["path"]), int(state["length"])
        self._last, self._when, self._where = (state[name].numpy().copy() for name in _ARRAYS)
        self._x = [
            saved.clone().to(tensor.device)
            for saved, tensor in zip(state["x"], layout.tensors, strict=False)
        ]
        self._eps, self._altered = list(state.get("eps", [])), int(state.get("altered", 0))
        self._layout = Layout()  # not the optimizer's: the next step sees whether they agree

    # --- watching -------------------------------------------------------------------------------

    def _observe(self, block: list[Segment], fresh: Tensor) -> None:
        self._follow()
        norm = self._moved()
        self.steps += 1
        self._path += norm or 0.0
        self._notice_options()
        rows = []
        position = 0
        for t, segments in groupby(block, key=lambda segment: segment.part.tensor):
            runs = [segment.part for segment in segments]
            index = np.fromiter(chain.from_iterable(range(r.start, r.stop) for r in runs), np.int64)
            part = fresh[position : position + len(index)]
            position += len(index)
            stored = part.to(self._layout.kinds[self._layout.kind[t]].dtype)  # as memory rounds it
            rows.append(
                (t, self._compare(index + self._layout.offsets[t], stored.double().numpy()))
            )
        self._windows.add(rows, norm)

    @quietly
    def _compare(self, index: NDArray[np.int64], fresh: Array) -> Array:
        """The moments of one tensor's pairs; the fresh estimates are the stale ones to come."""
        finite = np.isfinite(fresh)  # others are not remembered
        index, fresh = index[finite], fresh[finite]
        known = self._when[index] > 0
        old = index[known]
        distance = self._path - self._where[old]
        if not self._optimizer._one_difference:
            distance = np.full_like(distance, np.inf)  # pairs say nothing about L_eps
        row = row_of(
            self._last[old],
            fresh[known],
            (self.steps - self._when[old]).astype(float),
            distance,
            first=len(index) - len(old),
        )
        self._last[index], self._when[index], self._where[index] = fresh, self.steps, self._path
        return row

    def _notice_options(self) -> None:
        """A decay, or a radius that is not the one of the step before."""
        options = self._optimizer._groups_by_tensor()
        groups = [options[id(tensor)] for tensor in self._layout.tensors]
        eps = [float(group["eps"]) for group in groups]
        decays = [
            float(group.get("decay", 1.0))
            for group, tensor in zip(groups, self._layout.tensors, strict=True)
            if tensor.requires_grad
        ]
        if eps[: len(self._eps)] != self._eps or any(decay != 1 for decay in decays):
            self._altered = self.steps
        self._eps = eps

    def _moved(self) -> float | None:
        """How far x has gone since the last refresh; None where there was none."""
        norm = None
        if self._x:
            now = [self._wide(t) for t in range(len(self._x))]
            moved = torch._foreach_sub(now, self._x)
            norm = hypot(*(float(length) for length in torch._foreach_norm(moved)))
            torch._foreach_copy_(self._x, now)
        joined = range(len(self._x), len(self._layout.tensors))
        self._x.extend(self._wide(t).clone() for t in joined)
        return norm

    def _wide(self, t: int) -> Tensor:
        """A parameter, half precision widened so that differences are exact enough."""
        kind = self._layout.kinds[self._layout.kind[t]]
        return self._layout.tensors[t].detach().to(kind.dtype)

    def _count(self, evaluations: int) -> None:
        self.evaluations += evaluations

    def _follow(self) -> None:
        """Take in coordinates that joined; begin anew if another state has been loaded."""
        layout = self._optimizer._memory.layout
        if layout is not self._layout and not self._agrees(layout):
            self._forget(layout)
        self._layout = layout
        if missing := layout.n - len(self._last):
            self._last, self._when, self._where = (
                np.concatenate([values, np.zeros(missing, values.dtype)])
                for values in (self._last, self._when, self._where)
            )

    def _agrees(self, layout: Layout) -> bool:
        """Does the optimizer remember the block that was seen last? Then it is the same run."""
        if layout.n != len(self._last):
            return False
        latest = self._when == max(self.steps, 1)
        return bool(np.array_equal(remembered(self._optimizer).numpy()[latest], self._last[latest]))

    def _forget(self, layout: Layout) -> None:
        n = layout.n
        self._last, self._when, self._where = np.zeros(n), np.zeros(n, np.int64), np.zeros(n)
        self._x, self._path = [], 0.0

    @quietly
    def _longest_step(self) -> float:
        """Since the oldest estimate in use: the way between steps, which no step exceeds."""
        made = (self._when > 0) & self._trainable()
        _, at = np.unique(self._when[made], return_index=True)
        return float(np.max(np.diff(self._where[made][at]), initial=0.0))

    def _trainable(self) -> NDArray[np.bool_]:
        """Of each coordinate: is it probed, or has its tensor been frozen?"""
        tensors = self._layout.tensors
        return np.repeat([t.requires_grad for t in tensors], [t.numel() for t in tensors])

    def _names(self) -> list[str]:
        """One for each tensor that is swept; a name that two groups use gets a number."""
        known = {id(tensor): name for name, tensor in self._optimizer._named()}
        names: dict[str, None] = {}
        for t, tensor in enumerate(self._optimizer._memory.layout.tensors):
            name = known[id(tensor)]
            names[f"{name} ({t})" if name in names else name] = None
        return list(names)
