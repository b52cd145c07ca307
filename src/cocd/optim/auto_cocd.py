"""`AutoCoCD`: coordinate descent that tunes itself. docs/adaptive.md numbers the equations."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..auto.block import Block, Options, is_half, penalty
from ..auto.budget import Budget, first_budget, least_budget
from ..auto.config import AutoConfig
from ..auto.curvature import Curvature
from ..auto.direction import Direction, propose
from ..auto.line_search import Found, Length, search
from ..auto.move import Move
from ..auto.probes import Probes
from ..auto.radius import Radius
from ..auto.reach import Reach
from ..auto.rollback import Rollback, Verdict
from ..auto.scales import Scales
from ..objective.protocol import Closure, Difference
from ..parts.evaluation import Evaluations
from ..parts.layout import by_tensor
from ..parts.probe import probe
from ..parts.types import Modules, State
from ..parts.validation import check_choice, check_count
from ..schedules import Cyclic, Schedule, Spread
from .coordinate import CoordinateMethod

_ORDERS = {"cyclic": Cyclic, "spread": Spread}
_PARTS: dict[str, type[Reach | Radius | Curvature | Rollback | Scales]] = {
    "reach": Reach,
    "radius": Radius,
    "curvature": Curvature,
    "rollback": Rollback,
    "scales": Scales,
}  # that are there from the beginning, each with its state
_SAVED = (*_PARTS, "first_lr", "config", "lengths", "budget", "last")


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
        eps: the radius of the probes to begin with; None for `config.radius`, 0.3. Each tensor's
            own follows the length of its steps, and grows where differences are lost (`radii`).
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
            or "cyclic", in which they are neighbours. None is "spread", or
            "cyclic" where a memory budget is given.
        schedule: an order of your own, from `cocd.schedules`, in place of `order`.
        max_evaluations: how many evaluations there will be in all. Over the last three tenths of
            them steps shrink to a fiftieth, if noise has limited them for a hundred sweeps. None:
            they do not. It is part of `state_dict`; to go on for longer, set the attribute after
            loading.
        l2: the objective is the loss plus half of this times the parameters' square. (Not
            `weight_decay`, which everywhere here is decoupled from the loss.)
        nonfinite: as for `CoCD`; for probes. A trial along the step that is not finite is none.
        modules: as for `CoCD`.
        config: the constants behind all this, for ablations; None for `AutoConfig()`.

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

    _one_difference = False
    _whole = (*CoordinateMethod._whole, "max_evaluations", "order", "config")
    _kept = (
        *CoordinateMethod._kept,
        "max_evaluations",
        "order",
        "_first_lr",
        "_config",
        "_lengths",
        *(f"_{name}" for name in _PARTS),
        "_own_budget",
        "_last",
    )

    def __init__(
        self,
        params: ParamsT,
        *,
        lr: float | None = None,
        eps: float | None = None,
        compute_budget: int | None = None,
        memory_budget: int | None = None,
        order: str | None = None,
        schedule: Schedule | None = None,
        max_evaluations: int | None = None,
        l2: float = 0.0,
        nonfinite: str = "skip",
        modules: Modules = None,
        config: AutoConfig | None = None,
    ) -> None:
        config = AutoConfig() if config is None else config
        if not isinstance(config, AutoConfig):
            raise ValueError(f"config must be an AutoConfig, got {config!r}")
        if max_evaluations is not None:
            max_evaluations = check_count("max_evaluations", max_evaluations)
        self.max_evaluations = max_evaluations
        if order is None:
            order = "spread" if memory_budget is None else "cyclic"
        self.order = check_choice("order", order, tuple(_ORDERS))
        self._first_lr = 1.0 if lr is None else lr
        self._config = config
        self._own_budget: Budget | None = None  # None: B was given, and nothing is judged
        self._know_nothing()
        super().__init__(
            params,
            {
                "lr": self._first_lr,
                "eps": config.radius if eps is None else eps,
                "l2": l2,
            },
            compute_budget=compute_budget if compute_budget is not None else 1,
            memory_budget=memory_budget,
            schedule=schedule or _ORDERS[self.order](),
            difference="central",
            nonfinite=nonfinite,
            modules=modules,
        )
        if self._first_lr == 0:
            raise ValueError("lr must be above 0, got 0; it is where the search begins")
        self._first_lr = float(self._first_lr)  # a tensor would follow the scheduler
        if self.order != "cyclic" and memory_budget == self._schedule.n:
            self._memory.budget = None  # all there are, also when others join
        if compute_budget is None:
            self._begin_budget()

    def _know_nothing(self) -> None:
        config = self._config
        self._lengths: dict[int, Length] = {}  # by tensor; of all in one where blocks are spread
        self._reach = Reach(config=config)
        self._radius = Radius(config=config)
        self._curvature = Curvature()
        self._rollback = Rollback(config=config)
        self._scales = Scales(config=config)
        self._last = Move()  # what is to be judged on the next batch

    def _begin_budget(self) -> None:
        self.compute_budget = least_budget(self._config, self._schedule.size, self._memory.m)
        self._own_budget = Budget(self.compute_budget, config=self._config)
        self._begin_judging()

    def reset(self, estimate: Tensor | Iterable[Tensor] | None = None) -> None:
        """Forget all that was found out, and slopes as `CoCD.reset` does; parameters stay."""
        super().reset(estimate)
        self._know_nothing()
        if self._own_budget is not None:
            self._begin_budget()

    # --- what it found out -----------------------------------------------------------------------

    @property
    def config(self) -> AutoConfig:
        """The constants it was built with, or that were loaded."""
        return self._config

    @property
    def boldness(self) -> float:
        """By what the part of each step is multiplied; 1 where the budget was given."""
        return 1.0 if self._own_budget is None else self._own_budget.boldness

    @property
    def scales(self) -> list[float]:
        """By what each parameter's steps are multiplied: above 1 where its slopes persist."""
        scales = self._scales.of(range(len(self._tensors)))
        found = {id(t): float(scale) for t, scale in zip(self._tensors, scales, strict=True)}
        return [found.get(id(parameter), 1.0) for parameter in self._parameters()]

    @property
    def radii(self) -> list[float]:
        """The radius of each parameter's probes: its group's `eps`, narrower or wider."""
        widths = self._radius.of(range(len(self._tensors)))
        found = {id(t): float(width) for t, width in zip(self._tensors, widths, strict=True)}
        groups = [(p, group) for group in self.param_groups for p in group["params"]]
        return [found.get(id(p), 1.0) * float(group["eps"]) for p, group in groups]

    @property
    def reach(self) -> float:
        """How many radii a coordinate moves at most in one step."""
        return self._reach.value * self._config.reach

    @property
    def restored(self) -> int:
        """How often parameters from before were put back because the loss had risen so far."""
        return self._rollback.restored

    # --- one step --------------------------------------------------------------------------------

    def step(self, closure: Closure | None = None) -> Any:
        """Probe, scale, search, move; returns the loss at x_t, before the update."""
        with self._evaluating(closure) as evaluate:
            options = self._groups_by_tensor()
            block = self._next_block(options)
            probes = self._probe(evaluate, block)
            self._look_at_closure(evaluate, probes.loss, bool(probes.g.any()))
            gain = self._judge_last(evaluate, probes.loss, options)
            direction = self._direction(block, probes)
            found = direction and self._search(evaluate, block, probes.loss, direction)
            move = self._part_of(evaluate, block, better(found, probes.best(block)))
            loss = probes.loss + penalty(self._tensors, options)
            verdict = self._rollback.check(
                loss, self._tensors, lambda: evaluate.quickly() + penalty(self._tensors, options)
            )
            evaluate.interrupts.deliver()  # the last moment at which nothing has changed
            self._observe(block, probes, gain, found, block.rounding(evaluate.first))
            self._commit(loss, verdict, move)
        return evaluate.first

    def next_evaluations(self) -> int:
        """How many evaluations the next step will make at most: what it sees decides."""
        return super().next_evaluations() + 4  # two along the step, to judge the last, to go back

    def _next_block(self, options: Options) -> Block:
        """S_t, the next B coordinates of the order (4)."""
        self._follow()
        B = self._budget()
        if self.max_evaluations is not None:  # which may have been changed between two steps
            check_count("max_evaluations", self.max_evaluations)
        segments = self._memory.block(self._prepared(B), B)
        places = by_tensor(segment.part for segment in segments)
        widths = self._radius.of([place.tensor for place in places])
        return Block(self._tensors, places, options, segments, widths)

    def _probe(self, evaluate: Evaluations, block: Block) -> Probes:
        """Slopes; and curvature in every fourth sweep, and where it is not known."""
        known = np.full(len(block), np.nan)
        if self._memory.dense:  # a ring has forgotten a coordinate when its turn comes again
            known = self._curvature.read(block.places)
        times, sweep = self._config.one_sided_radius, int(self._schedule.done)
        side: Difference = "forward" if sweep % 2 else "backward"
        due = sweep % self._config.measure_every == 0 or np.isnan(known[block.moving]).any()
        if due or evaluate.inside_autocast or block.is_rough or block.is_lost_at(times):
            times, side = 1.0, "central"
        loss, fresh = probe(
            evaluate,
            self._tensors,
            [segment.part for segment in block.segments],
            lambda tensor: times * block.radius_of(tensor),
            side,
        )
        g = fresh.first.numpy().copy()  # (1)
        if fresh.second is not None:
            second = fresh.second.numpy()
            return Probes(loss, g, Curvature.mean(known, second), known, second)
        sign = 1 if side == "forward" else -1
        g -= sign * times * block.radius * known / 2  # (2)
        return Probes(loss, g, known, known, None)

    def _judge_last(self, evaluate: Evaluations, loss: float, options: Options) -> float | None:
        """G, what the move before gained on this batch (8); None where it is not judged."""
        if self._own_budget is None:
            return None
        return self._last.gained(evaluate, self._tensors, options, loss)

    def _direction(self, block: Block, probes: Probes) -> Direction | None:
        """p, the slopes over their curvatures, within reach."""
        config = self._config
        return propose(
            block.slopes(probes.g),
            block.curvatures(probes.c),
            block.radius,
            self._reach.value * config.reach * block.radius,
            block.spread(self._scales.of(block.tensors)),
            config.damping,
            config.curvature_floor,
        )

    def _search(
        self, evaluate: Evaluations, block: Block, loss: float, direction: Direction
    ) -> Found:
        """s, how far along p the objective is lowest."""
        return search(
            direction,
            loss + block.penalty(),
            self._length(block).value,
            self._config.rounding * block.rounding(evaluate.first) * abs(loss),
            lambda s: block.at(evaluate, s * direction.p),
        )

    def _part_of(self, evaluate: Evaluations, block: Block, found: Found | None) -> Move:
        """The part rho of what was found that is not the mini-batch's own (6)."""
        if found is None:
            return Move()
        left = self._left(evaluate)
        share = self._part() * left * self.boldness
        rates = block.option("lr") / self._first_lr
        return Move.along(block, found, share, left, rates)

    def _observe(
        self,
        block: Block,
        probes: Probes,
        gain: float | None,
        found: Found | None,
        rounding: float,
    ) -> None:
        """Remember what was measured, and let every part learn from it."""
        slopes = torch.from_numpy(probes.g)
        finite = self._quarantine(block.segments, slopes)
        for observe in self._observers:
            observe(block.segments, slopes)
        if self.order == "spread" and self._scales.sweep < self._config.compared_until:
            self._compare(block, probes)
        schedule = self._prepared(len(block))  # the same again: nothing has changed since
        if schedule.voids(len(block)):
            self._memory.forget()
        self._memory.write(block.segments, slopes, finite)
        if probes.fresh is not None and self._memory.dense:
            sizes = [tensor.numel() for tensor in self._tensors]
            self._curvature.observe(block.places, probes.c, sizes)
        schedule.advance(len(block))
        self._schedule = schedule
        if found is not None:
            length = self._lengths[self._whose(block)] = self._length(block)
            length.observe(found.tried, found.length)
            self._reach.observe(found.limited)
        lost = probes.lost(block, rounding)
        changed = self._radius.observe(block.tensors, block.steps(found), lost)
        self._curvature.forget(changed)  # in another radius it is another one
        self._judge(len(block), gain)

    def _compare(self, block: Block, probes: Probes) -> None:
        """With the slopes of a sweep ago, where there were any and steps are not slow by wish."""
        fastest = max(float(group["lr"]) for group in self.param_groups)
        stale = self._memory.read(block.segments).numpy()
        stale[np.isnan(probes.known) | (block.option("lr") < fastest)] = np.nan
        c = np.abs(block.curvatures(probes.c))
        finite = c[np.isfinite(c)]
        damping = self._config.damping * float(finite.mean()) if len(finite) else 0.0
        tensors = block.spread(block.tensors)
        slopes = block.slopes(stale), block.slopes(probes.g)
        self._scales.observe(tensors, *slopes, c + damping, self._swept())  # (10)

    def _judge(self, B: int, gain: float | None) -> None:
        """What the move before gained on this batch decides on B and on boldness."""
        own, n = self._own_budget, self._schedule.size
        if own is None:
            return
        if own.size != B:  # it was set by hand, and stays so
            own.set(B, free=False)
        if gain is not None:
            own.observe(
                gain,
                self._last,
                part=self._part() * self._last.scale,
                sweeps=self._swept(),
                sweep=n / B,
                least=least_budget(self._config, n, self._memory.m),
            )
        own.step(B / n)

    def _commit(self, loss: float, verdict: Verdict, move: Move) -> None:
        """Move, or go back to better parameters."""
        self._rollback.observe(
            loss, verdict, self._tensors, self._schedule.size / self.compute_budget
        )
        if verdict == "lost":
            self._rollback.restore(self._tensors)
            self._scales.reset(int(self._swept()) + 2)  # when no slope is from there
            self._reach.reset()
            for length in self._lengths.values():
                length.value *= 0.5
            move = Move()
        move.make(self._tensors)
        own = self._own_budget
        if own is not None:
            self.compute_budget = own.size
        judged = own is not None and own.age < self._config.judged_sweeps
        self._last = move if judged else Move()

    # --- how long, how bold ---------------------------------------------------------------------

    def _whose(self, block: Block) -> int:
        """The length that is meant: one for all tensors in the spread order, else one a tensor."""
        return block.places[0].tensor if self.order == "cyclic" else 0

    def _length(self, block: Block) -> Length:
        """Where the search begins."""
        config = self._config
        fresh = Length(self._first_lr, config.length_follow, config.length_shrink)
        return self._lengths.get(self._whose(block), fresh)

    def _part(self) -> float:
        """rho, the share of the step that is best on one mini-batch (6)."""
        return self._config.part / sqrt(1 + self._age() / self._config.part_sweeps)

    def _age(self) -> float:
        """Sweeps so far in which noise was what limited steps, where that is known."""
        return self._swept() if self._own_budget is None else self._own_budget.age

    def _swept(self) -> float:
        """Sweeps so far."""
        return self._schedule.done

    def _left(self, evaluate: Evaluations) -> float:
        """1, and along a line to nearly 0 as the last of the announced evaluations are made."""
        if self.max_evaluations is None or self._age() < self._config.end_sweeps:
            return 1.0
        left = 1 - (self.evaluations + evaluate.count) / self.max_evaluations
        return min(1.0, max(self._config.end_part, left / self._config.end))

    # --- coordinates that join -----------------------------------------------------------------

    def _begin_judging(self) -> None:
        """B as large as it may become, now that there are so many coordinates; then it halves."""
        if any(map(is_half, self._tensors)):  # much of what they move by is rounding
            self._own_budget = None
        own = self._own_budget
        if own is not None and own.free and own.size == self.compute_budget:  # not set by hand
            first = first_budget(self._config, self._schedule.size, self._memory.m)
            self.compute_budget = max(self.compute_budget, first)
            own.set(self.compute_budget, free=True)

    def _follow(self) -> None:
        before = self._schedule.n
        super()._follow()
        if self._schedule.n > 2 * before or any(map(is_half, self._tensors)):
            self._begin_judging()  # most coordinates are new: what was learned is of the others
        if self._schedule.n > 2 * before:
            self._scales.reset(int(self._swept()) + 2)

    # --- saving --------------------------------------------------------------------------------

    def _snapshot(self) -> State:
        return {
            **super()._snapshot(),
            "max_evaluations": self.max_evaluations and int(self.max_evaluations),
            "first_lr": float(self._first_lr),
            "config": self._config.state_dict(),
            "lengths": {str(t): length.value for t, length in self._lengths.items()},
            **{name: getattr(self, f"_{name}").state_dict() for name in _PARTS},
            "budget": self._own_budget and self._own_budget.state_dict(),
            "last": self._last.state_dict(),
        }

    def _check_snapshot(self, saved: State) -> None:
        super()._check_snapshot(saved)
        if missing := [name for name in _SAVED if name not in saved]:
            raise ValueError(
                f"state_dict has no {', '.join(missing)}: it is not of an AutoCoCD of this release"
            )
        AutoConfig.from_state(saved["config"])

    def _restore(self, saved: State) -> None:
        super()._restore(saved)
        self.max_evaluations = saved["max_evaluations"]
        self._first_lr = self.defaults["lr"] = float(saved["first_lr"])
        self._config = config = AutoConfig.from_state(saved["config"])
        self._lengths = {
            int(t): Length(value, config.length_follow, config.length_shrink)
            for t, value in saved["lengths"].items()
        }
        for name, part in _PARTS.items():
            setattr(self, f"_{name}", part.from_state(saved[name], config))
        budget = saved["budget"]
        self._own_budget = budget and Budget.from_state(budget, config)
        self._last = Move.from_state(saved["last"])


def better(found: Found | None, other: Found | None) -> Found | None:
    """The one with the larger gain."""
    if found is None or other is None:
        return found or other
    return found if found.gain >= other.gain else other
