"""The estimator inside: schedule -> probe -> memory, on torch parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..basis import KINDS, Basis, named
from ..objective.closure import bound
from ..objective.protocol import Closure, LossValue, evaluations_per_coordinate
from ..parts.coefficients import Coefficients
from ..parts.evaluation import Evaluations
from ..parts.layout import Layout
from ..parts.memory import Memory, Segment
from ..parts.probe import probe
from ..parts.types import Group, Modules, State
from ..parts.validation import (
    check_budgets,
    check_choice,
    check_count,
    check_difference,
    default_budget,
)
from ..schedules import Cyclic, Schedule
from ..schedules.schedule import check_schedule
from .base import ZerothOrder

# Gets the block that is about to be written and its fresh estimates, NaN where one failed.
Observer = Callable[[list[Segment], Tensor], None]


class CoordinateMethod(ZerothOrder):
    """Keeps estimates of the gradient's coordinates, `compute_budget` of them fresh a step."""

    _whole = (*ZerothOrder._whole, "basis", "compute_budget", "memory_budget", "difference")
    _kept = (
        *ZerothOrder._kept,
        "basis",
        "compute_budget",
        "difference",
        "_layout",
        "_template",
        "_schedule",
        "_memory",
    )
    _observers: tuple[Observer, ...] = ()  # see each block just before it is remembered
    _one_difference = True  # all estimates are made in the same way, at the group's own eps

    def __init__(
        self,
        params: ParamsT,
        defaults: Group,
        *,
        compute_budget: int | None,
        memory_budget: int | None,
        schedule: Schedule | None = None,
        difference: str = "central",
        nonfinite: str,
        modules: Modules,
        basis: str | None = None,
    ) -> None:
        self.difference = check_difference(difference)
        self.basis = None if basis is None else check_choice("basis", basis, KINDS)
        self._layout: Layout | None = None
        B = None if compute_budget is None else check_count("compute_budget", compute_budget)
        m = None if memory_budget is None else check_count("memory_budget", memory_budget)
        super().__init__(params, defaults, nonfinite, modules)
        layout = Layout(self._trainable())
        if not layout.n:
            raise ValueError(
                "params holds nothing to train: every parameter is empty or has requires_grad=False"
            )
        self._template = Cyclic() if schedule is None else check_schedule(schedule, m)
        self._bases(layout.tensors)
        self._layout = layout
        self._memory = Memory(layout, m)
        self._schedule = self._new_schedule(layout)
        self.compute_budget = default_budget(self._schedule.size, m) if B is None else B
        check_budgets(self.compute_budget, m, self._schedule.size)

    def _new_schedule(self, layout: Layout) -> Schedule:
        """A copy of the given schedule, at its start; the given one stays unchanged."""
        schedule = copy.deepcopy(self._template)
        schedule.grow(layout.sizes)
        return schedule

    @property
    def schedule(self) -> Schedule:
        """The order in which coordinates are probed; `count` is its position."""
        return self._schedule

    @property
    def memory_budget(self) -> int:
        """The paper's m, the number of remembered estimates."""
        return self._memory.m

    def estimate(self) -> Tensor:
        """The remembered gradient estimate, dense and flat.

        Zero where nothing is remembered; parameters in order, each row-major.
        """
        tensors = self._trainable()
        if not tensors:  # all have been frozen
            return torch.zeros(0)
        dtype = tensors[0].dtype
        for tensor in tensors:
            dtype = torch.promote_types(dtype, tensor.dtype)
        sizes = [tensor.numel() for tensor in tensors]
        flat = torch.zeros(sum(sizes), dtype=dtype, device=tensors[0].device)
        part = dict(zip(map(id, tensors), torch.split(flat, sizes), strict=True))
        for segment in self._memory.remembered(self._schedule):
            tensor = self._tensors[segment.part.tensor]
            if id(tensor) in part:
                values = self._memory.values(segment)
                part[id(tensor)][segment.part.start : segment.part.stop] = values
        if self.basis is not None:
            pairs = zip(part.values(), self._bases(tensors), strict=True)
            flat = torch.cat([basis.combine(values.cpu()).to(flat) for values, basis in pairs])
        return flat

    def next_evaluations(self) -> int:
        """The number of evaluations of the next step: one, plus the block's probes."""
        self._follow()
        budget = self._budget()
        block = self._memory.block(self._prepared(budget), budget)
        moving = [s.part for s in block if self._tensors[s.part.tensor].requires_grad]
        return 1 + evaluations_per_coordinate(self.difference) * sum(map(len, moving))

    def reset(self, estimate: Tensor | Iterable[Tensor] | None = None) -> None:
        """Forget the memory and restart the order; parameters and counts stay.

        `estimate` is remembered instead: flat as `estimate()` gives it, or one tensor for each
        parameter. A memory of m < n takes the coordinates that come last in the order.
        """
        self._follow()
        assert self._layout is not None
        flat = None if estimate is None else self._in_sweep_order(estimate)
        schedule = self._new_schedule(self._layout)
        memory = Memory(self._layout, self._memory.budget)
        if flat is not None:
            memory.fill(flat, schedule)
        self._schedule, self._memory = schedule, memory

    def _in_sweep_order(self, estimate: Tensor | Iterable[Tensor]) -> Tensor:
        tensors = self._trainable()
        parts = [estimate] if isinstance(estimate, Tensor) else list(estimate)
        flat = torch.cat([part.detach().double().cpu().reshape(-1) for part in parts])
        sizes = [tensor.numel() for tensor in tensors]
        if len(flat) != sum(sizes) or not bool(flat.isfinite().all()):
            raise ValueError(
                f"estimate must hold {sum(sizes)} finite numbers, one for each coordinate, got "
                f"{len(flat)} numbers, of which {int(flat.isfinite().sum())} are finite"
            )
        values = torch.split(flat, sizes)
        if self.basis is not None:
            pairs = zip(values, self._bases(tensors), strict=True)
            values = tuple(basis.coefficients(part) for part, basis in pairs)
        of = dict(zip(map(id, tensors), values, strict=True))
        zero = torch.zeros(0, dtype=torch.float64)
        return torch.cat([of.get(id(t), zero.new_zeros(t.numel())) for t in self._tensors])

    # --- the basis -------------------------------------------------------------------------------

    def _bases(self, tensors: list[Tensor]) -> list[Basis]:
        """One of each tensor, decided by its place among the parameters; none without a basis."""
        if self.basis is None:
            return []
        made: dict[int, Basis] = self.__dict__.setdefault("_made", {})  # neither saved nor copied
        places = {id(tensor): i for i, tensor in enumerate(self._parameters())}
        for tensor in tensors:
            place = places[id(tensor)]
            if place not in made:
                made[place] = named(self.basis, tensor.numel(), place)
        return [made[places[id(tensor)]] for tensor in tensors]

    def _evaluating(
        self, closure: Closure | None, report: Callable[[int], None] | None = None
    ) -> Evaluations:
        if self.basis is None or not callable(closure):
            return super()._evaluating(closure, report)
        tensors = self._trainable()
        return super()._evaluating(
            Coefficients(bound(closure), tensors, self._bases(tensors)), report
        )

    # --- one step ------------------------------------------------------------------------------

    def _refresh(self, evaluate: Evaluations) -> None:
        """Decay the memory and overwrite the scheduled block with fresh differences."""
        options = self._groups_by_tensor()
        self._follow()
        B = self._budget()

        schedule = self._prepared(B)
        block = self._memory.block(schedule, B)
        loss, fresh = probe(
            evaluate,
            self._tensors,
            [segment.part for segment in block],
            lambda tensor: float(options[id(tensor)]["eps"]),
            self.difference,
        )
        self._look_at_closure(evaluate, loss, bool(fresh.first.any()))
        evaluate.interrupts.deliver()  # nothing has changed so far
        finite = self._quarantine(block, fresh.first)

        for observe in self._observers:
            observe(block, fresh.first)
        if schedule.voids(B):
            self._memory.forget()
        self._memory.decay(lambda tensor: float(options[id(tensor)]["decay"]), self._schedule)
        self._memory.write(block, fresh.first, finite)
        schedule.advance(B)
        self._schedule = schedule

    def _prepared(self, budget: int) -> Schedule:
        def weights() -> Tensor:
            return torch.cat([tensor.detach().flatten().cpu() for tensor in self._tensors])

        def slopes() -> Tensor:
            return self._memory.read(self._memory.remembered(self._schedule))

        return self._schedule.prepared(budget, weights, slopes)

    def _budget(self) -> int:
        """B, which may change between two steps."""
        B = check_count("compute_budget", self.compute_budget)
        check_budgets(B, self._memory.budget, self._schedule.size)
        return B

    def _quarantine(self, block: list[Segment], fresh: Tensor) -> bool:
        """Count NaN and infinite estimates, and those that overflow in the buffer."""
        largest = self._memory.largest
        if all(-largest <= value <= largest for value in fresh.tolist()):  # as nearly always
            return True
        bad = position = 0
        for segment in block:
            part = fresh[position : position + len(segment.part)]
            if self._tensors[segment.part.tensor].requires_grad:
                kept = part.to(self._memory.buffers[segment.buffer].dtype)
                bad += len(part) - int(kept.isfinite().sum())
            position += len(segment.part)
        self._report_nonfinite(bad, f"of {len(fresh)} probes gave a loss that is not finite")
        return False

    # --- the tensors that are swept -----------------------------------------------------------

    @property
    def _tensors(self) -> list[Tensor]:
        assert self._layout is not None
        return self._layout.tensors

    def _joined(self) -> None:
        if self._layout is not None:  # otherwise the constructor is still collecting groups
            self._follow()

    def _follow(self) -> None:
        """Add parameters that are new or no longer frozen; notice replaced ones."""
        assert self._layout is not None
        layout = self._layout
        self._bases(self._trainable())  # which may refuse, before anything has changed
        for t, tensor in enumerate(layout.tensors):
            kind = layout.kinds[layout.kind[t]]
            here = tensor.dtype is layout.dtypes[t] and tensor.device == kind.device
            if not here or tensor.shape != layout.shapes[t]:
                raise ValueError(
                    f"params: a parameter is now of shape {tuple(tensor.shape)}, {tensor.dtype} on "
                    f"{tensor.device}, the optimizer was built for {tuple(layout.shapes[t])}, "
                    f"{layout.dtypes[t]} on {kind.device}; build it after moving, casting or "
                    "reshaping the model"
                )
        known = {id(tensor) for tensor in layout.tensors}
        if new := [tensor for tensor in self._trainable() if id(tensor) not in known]:
            self._memory.grow(new, self._schedule)

    # --- saving --------------------------------------------------------------------------------

    def _snapshot(self) -> State:
        position = {id(tensor): i for i, tensor in enumerate(self._parameters())}
        return {
            **super()._snapshot(),
            "compute_budget": int(self.compute_budget),
            "difference": self.difference,
            "basis": self.basis,
            "dtypes": [str(tensor.dtype) for tensor in self._tensors],
            "swept": [position[id(tensor)] for tensor in self._tensors],
            "order": type(self._schedule).__name__,
            "schedule": self._schedule.state_dict(),
            "memory": self._memory.state_dict(),
        }

    def _check_snapshot(self, saved: State) -> None:
        super()._check_snapshot(saved)
        if saved["order"] != type(self._schedule).__name__:
            raise ValueError(
                f"state_dict has the schedule {saved['order']}, this optimizer has "
                f"{type(self._schedule).__name__}; build it with the same"
            )
        if saved.get("basis") != self.basis:
            raise ValueError(
                f"state_dict has basis={saved.get('basis')!r}, this optimizer has "
                f"basis={self.basis!r}; build it with the same"
            )
        layout, sizes = self._layout_of(saved)
        dtypes = [str(tensor.dtype) for tensor in layout.tensors]
        if saved["dtypes"] != dtypes:
            raise ValueError(
                f"state_dict belongs to parameters of dtypes {saved['dtypes']}, this optimizer has "
                f"{dtypes}; cast the model before building the optimizer"
            )
        here = layout.n if self._memory.budget is None else self._memory.budget
        there = saved["memory"]["budget"] or layout.n  # None means all, whatever n is
        if here != there:
            raise ValueError(
                f"state_dict has memory_budget={there}, this optimizer has memory_budget={here}; "
                "build it with the same"
            )
        found = [len(buffer) for buffer in saved["memory"]["buffers"]]
        if found != sizes:
            raise ValueError(
                f"state_dict remembers {found} estimates, the parameters here need {sizes} "
                f"({layout.n} coordinates in {[tuple(k) for k in layout.kinds]})"
            )

    def _layout_of(self, saved: State) -> tuple[Layout, list[int]]:
        parameters = self._parameters()
        layout = Layout(parameters[i] for i in saved["swept"])
        return layout, [len(buffer) for buffer in Memory(layout, self._memory.budget).buffers]

    def _restore(self, saved: State) -> None:
        super()._restore(saved)
        self.compute_budget = int(saved["compute_budget"])
        self.difference = check_difference(saved["difference"])
        self._layout, _ = self._layout_of(saved)
        self._memory = Memory(self._layout, self._memory.budget)
        self._memory.load_state_dict(saved["memory"])
        self._schedule = self._new_schedule(self._layout)
        self._schedule.load_state_dict(saved["schedule"])

    def _run(self, closure: Closure | None) -> LossValue:
        """One step: all evaluations first, then all changes."""
        with self._evaluating(closure) as evaluate, in_basis(evaluate):
            self._refresh(evaluate)
            self._move()
        return evaluate.first

    def _move(self) -> None:
        raise NotImplementedError


def in_basis(evaluate: Evaluations) -> AbstractContextManager[None]:
    """Inside, the parameters hold their coefficients, if the method has a basis."""
    loss = evaluate.bound
    return loss.entered() if isinstance(loss, Coefficients) else nullcontext()
