"""`AutoCoCD`: coordinate descent that tunes itself. docs/adaptive.md numbers the equations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..auto.block import Block, Options, is_half, penalty
from ..auto.block_probes import BlockProbes
from ..auto.budget import Budget, first_budget, least_budget
from ..auto.config import AutoConfig
from ..auto.curvature import Curvature
from ..auto.direction import Direction, Vector, propose
from ..auto.learned import SAVED, Learned
from ..auto.line_search import SearchResult, better, search
from ..auto.move import Move
from ..auto.radius import Radius
from ..auto.rollback import Verdict
from ..auto.scales import Scales
from ..objective.protocol import Difference, LossT
from ..parts.evaluation import Evaluations
from ..parts.layout import by_tensor
from ..parts.probe import probe
from ..parts.types import Modules, State
from ..parts.validation import check_count
from ..schedules import Cyclic, Schedule, Spread
from .coordinate import CoordinateMethod, in_basis


class AutoCoCD(CoordinateMethod):
    """Coordinate descent without a learning rate: trains on losses alone, with nothing to tune.

    Each step probes a small block of coordinates and divides each slope by its curvature. Two
    evaluations along this direction settle the length of the step. The block moves by a part of
    it, which shrinks from sweep to sweep if noise limits steps. Every fourth sweep measures slopes
    and curvatures by central differences. The other sweeps remember curvatures and need one
    evaluation per coordinate instead of two. Tensors whose slopes persist from sweep to sweep take
    longer steps (`scales`). docs/adaptive.md derives the method.

    Args:
        params: parameters, named parameters or groups, as for any torch optimizer.
        lr: length of the first trial steps, as a multiple of each block's Newton step; None for
            1. The search forgets it within a few sweeps. After that only ratios count: a group's
            steps are multiplied by its `lr` over this one, so schedulers work.
        eps: first radius of the probes; None for `config.radius`, 0.3. Each tensor then adapts its
            own to the length of its steps, and widens it if rounding swallows differences
            (`radii`).
        compute_budget: B, coordinates probed per step. None settles B and the boldness of steps in
            the first four sweeps, by what each step gains on the next batch (one more evaluation
            per step). B starts at n / 32 (at least 64 or n / 8, at most 512) and halves, down to
            64, while noise does not limit steps. It starts again when most parameters have just
            joined. A given B stays fixed and nothing is judged; so does a B written to the
            attribute later. With half-precision weights nothing is judged, because much of their
            movement is rounding.
        memory_budget: m, number of remembered estimates; None for all n.
        schedule: the order of coordinates, from `cocd.schedules`. None for `Spread()`, whose blocks
            have coordinates from all tensors, or, with a memory budget, for `Cyclic()`, whose
            blocks have neighbours.
        max_evaluations: length of the run in evaluations. Over the last 30 % steps shrink to a
            fiftieth, if noise has limited them for a hundred sweeps. None for no such end.
            `state_dict` has it; to run longer, set the attribute after loading.
        l2: L2 penalty: adds ``l2 / 2 * ||x||²`` to the objective. (`weight_decay` is decoupled
            from the loss in all optimizers here, so it is not the same.)
        basis: probes and steps follow the vectors of an orthonormal basis of each tensor, not its
            weights: "hadamard" (random, fast), "rotation" (random, for small tensors) or
            "identity"; see `cocd.basis`. None is the weights. A traced objective then makes whole
            evaluations behind the tensor that is probed: its rules are for single weights.
        nonfinite: as for `CoCD`, for probes. Non-finite trial points are ignored.
        modules: as for `CoCD`.
        config: the constants behind all this, for ablations; None for `AutoConfig()`.

    If the mean loss rises far above its minimum, and the parameters of that time are better on the
    current batch, they are restored with a `RestoreWarning`; `restored` counts. With autocast, call
    `step` inside the region, so that radii fit its precision.

    >>> import torch, cocd
    >>> x = torch.tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = cocd.AutoCoCD([x], compute_budget=1)
    >>> for _ in range(200):
    ...     loss = optimizer.step(lambda: 100 * (x[0] - 1) ** 2 + 0.01 * (x[1] - 1) ** 2)
    >>> [round(v, 2) for v in x.tolist()]
    [1.0, 1.0]
    """

    _one_difference = False
    _whole = (*CoordinateMethod._whole, "max_evaluations", "config")
    _kept = (*CoordinateMethod._kept, "max_evaluations", "_learned")

    def __init__(
        self,
        params: ParamsT,
        *,
        lr: float | None = None,
        eps: float | None = None,
        compute_budget: int | None = None,
        memory_budget: int | None = None,
        schedule: Schedule | None = None,
        max_evaluations: int | None = None,
        l2: float = 0.0,
        basis: str | None = None,
        nonfinite: str = "skip",
        modules: Modules = None,
        config: AutoConfig | None = None,
        order: None = None,
    ) -> None:
        config = AutoConfig() if config is None else config
        if not isinstance(config, AutoConfig):
            raise ValueError(f"config must be an AutoConfig, got {config!r}")
        if max_evaluations is not None:
            max_evaluations = check_count("max_evaluations", max_evaluations)
        self.max_evaluations = max_evaluations
        if order is not None:
            raise ValueError(
                f"order={order!r} was replaced by schedule: pass one of cocd.schedules, such as "
                "schedule=Spread() or schedule=Cyclic()"
            )
        if schedule is None:
            schedule = Spread() if memory_budget is None else Cyclic()
        self._learned = Learned(config, 1.0 if lr is None else lr)
        super().__init__(
            params,
            {"lr": self._learned.first_lr, "eps": config.radius if eps is None else eps, "l2": l2},
            compute_budget=1 if compute_budget is None else compute_budget,
            memory_budget=memory_budget,
            schedule=schedule,
            difference="central",
            nonfinite=nonfinite,
            modules=modules,
            basis=basis,
        )
        if self._learned.first_lr == 0:
            raise ValueError("lr must be above 0, got 0; it is where the search begins")
        self._learned.first_lr = float(self._learned.first_lr)  # a tensor follows the scheduler
        if not self._in_tensors and memory_budget == self._schedule.n:
            self._memory.budget = None  # all there are, also when others join
        if compute_budget is None:
            self._begin_budget()

    def _begin_budget(self) -> None:
        self.compute_budget = least_budget(self.config, self._schedule.size, self._memory.m)
        self._learned.budget = Budget(self.compute_budget, config=self.config)
        self._begin_judging()

    def reset(self, estimate: Tensor | Iterable[Tensor] | None = None) -> None:
        """Forget everything that was learned, and slopes as `CoCD.reset` does; parameters stay."""
        super().reset(estimate)
        before = self._learned
        self._learned = Learned(before.config, before.first_lr, budget=before.budget)
        if before.budget is not None:
            self._begin_budget()

    # --- what it found out -----------------------------------------------------------------------

    @property
    def config(self) -> AutoConfig:
        """The constants in use: given, or loaded."""
        return self._learned.config

    @property
    def boldness(self) -> float:
        """The factor on the part of each step; 1 if the budget was given."""
        return self._learned.boldness

    @property
    def scales(self) -> list[float]:
        """The factor on each parameter's steps: above 1 where its slopes persist."""
        return self._by_parameter(self._learned.scales)

    @property
    def radii(self) -> list[float]:
        """The radius of each parameter's probes: its group's `eps`, narrower or wider."""
        eps = [float(group["eps"]) for group in self.param_groups for _ in group["params"]]
        widths = self._by_parameter(self._learned.radius)
        return [width * own for width, own in zip(widths, eps, strict=True)]

    def _by_parameter(self, part: Scales | Radius) -> list[float]:
        found = dict(zip(map(id, self._tensors), part.of(range(len(self._tensors))), strict=True))
        return [float(found.get(id(parameter), 1.0)) for parameter in self._parameters()]

    @property
    def reach(self) -> float:
        """How many radii a coordinate moves at most in one step."""
        return self._learned.reach.value * self.config.reach

    @property
    def restored(self) -> int:
        """How often earlier parameters were restored because the loss had risen too far."""
        return self._learned.rollback.restored

    # --- one step --------------------------------------------------------------------------------

    def step(self, closure: Callable[[], LossT] | None = None) -> LossT:  # type: ignore[override]
        """Probe, scale, search, move; returns the loss at x_t, before the update."""
        with self._evaluating(closure) as evaluate, in_basis(evaluate):
            options = self._groups_by_tensor()
            block = self._next_block(options)
            probes = self._probe(evaluate, block)
            self._look_at_closure(evaluate, probes.loss, bool(probes.g.any()))
            gain = self._judge_last(evaluate, probes.loss, options)
            direction = self._direction(block, probes)
            found = direction and self._search(evaluate, block, probes.loss, direction)
            move = self._part_of(evaluate, block, better(found, probes.best(block)))
            loss = probes.loss + penalty(self._tensors, options)
            verdict = self._learned.rollback.check(
                loss, self._tensors, lambda: evaluate.quickly() + penalty(self._tensors, options)
            )
            evaluate.interrupts.deliver()  # nothing has changed so far
            self._observe(block, probes, gain, found, block.rounding(evaluate.first))
            self._commit(loss, verdict, move)
        return cast(LossT, evaluate.first)

    def next_evaluations(self) -> int:
        """The largest number of evaluations that the next step can make."""
        return super().next_evaluations() + 4  # two along the step, to judge the last, to go back

    def _next_block(self, options: Options) -> Block:
        """S_t, the next B coordinates of the order (4)."""
        self._follow()
        B = self._budget()
        if self.max_evaluations is not None:  # which may have been changed between two steps
            check_count("max_evaluations", self.max_evaluations)
        segments = self._memory.block(self._prepared(B), B)
        places = by_tensor(segment.part for segment in segments)
        widths = self._learned.radius.of([place.tensor for place in places])
        return Block(self._tensors, places, options, segments, widths)

    def _probe(self, evaluate: Evaluations, block: Block) -> BlockProbes:
        """Slopes; every fourth sweep, and where it is unknown, curvature too."""
        known = np.full(len(block), np.nan)
        if self._memory.dense:  # a ring has forgotten a coordinate when its turn comes again
            known = self._learned.curvature.read(block.places)
        times, sweep = self.config.one_sided_radius, int(self._schedule.done)
        side: Difference = "forward" if sweep % 2 else "backward"
        due = sweep % self.config.measure_every == 0 or np.isnan(known[block.moving]).any()
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
            return BlockProbes(loss, g, Curvature.mean(known, second), known, second)
        sign = 1 if side == "forward" else -1
        g -= sign * times * block.radius * known / 2  # (2)
        return BlockProbes(loss, g, known, known, None)

    def _judge_last(self, evaluate: Evaluations, loss: float, options: Options) -> float | None:
        """G, what the last move gained on this batch (8); None if it is not judged."""
        last = Move() if self._learned.budget is None else self._learned.last
        return last.gained(evaluate, self._tensors, options, loss)

    def _direction(self, block: Block, probes: BlockProbes) -> Direction | None:
        """p, slopes over curvatures, within reach."""
        config = self.config
        return propose(
            block.slopes(probes.g),
            block.curvatures(probes.c),
            block.radius,
            self.reach * block.radius,
            block.spread(self._learned.scales.of(block.tensors)),
            config.damping,
            config.curvature_floor,
        )

    def _search(
        self, evaluate: Evaluations, block: Block, loss: float, direction: Direction
    ) -> SearchResult:
        """s, how far along p the objective is lowest."""
        return search(
            direction,
            loss + block.penalty(),
            self._learned.length(self._length_key(block)).value,
            self.config.rounding * block.rounding(evaluate.first) * abs(loss),
            lambda s: block.at(evaluate, s * direction.p),
        )

    def _part_of(self, evaluate: Evaluations, block: Block, found: SearchResult | None) -> Move:
        """The part rho of the step that generalises beyond the mini-batch (6)."""
        if found is None:
            return Move()
        left = self._learned.left(
            self._schedule.done, self.evaluations + evaluate.count, self.max_evaluations
        )
        share = self._learned.part(self._schedule.done) * left * self.boldness
        rates = block.option("lr") / self._learned.first_lr
        return Move.along(block, found, share, left, rates)

    def _observe(
        self,
        block: Block,
        probes: BlockProbes,
        gain: float | None,
        found: SearchResult | None,
        rounding: float,
    ) -> None:
        """Store the measurements, and update every part that learns."""
        slopes = torch.from_numpy(probes.g)
        finite = self._quarantine(block.segments, slopes)
        for observe in self._observers:
            observe(block.segments, slopes)
        learned = self._learned
        if not self._in_tensors and learned.scales.sweep < self.config.compared_until:
            learned.compare(block, probes, self._stale(block, probes), self._schedule.done)
        schedule = self._prepared(len(block))  # the same again: nothing has changed since
        if schedule.voids(len(block)):
            self._memory.forget()
        self._memory.write(block.segments, slopes, finite)
        if probes.fresh is not None and self._memory.dense:
            sizes = [tensor.numel() for tensor in self._tensors]
            learned.curvature.observe(block.places, probes.c, sizes)
        schedule.advance(len(block))
        self._schedule = schedule
        if found is not None:
            learned.observe_search(self._length_key(block), found)
        lost = probes.lost(block, rounding)
        changed = learned.radius.observe(block.tensors, block.steps(found), lost)
        learned.curvature.forget(changed)  # it depends on the radius
        learned.judge(gain, self._schedule.done, len(block), self._schedule.size, self._memory.m)

    def _stale(self, block: Block, probes: BlockProbes) -> Vector:
        """The slopes of a sweep ago; NaN where there were none or the user slowed the steps."""
        fastest = max(float(group["lr"]) for group in self.param_groups)
        stale = self._memory.read(block.segments).numpy()
        stale[np.isnan(probes.known) | (block.option("lr") < fastest)] = np.nan
        return stale

    def _commit(self, loss: float, verdict: Verdict, move: Move) -> None:
        """Move, or restore better parameters."""
        learned = self._learned
        sweep = self._schedule.size / self.compute_budget
        learned.rollback.observe(loss, verdict, self._tensors, sweep)
        if verdict == "lost":
            learned.rollback.restore(self._tensors)
            learned.went_back(self._schedule.done)
            move = Move()
        move.make(self._tensors)
        learned.last = Move()
        if (own := learned.budget) is not None:
            self.compute_budget = own.size
            if own.age < self.config.judged_sweeps:
                learned.last = move

    # --- how long, how bold ---------------------------------------------------------------------

    @property
    def _in_tensors(self) -> bool:
        """Whether blocks consist of neighbours, mostly from one tensor."""
        return isinstance(self._template, Cyclic)

    def _length_key(self, block: Block) -> int:
        """The key of the length: the tensor, or one for all."""
        return block.places[0].tensor if self._in_tensors else 0

    # --- coordinates that join -----------------------------------------------------------------

    def _begin_judging(self) -> None:
        """Start with the largest B for this many coordinates; it halves from there."""
        if any(map(is_half, self._tensors)):  # much of what they move by is rounding
            self._learned.budget = None
        own = self._learned.budget
        if own is not None and own.free and own.size == self.compute_budget:  # not set by hand
            first = first_budget(self.config, self._schedule.size, self._memory.m)
            self.compute_budget = max(self.compute_budget, first)
            own.set(self.compute_budget, free=True)

    def _follow(self) -> None:
        before = self._schedule.n
        super()._follow()
        if self._schedule.n > 2 * before or any(map(is_half, self._tensors)):
            self._begin_judging()  # most coordinates are new: forget what was learned
        if self._schedule.n > 2 * before:
            self._learned.compare_anew(self._schedule.done)

    # --- saving --------------------------------------------------------------------------------

    def _snapshot(self) -> State:
        return {
            **super()._snapshot(),
            "max_evaluations": self.max_evaluations and int(self.max_evaluations),
            **self._learned.state_dict(),
        }

    def _check_snapshot(self, saved: State) -> None:
        super()._check_snapshot(saved)
        if missing := [name for name in SAVED if name not in saved]:
            raise ValueError(
                f"state_dict has no {', '.join(missing)}: it was not saved by AutoCoCD of this "
                "release"
            )
        AutoConfig.from_state(saved["config"])

    def _restore(self, saved: State) -> None:
        super()._restore(saved)
        self.max_evaluations = saved["max_evaluations"]
        self._learned = Learned.from_state(saved)
        self.defaults["lr"] = self._learned.first_lr
