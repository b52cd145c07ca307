"""`AutoCoCD`: coordinate descent that tunes itself. `cocd.auto.direction` has the mechanism."""

from __future__ import annotations

from dataclasses import replace
from math import nan, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..auto.block import Block, Step, gained, penalty
from ..auto.budget import SETTLED, Share, first_budget, least_budget
from ..auto.curvature import Curvature
from ..auto.direction import Length
from ..auto.rollback import Guard
from ..auto.scales import Coherence
from ..objective.protocol import Closure, Difference
from ..parts.evaluation import Evaluations
from ..parts.layout import Place, by_tensor, gather, put
from ..parts.probe import is_lost, probe
from ..parts.schedule import Cyclic, Schedule, Spread
from ..parts.validation import check_choice, check_count
from .coordinate import CoordinateMethod

_EPS = 0.3
_ORDERS = {"cyclic": Cyclic, "spread": Spread}
_LEAST = 0.02  # of a step, when the evaluations that were announced have been made
_SAVED = ("first_lr", "lengths", "curvature", "guard")


class AutoCoCD(CoordinateMethod):
    """Coordinate descent without a learning rate: train on losses alone, and tune nothing.

    Each step probes a small block of coordinates, divides each slope by its own curvature, settles
    the length of the step by two evaluations along it, and moves the block by a part of that,
    which becomes smaller from sweep to sweep. Every fourth sweep measures slope and curvature by
    central differences; the sweeps between remember the curvature and need one evaluation a
    coordinate, not two. Tensors whose slopes persist from sweep to sweep take longer steps
    (`scales`). See docs/adaptive.md for why, and for what else was tried.

    Args:
        params: parameters, named parameters or groups, as for any torch optimizer.
        lr: where the search for the length of steps begins, as a multiple of each block's Newton
            step; None for 1. It is forgotten within a few sweeps. What stays is the ratio of a
            group's own `lr` to this first one, by which its steps are multiplied: so schedulers
            act on it.
        eps: the radius of the probes; None for 0.3.
        compute_budget: B, coordinates probed a step. None settles it in the first four sweeps, and
            with it how bold steps are, by what each step has gained on the next batch (one more
            evaluation a step): B begins with a 32nd of the coordinates, 64 at least (an eighth of
            them where they are few) and 512 at most, and halves, down to 64, where noise is not
            what limits steps. It begins anew when most parameters have just joined. A B that is
            given here stays, and nothing is judged then; so does another one that is written to
            the attribute. Where there are weights of half precision nothing is judged: much of
            what they move by is rounding.
        memory_budget: m, estimates remembered; None for all n.
        order: "spread", in which the coordinates of a block lie far apart, in all of the tensors,
            or "cyclic", in which they are neighbours. "spread" needs a whole memory; None is
            "spread", or "cyclic" where a memory budget is given.
        max_evaluations: how many evaluations there will be in all. Over the last three tenths of
            them steps shrink to a fiftieth. None: they do not. It is part of `state_dict`; to go
            on for longer, set the attribute after loading.
        weight_decay: the objective is the loss plus this half of the parameters' square.
        nonfinite: as for `CoCD`; for probes. A trial along the step that is not finite is none.
        modules: as for `CoCD`.

    When the loss rises far above the lowest it has been, on average, and the parameters of that
    time are better on the batch at hand, they are put back, with a `RestoreWarning`; `restored`
    counts. Inside an autocast region call `step` inside it, so that radii fit its precision.

    >>> import torch, cocd
    >>> x = torch.tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = cocd.AutoCoCD([x], compute_budget=1)
    >>> for _ in range(200):
    ...     loss = optimizer.step(lambda: 100 * (x[0] - 1) ** 2 + 0.01 * (x[1] - 1) ** 2)
    >>> [round(v, 2) for v in x.tolist()]
    [1.0, 1.0]
    """

    # What the ablation varies (docs/adaptive.md).
    _REACH = 3.0  # no coordinate moves further than so many radii at once, at the first lr
    _DAMPING = 0.1  # of a block's mean curvature is added to each: flat may be flat by chance
    # Of the step that is best on one mini-batch, part is the batch's own. The more of the way has
    # been made, the larger is that part: after k sweeps _PART / sqrt(1 + k / _SWEEPS) is taken.
    _PART, _SWEEPS = 0.4, 5.0
    _END = 0.3  # of the announced evaluations: over these the step shrinks to `_LEAST`
    _EVERY = 4  # sweeps from one measurement of the curvature to the next
    _NARROW = 1 / 15  # of eps: the radius of one-sided differences, whose error grows with it
    _COMPARED = 8  # sweeps in which slopes are compared with the stale ones, tensor by tensor

    _one_difference = False
    _whole = (*CoordinateMethod._whole, "max_evaluations", "order")
    _kept = (
        *CoordinateMethod._kept,
        "max_evaluations",
        "order",
        "_first_lr",
        "_lengths",
        "_curvature",
        "_guard",
        "_coherence",
        "_share",
        "_last",
    )

    def __init__(
        self,
        params: Any,
        *,
        lr: float | None = None,
        eps: float | None = None,
        compute_budget: int | None = None,
        memory_budget: int | None = None,
        order: str | None = None,
        max_evaluations: int | None = None,
        weight_decay: float = 0.0,
        nonfinite: str = "skip",
        modules: Any = None,
    ) -> None:
        if max_evaluations is not None:
            max_evaluations = check_count("max_evaluations", max_evaluations)
        self.max_evaluations = max_evaluations
        if order is None:
            order = "spread" if memory_budget is None else "cyclic"
        self.order = check_choice("order", order, tuple(_ORDERS))
        self._first_lr = 1.0 if lr is None else lr
        self._lengths: dict[int, Length] = {}  # by tensor; of all in one where blocks are spread
        self._curvature = Curvature()
        self._guard = Guard()
        self._coherence = Coherence()
        self._pending = self._last = Step()
        self._loss = self._there = nan  # the objective, here and at the guard's copy
        self._share: Share | None = None  # None: B stays what it is, and nothing is judged
        super().__init__(
            params,
            {
                "lr": self._first_lr,
                "eps": _EPS if eps is None else eps,
                "weight_decay": weight_decay,
            },
            compute_budget=compute_budget if compute_budget is not None else 1,
            memory_budget=memory_budget,
            difference="central",
            nonfinite=nonfinite,
            modules=modules,
        )
        if self._first_lr == 0:
            raise ValueError("lr must be above 0, got 0; it is where the search begins")
        self._first_lr = float(self._first_lr)  # a tensor would follow the scheduler
        if self.order != "cyclic" and memory_budget == self._schedule.n:
            self._memory.budget = None  # all there are, also when others join
        elif self.order != "cyclic" and memory_budget is not None:
            raise ValueError(
                f"order={order!r} needs a memory of all {self._schedule.n} coordinates, got "
                f"memory_budget={memory_budget}; leave it out, or use order='cyclic'"
            )
        if compute_budget is None:
            self.compute_budget = self._least()
            self._share = Share(self.compute_budget)
            self._begin_judging()

    @property
    def boldness(self) -> float:
        """By what the part of each step is multiplied; 1 where the budget was given."""
        return 1.0 if self._share is None else self._share.boldness

    @property
    def scales(self) -> list[float]:
        """By what each parameter's steps are multiplied: above 1 where its slopes persist."""
        scales = self._coherence.of(range(len(self._tensors)))
        found = {id(t): float(scale) for t, scale in zip(self._tensors, scales, strict=True)}
        return [found.get(id(parameter), 1.0) for parameter in self._parameters()]

    @property
    def restored(self) -> int:
        """How often parameters from before were put back because the loss had risen so far."""
        return self._guard.restored

    def _least(self) -> int:
        """Coordinates a step at least, where their number is left to the method."""
        return least_budget(self._schedule.n, self._memory.m)

    def _begin_judging(self) -> None:
        """B as large as it may become, now that there are so many coordinates; then it halves."""
        if any(map(_is_half, self._tensors)):
            self._share = None
        if self._share is None or not self._share.free:
            return
        if self._share.budget != self.compute_budget:  # it was set by hand
            return
        first = first_budget(self._schedule.n, self._memory.m)
        self.compute_budget = max(self.compute_budget, first)
        self._share = replace(self._share, budget=self.compute_budget, seen=[])

    def _follow(self) -> None:
        before = self._schedule.n
        super()._follow()
        if self._schedule.n > 2 * before or any(map(_is_half, self._tensors)):
            self._begin_judging()  # most coordinates are new: what was learned is of the others
        if self._schedule.n > 2 * before:
            self._coherence = Coherence(sweep=max(Coherence.sweep, int(self._done()) + 2))

    def _new_schedule(self, n: int) -> Schedule:
        return _ORDERS[self.order](n)

    def step(self, closure: Closure | None = None) -> Any:
        """Probe, scale, search, move; returns the loss at x_t, before the update."""
        return self._run(closure)

    def next_evaluations(self) -> int:
        """How many evaluations the next step will make at most: what it sees decides."""
        return super().next_evaluations() + 4  # two along the step, to judge the last, to go back

    # --- one step ------------------------------------------------------------------------------

    def _refresh(self, evaluate: Evaluations) -> None:
        options = self._groups_by_tensor()
        self._follow()
        B = self._budget()
        share = self._share
        if share is not None and share.budget != B:  # it was set by hand, and stays so
            share = replace(share, budget=B, free=False, seen=[])
        if self.max_evaluations is not None:  # which may have been changed between two steps
            check_count("max_evaluations", self.max_evaluations)
        block = self._memory.block(self._schedule, B)
        runs = [segment.part for segment in block]
        places = by_tensor(runs)
        known = self._known_curvature(places)
        sides = self._sides(evaluate, places, known, options)
        times = 1.0 if sides == "central" else self._NARROW
        loss, fresh = probe(
            evaluate, self._tensors, runs, lambda t: times * float(options[id(t)]["eps"]), sides
        )
        eps = np.repeat(
            [float(options[id(self._tensors[p.tensor])]["eps"]) for p in places],
            list(map(len, places)),
        )
        g = fresh.first.numpy().copy()
        if fresh.second is not None:
            c = self._curvature.mean(known, fresh.second.numpy())
        else:  # f(x + r) - f(x) = r g + r^2 c / 2: the curvature is known
            c, sign = known, 1 if sides == "forward" else -1
            g -= sign * times * eps * c / 2
        slopes = torch.from_numpy(g)
        gain = None
        if share is not None:
            gain = gained(evaluate, self._tensors, self._last, loss, options)
        step = self._search(evaluate, loss, places, g, c, eps, options)
        self._loss = loss + penalty(self._tensors, options)
        self._there = self._guard.look(
            self._loss,
            self._tensors,
            lambda: evaluate.quickly() + penalty(self._tensors, options),
        )
        evaluate.interrupts.deliver()  # the last moment at which nothing has changed
        finite = self._check_finite(block, slopes)

        for observe in self._observers:
            observe(block, slopes)
        if self.order == "spread" and self._coherence.sweep < self._COMPARED:
            moved = Block(evaluate, self._tensors, places, options)
            self._compare(moved, self._memory.read(block).numpy(), g, c, known, options)
        self._memory.write(block, slopes, finite)
        if fresh.second is not None and self._memory.dense:
            self._curvature.remember(places, c)
        self._schedule.advance(B)
        if step.tried:
            length = self._lengths.setdefault(step.whose, Length(self._first_lr, 0.2, 0.5))
            length.learn(step.tried, step.found)
        self._share = share
        if share is not None and gain is not None:
            share.learn(
                gain=gain,
                whole=self._last.whole,
                taken=self._last.taken,
                part=self._part() * self._last.scale,
                sweeps=self._done(),
                sweep=self._schedule.n / B,
                least=self._least(),
            )
        self._pending = step

    def _compare(
        self, block: Block, stale: Any, g: Any, c: Any, known: Any, options: dict[int, Any]
    ) -> None:
        """With the slopes of a sweep ago, where there were any and steps are not slow by wish."""
        lr = {t: float(options[id(self._tensors[t])]["lr"]) for t, _ in block.places}
        fastest = max(float(group["lr"]) for group in self.param_groups)
        tensors = np.repeat([t for t, _ in block.places], list(map(len, block.places)))
        slow = np.repeat([lr[t] < fastest for t, _ in block.places], list(map(len, block.places)))
        stale[np.isnan(known) | slow] = np.nan
        seen = block.compared(stale, g, c, self._DAMPING)
        self._coherence.learn(tensors, *seen, self._done())

    def _move(self) -> None:
        self._last, self._pending = self._pending, Step()
        sweep = self._schedule.n / self.compute_budget
        if self._guard.is_lost(self._loss, self._tensors, sweep, self._there):
            self._last = Step()
            self._coherence = Coherence(sweep=int(self._done()) + 2)  # when nothing is from there
            for length in self._lengths.values():
                length.value *= 0.5
        for tensor, where, change in self._last.split(self._tensors):
            put(tensor, where, gather(tensor, where).add_(change.to(tensor)))
        if self._share is not None:
            self.compute_budget = self._share.budget
        if self._share is None or self._done() >= SETTLED:
            self._last = Step()  # nothing more is learned from it

    def _sides(
        self,
        evaluate: Evaluations,
        places: list[Place],
        known: Any,
        options: dict[int, dict[str, Any]],
    ) -> Difference:
        """Central where the curvature is due or not known; else the two sides by turns."""
        assert isinstance(self._schedule, Cyclic)
        sweep = self._schedule.count // self._schedule.n
        tensors = [self._tensors[place.tensor] for place in places]
        moving = np.repeat([tensor.requires_grad for tensor in tensors], list(map(len, places)))
        if sweep % self._EVERY == 0 or np.isnan(known[moving]).any():
            return "central"
        narrow = [self._NARROW * float(options[id(tensor)]["eps"]) for tensor in tensors]
        index = [place.elements for place in places]
        coarse = evaluate.inside_autocast or any(map(_is_half, tensors))
        if coarse or any(map(is_lost, tensors, index, narrow)):
            return "central"  # the narrow radius would be lost in rounding
        return "forward" if sweep % 2 else "backward"

    def _known_curvature(self, places: list[Place]) -> Any:
        if not self._memory.dense:  # a ring has forgotten a coordinate when its turn comes again
            return np.full(sum(map(len, places)), np.nan)
        return self._curvature.known(places, [tensor.numel() for tensor in self._tensors])

    def _search(
        self,
        evaluate: Evaluations,
        loss: float,
        places: list[Place],
        g: Any,
        c: Any,
        radius: Any,
        options: dict[int, dict[str, Any]],
    ) -> Step:
        """The move of the block: scaled by curvature, as long as two evaluations say."""
        block = Block(evaluate, self._tensors, places, options)
        whose = places[0].tensor if self.order == "cyclic" else 0
        length = self._lengths[whose].value if whose in self._lengths else self._first_lr
        sizes = list(map(len, places))
        scale = np.repeat(self._coherence.of([place.tensor for place in places]), sizes)
        reach = self._REACH * radius
        found = block.search(loss, g, c, radius, length, reach, self._DAMPING, scale)
        if found is None:
            return Step()
        left = self._left(evaluate)
        taken = self._part() * left * self.boldness
        lr = [float(options[id(self._tensors[place.tensor])]["lr"]) for place in places]
        return block.part(found, whose, taken, left, [each / self._first_lr for each in lr])

    def _part(self) -> float:
        """Of the step that is best on one mini-batch."""
        return self._PART / sqrt(1 + self._done() / self._SWEEPS)

    def _done(self) -> float:
        """Sweeps so far."""
        assert isinstance(self._schedule, Cyclic)
        return self._schedule.done

    def _left(self, evaluate: Evaluations) -> float:
        """1, and along a line to nearly 0 as the last of the announced evaluations are made."""
        if self.max_evaluations is None:
            return 1.0
        left = 1 - (self.evaluations + evaluate.count) / self.max_evaluations
        return min(1.0, max(_LEAST, left / self._END))

    # --- saving --------------------------------------------------------------------------------

    def _snapshot(self) -> dict[str, Any]:
        return {
            **super()._snapshot(),
            "order": self.order,
            "max_evaluations": self.max_evaluations and int(self.max_evaluations),
            "first_lr": float(self._first_lr),
            "lengths": {str(t): length.value for t, length in self._lengths.items()},
            "curvature": self._curvature.state_dict(),
            "guard": self._guard.state_dict(),
            "coherence": self._coherence.state_dict(),
            "share": self._share and self._share.state_dict(),
            "last": self._last.state_dict(),
        }

    def _check_snapshot(self, saved: dict[str, Any]) -> None:
        super()._check_snapshot(saved)
        if saved.get("order", "cyclic") != self.order:
            raise ValueError(
                f"state_dict has order={saved.get('order', 'cyclic')!r}, this optimizer has "
                f"order={self.order!r}; build it with the same"
            )
        if missing := [name for name in _SAVED if name not in saved]:
            raise ValueError(f"state_dict has no {', '.join(missing)}: it is not of an AutoCoCD")

    def _restore(self, saved: dict[str, Any]) -> None:
        super()._restore(saved)
        self.max_evaluations = saved.get("max_evaluations", self.max_evaluations)
        self._first_lr = self.defaults["lr"] = float(saved["first_lr"])
        self._lengths = {int(t): Length(v, 0.2, 0.5) for t, v in saved["lengths"].items()}
        self._curvature = Curvature.of(saved["curvature"])
        self._guard = Guard.of(saved["guard"])
        coherence = saved.get("coherence")
        self._coherence = Coherence.from_state(coherence) if coherence else Coherence()
        share = saved.get("share")
        self._share = share and Share.of(share)
        self._last = Step.of(saved.get("last"))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """After unpickling or copying."""
        super().__setstate__(state)
        self._pending = Step()


def _is_half(tensor: Tensor) -> bool:
    return tensor.element_size() < 4
