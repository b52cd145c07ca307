"""An objective on one batch: a closure that answers many probes at once and checks itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..parts.evaluation import Evaluations
from ..parts.layout import gather
from . import losses, points
from .batched import batched_losses, call_model
from .checks import RECHECK, disagreement, first_line
from .closure import check_radius, sequential
from .graph.graph import Run
from .graph.propagation import irrelevant, loss_changes
from .peak_memory import PeakMemory, storage_bytes
from .protocol import (
    BoundLoss,
    Difference,
    Differences,
    LossValue,
    ValueT,
    evaluations_per_coordinate,
)
from .registry import Moves
from .stacking import moved, tensors_in
from .truth import Truth, problem_with, truth_of

if TYPE_CHECKING:
    from .traced import Objective, Record

_MOST_PROBES = 1024
_TIMED = 3  # evaluations of the closure that an engine's time is held against
FirstT = TypeVar("FirstT")


@dataclass(repr=False)
class TracedLoss(BoundLoss, Generic[ValueT]):
    """The loss on one batch. An ordinary closure that can also answer many probes at once."""

    objective: Objective[ValueT]
    inputs: object
    target: object
    _run: Run | None = field(default=None, repr=False)
    # What the forward wrote into the batch, and what stood there; None before the first evaluation.
    _batch: list[tuple[Tensor, Tensor]] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"<the loss of {type(self.objective.model).__name__} on one batch>"

    def modules(self) -> tuple[nn.Module, ...]:
        """Whose buffers an evaluation may change."""
        loss_fn = self.objective.loss_fn
        extra = (loss_fn,) if isinstance(loss_fn, nn.Module) else ()
        return (self.objective.model, *extra)

    def __call__(self) -> ValueT:
        """The loss at the current parameters."""
        if self._batch is None:
            return self._first(self._plainly)
        for tensor, before in self._batch:
            tensor.copy_(before)
        return self._plainly()

    def _plainly(self) -> ValueT:
        output = call_model(self.objective.model, self.inputs)
        return self.objective.loss(output, self.target)

    def _first(self, evaluate: Callable[[], FirstT]) -> FirstT:
        """An evaluation that shows whether the forward writes into its batch, as ``x /= 255`` does.

        If it does, the others of the step start from the batch as it was before.
        """
        tensors = [t for t in tensors_in((self.inputs, self.target)) if not t.is_inference()]
        before = [(tensor, tensor._version, tensor.detach().clone()) for tensor in tensors]
        self._batch = []
        value = evaluate()
        self._batch = [(t, values) for t, version, values in before if t._version != version]
        return value

    def quickly(self) -> ValueT:
        """The same by the recorded calls, where they are sure to be all that the model does."""
        if self._run is not None:
            output = self.objective._tracer.again(tensors_in(self.inputs))
            if output is not None:
                return self.objective.loss(output, self.target)
        return self()

    def prepare(self, rewind: Callable[[], None]) -> LossValue:
        """The loss at the unperturbed point, with the activations kept for the probes.

        It is the loss that the model itself gives, which is recorded while it runs.
        """
        objective = self.objective
        objective._follow_model()
        objective._reconsider()
        if not objective._can_follow():
            return self()
        with objective.accelerating():
            return self._record(rewind)

    def _record(self, rewind: Callable[[], None]) -> LossValue:
        objective = self.objective
        objective._since_check = (objective._since_check + 1) % RECHECK
        try:
            output, self._run, problem = self._first(
                lambda: objective._tracer.follow(
                    lambda: call_model(objective.model, self.inputs),
                    tensors_in(self.inputs),
                    objective._names,
                    whole=objective._since_check == 1,
                )
            )
        except Exception as error:
            rewind()
            loss = self()  # where the model itself fails, so does this
            objective._give_up(f"it fails while it is recorded ({first_line(error)})")
            return loss
        loss = objective.loss(output, self.target)
        if self._run is not None and objective._since_check == 1:
            problem = self._repeated(loss, rewind)
        if problem:
            self._run = None
            objective._give_up(problem)
        elif self._run is not None:
            objective._take(self._run.graph)
        return loss

    def _repeated(self, loss: LossValue, rewind: Callable[[], None]) -> str:
        """What is wrong with the loss when it is evaluated once more, or nothing.

        The model may read what nobody rewinds: a file, a clock, a generator of its own.
        """
        rewind()
        again = self()
        self.objective.checks += 1
        return disagreement(loss, again)

    def release(self) -> None:
        """Let the activations go."""
        self._run = self._batch = None

    def differences(
        self,
        evaluate: Evaluations,
        loss: float,
        tensor: Tensor,
        index: list[int],
        eps: float,
        difference: Difference,
    ) -> Differences:
        with self.objective.accelerating():
            return self._differences(evaluate, loss, tensor, index, eps, difference)

    def _differences(
        self,
        evaluate: Evaluations,
        loss: float,
        tensor: Tensor,
        index: list[int],
        eps: float,
        difference: Difference,
    ) -> Differences:
        objective = self.objective
        name = objective._names.get(id(tensor))
        truth = None
        again = objective._since_check == 1  # `prepare` has asked twice in this step, too
        while name is not None and objective._records[name].engine != "sequential":
            record = objective._records[name]
            if record.engine == "incremental" and self._run is None:
                break  # nothing was prepared
            due = again or not record.checked
            if due and truth is None and (chosen := self._relevant(record, index)):
                truth = truth_of(objective, evaluate, loss, tensor, record, chosen, eps)
            try:
                if truth is not None and due:
                    problem = self._problem(evaluate, loss, name, tensor, truth)
                    if problem:
                        objective._demote(name, problem)
                        truth = None if record.checked else truth  # the next one needs them all
                        continue
                    record.checked = True
                charge = evaluations_per_coordinate(difference) * len(index)
                with record.timing.probing(charge, tensor):
                    found = self._probe(evaluate, loss, name, tensor, index, eps, difference)
            except Warning:  # the user's filters made an error of it
                raise
            except Exception as error:  # whatever a rule or vmap does not expect
                # That a model is not for vmap is no news, unless it was asked for.
                loud = record.engine == "incremental" or objective._engine is not None
                objective._demote(name, f"cannot follow it ({first_line(error)})", loud)
                continue
            evaluate.charge(charge)
            if record.timing.is_due and objective._engine is None:
                self._decide(evaluate, name, tensor)
            return found
        found = sequential(evaluate, loss, tensor, index, eps, difference)
        if name is None and not bool(found.first.any()):
            objective.tell_stranger(tensor)
        return found

    def points_at_once(self, tensors: list[Tensor]) -> int:
        """See `points.at_once`."""
        return points.at_once(self, tensors)

    def moved(self, tensors: list[Tensor], rewind: Callable[[], None]) -> LossValue:
        """See `points.moved`."""
        return points.moved(self, tensors, rewind)

    def losses_at(
        self,
        evaluate: Evaluations,
        tensors: list[Tensor],
        stacks: list[Tensor],
        first: Callable[[], float],
    ) -> tuple[float, list[float] | None]:
        """See `points.losses_at`."""
        return points.losses_at(self, evaluate, tensors, stacks, first)

    def _elsewhere(self, record: Record, index: list[int]) -> list[tuple[int, ...]]:
        """For each element, where its tensor is read but the element is not."""
        if self._run is None or record.plan is None:
            return [()] * len(index)
        return irrelevant(self._run, record.plan, index)

    def _relevant(self, record: Record, index: list[int]) -> list[int]:
        """The elements that matter to this batch."""
        entries = -1 if record.plan is None else len(record.plan.entries)
        elsewhere = self._elsewhere(record, index)
        return [i for i, gone in zip(index, elsewhere, strict=True) if len(gone) != entries]

    def _problem(
        self, evaluate: Evaluations, loss: float, name: str, tensor: Tensor, truth: Truth
    ) -> str:
        """Does the engine give what the closure gives? Says what is wrong, or nothing."""
        index, radius = truth.elements, truth.radius
        found = self._probe(evaluate, loss, name, tensor, index, radius, "central").first
        return problem_with(self.objective, self._run, evaluate, loss, name, tensor, truth, found)

    # --- one tensor's probes, by the engine that is on it ----------------------------------------

    def _probe(
        self,
        evaluate: Evaluations,
        loss: float,
        name: str,
        tensor: Tensor,
        index: list[int],
        eps: float,
        difference: Difference,
    ) -> Differences:
        record = self.objective._records[name]
        signs = {"central": (1, -1), "forward": (1,), "backward": (-1,)}[difference]
        saved = gather(tensor, index)
        steps = _undergone(saved, [sign * eps for sign in signs])
        if not bool(steps.all()):
            check_radius(saved, saved + eps, saved - eps, eps, difference)
        elements = [i for i in index for _ in signs]
        groups: dict[tuple[int, ...], list[int]] = {}
        for k, elsewhere in enumerate(self._elsewhere(record, index)):
            groups.setdefault(elsewhere, []).extend(range(k * len(signs), (k + 1) * len(signs)))
        changes = torch.zeros(len(elements), dtype=torch.float64)
        for elsewhere, places in groups.items():
            if record.plan is not None and len(elsewhere) == len(record.plan.entries):
                continue  # nothing depends on them
            moves = Moves([elements[k] for k in places], steps[places])
            changes[places] = self._in_stacks(evaluate, loss, name, tensor, moves, elsewhere)
        if difference == "central":
            up, down = changes.view(-1, 2).unbind(1)
            return Differences(up - down, up + down)
        return Differences(changes * signs[0], None)

    def _in_stacks(
        self,
        evaluate: Evaluations,
        loss: float,
        name: str,
        tensor: Tensor,
        moves: Moves,
        elsewhere: tuple[int, ...],
    ) -> Tensor:
        """f(x + step e_i) - f(x), as many probes at a time as the memory limit allows."""
        record = self.objective._records[name]
        parts: list[Tensor] = []
        done = 0
        while done < moves.K:
            size = self._at_once(record, elsewhere)
            part = Moves(moves.index[done : done + size], moves.steps[done : done + size])
            with nullcontext() if elsewhere in record.held else PeakMemory() as held:
                parts.append(self._losses(evaluate, loss, name, tensor, part, elsewhere))
            if held is not None:
                # Many probes take a little more than the ends of one, which touch the same unit.
                record.held[elsewhere] = held.peak * 9 // (8 * part.K) + 1
                self._refuse_alone(record, elsewhere)
            done += part.K
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _at_once(self, record: Record, elsewhere: tuple[int, ...]) -> int:
        """From shapes and dtypes alone.

        As few as can be to find out. Afterwards both ends of a central difference are one stack,
        whatever the limit is.
        """
        if elsewhere not in record.held:
            return 2 if record.engine == "incremental" else 1
        most = (self.objective._memory - self._kept()) // record.held[elsewhere]
        if record.plan is not None:
            most = min(most, self.objective.memory_limit // max(record.plan.peak, 1))
        return max(2, min(_MOST_PROBES, most) // 2 * 2)

    def _kept(self) -> int:
        """Bytes of the activations that the unperturbed pass has left."""
        run = self._run
        return 0 if run is None else int(run.memo("bytes", lambda: storage_bytes(run.values)))

    def _refuse_alone(self, record: Record, elsewhere: tuple[int, ...]) -> None:
        """Whole passes of one point alone are made as well by the closure, in less memory."""
        most = (self.objective._memory - self._kept()) // record.held[elsewhere]
        if record.engine == "batched" and most < 2 and self.objective._engine is None:
            raise MemoryError("memory_limit holds fewer than two of its passes")

    def _decide(self, evaluate: Evaluations, name: str, tensor: Tensor) -> None:
        """Once for each tensor: is its engine faster than the closure? It stays, or never returns.

        Decided once, so that a run goes on by the engines that its saved state names.
        """
        objective, record = self.objective, self.objective._records[name]
        with evaluate.uncounted(objective.count_checks):
            for _ in range(_TIMED):
                with record.timing.evaluating(1, tensor):
                    evaluate.again()
        record.timing.decided = True
        gain = record.timing.gain
        if gain is not None and gain < 1:
            why = f"takes {1 / gain:.1f} times as long as the closure"
            objective._demote(name, why, loud=False, following="sequential")

    def _losses(
        self,
        evaluate: Evaluations,
        loss: float,
        name: str,
        tensor: Tensor,
        moves: Moves,
        elsewhere: tuple[int, ...],
    ) -> Tensor:
        objective, record = self.objective, self.objective._records[name]
        if record.engine == "incremental":
            if record.plan is None:  # no call reads it
                return torch.zeros(moves.K, dtype=torch.float64)
            assert self._run is not None
            known = None if objective._loss is None else losses.change_of(objective._loss)
            return loss_changes(
                self._run,
                record.plan,
                tensor,
                moves,
                known,
                objective.loss_fn,
                self.target,
                objective._scratch,
                elsewhere,
            )
        evaluate.rewind()
        with evaluate.keeping():
            values = batched_losses(
                objective.model,
                {name: moved(tensor, moves)},
                self.inputs,
                lambda output: objective.loss(output, self.target),
            )
        return values - loss


def _undergone(saved: Tensor, steps: list[float]) -> Tensor:
    """What the stored weights really undergo: fl(w + h) - w; a weight's steps are adjacent."""
    if saved.is_cpu and saved.dtype in (torch.float32, torch.float64):
        w = saved.numpy()[:, None]  # for so few numbers in half of the time
        with np.errstate(over="ignore", invalid="ignore"):
            return torch.from_numpy((w + np.array(steps).astype(w.dtype) - w).reshape(-1))
    ends = torch.stack([saved + h for h in steps], 1)
    return (ends - saved[:, None]).flatten()
