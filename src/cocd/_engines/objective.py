"""`cocd.trace`: a model and a loss as an objective that answers many probes at once."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .._evaluate import Evaluations
from .._layout import gather
from .._options import check_choice
from .._probe import Differences, check_radius, evaluations_per_coordinate, sequential
from .._warn import warn
from ..errors import EngineWarning
from . import losses
from .batched import batched_losses, call_model
from .graph import Graph, Run, trace_graph
from .incremental import Plan, loss_changes
from .registry import Moves
from .scratch import Scratch
from .tracing import Untraceable

ENGINES = ("incremental", "batched", "sequential")
_MEMORY_LIMIT = 8 << 20  # bytes of one stacked activation: about what stays in a last-level cache
_CHECKED = 3  # coordinates of a tensor that are also evaluated one by one, the first time
_RECHECK = 64  # steps after which the traced base point is compared with the model's again


@dataclass
class Record:
    """What is known about one parameter: who probes it, how that went."""

    engine: str
    checked: bool = False
    plan: Plan | None = None
    probes: int = 0
    seconds: float = 0.0
    one_by_one: float = 0.0  # seconds of one evaluation of the closure, when it was checked
    reason: str = ""


def trace(
    model: nn.Module,
    loss_fn: Any,
    *,
    engine: str | None = None,
    memory_limit: int | None = None,
) -> Objective:
    """Make an objective of a model and a loss that evaluates only what a probe changes.

    ``objective(inputs, target)`` is a closure for any optimizer here or elsewhere: calling it
    gives ``loss_fn(model(inputs), target)``; coordinate methods ask it for many probes at once.

    Args:
        model: any module. What cannot be followed layer by layer is evaluated in batches of
            whole passes, or one by one; `Objective.explain` says which and why.
        loss_fn: a function of the model's output and the target.
        engine: "incremental", "batched" or "sequential" for all parameters; None chooses the
            fastest that applies to each.
        memory_limit: bytes that a stacked activation may take; None for a size that is fast.

    >>> import torch, cocd
    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
    ... )
    >>> objective = cocd.trace(model, torch.nn.functional.mse_loss)
    >>> optimizer = cocd.CoCD(model.parameters(), lr=0.1, eps=0.1, compute_budget=16)
    >>> x, y = torch.randn(32, 4), torch.zeros(32, 2)
    >>> losses = [float(optimizer.step(objective(x, y))) for _ in range(60)]
    >>> losses[-1] < losses[0], optimizer.evaluations
    (True, 1980)
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch module, got {type(model).__name__}")
    if not callable(loss_fn):
        raise ValueError(f"loss_fn must be a function of output and target, got {loss_fn!r}")
    if engine is not None:
        check_choice("engine", engine, ENGINES)
    if memory_limit is not None and (not isinstance(memory_limit, int) or memory_limit < 1):
        raise ValueError(f"memory_limit must be a positive number of bytes, got {memory_limit!r}")
    return Objective(model, loss_fn, engine, memory_limit or _MEMORY_LIMIT)


class Objective:
    """A traced model and loss; ``objective(inputs, target)`` binds a batch."""

    def __init__(
        self, model: nn.Module, loss_fn: Any, engine: str | None, memory_limit: int
    ) -> None:
        self.model = model
        self.loss_fn = loss_fn
        self.memory_limit = memory_limit
        self.checks = 0  # evaluations made to check the engines, which no optimizer counts
        self._engine = engine
        self._scratch = Scratch()
        self._follow_model(first=True)
        if engine == "incremental" and self.graph is None:
            raise ValueError(f"engine='incremental' is not possible: {self._untraceable}")

    def __call__(self, inputs: Any, target: Any = None) -> Closure:
        """The loss on this batch, as a closure."""
        return Closure(self, inputs, target)

    def engine_of(self, name: str) -> str:
        """Which engine probes the parameter of that name."""
        return self._records[name].engine

    def loss(self, output: Any, target: Any) -> Any:
        """The loss of an output."""
        return self.loss_fn(output, target)

    # --- following a model that may change ------------------------------------------------------

    def _follow_model(self, first: bool = False) -> None:
        """Trace again if modules, parameters or modes are not the ones that were traced."""
        mark = _fingerprint(self.model)
        if not first and mark == self._mark:
            return
        self._mark = mark
        self._since_check = 0
        self._untraceable = ""
        self.graph: Graph | None = None
        if self._engine in (None, "incremental"):
            try:
                self.graph = trace_graph(self.model)
            except Untraceable as error:
                self._untraceable = str(error)
        self._loss = losses.known(self.loss_fn)
        self._names = {id(p): name for name, p in self.model.named_parameters()}
        self._records = {name: self._first_choice(name) for name in self._names.values()}

    def _first_choice(self, name: str) -> Record:
        if self._engine in ("batched", "sequential"):
            return Record(self._engine, reason="asked for")
        if self.graph is None:
            return Record("batched", reason=self._untraceable)
        uses = self.graph.sources.get(name, [])
        if len(uses) > 1:
            return Record("batched", reason=f"used in {len(uses)} places")
        if not uses:
            return Record("batched", reason="not used by a layer that was traced")
        return Record("incremental", plan=Plan(self.model, self.graph, name))

    def _demote(self, name: str, why: str) -> None:
        record = self._records[name]
        following = ENGINES[ENGINES.index(record.engine) + 1]
        warn(
            f"{name}: the {record.engine} engine {why}; it is probed by the {following} engine "
            "from now on",
            EngineWarning,
        )
        self._records[name] = Record(following, reason=f"{record.engine} engine {why}")

    def explain(self) -> str:
        """For each parameter: engine, rule, what is recomputed, estimated and measured gain."""
        from .explain import table

        return table(self)


@dataclass
class Closure:
    """The loss on one batch. An ordinary closure that can also answer many probes at once."""

    objective: Objective
    inputs: Any
    target: Any
    _run: Run | None = field(default=None, repr=False)

    def __call__(self) -> Any:
        """The loss at the current parameters."""
        output = call_model(self.objective.model, self.inputs)
        return self.objective.loss(output, self.target)

    def prepare(self) -> Any:
        """The loss at the unperturbed point, with the activations kept for the probes."""
        objective = self.objective
        objective._follow_model()
        if objective.graph is None:
            return self()
        self._run = Run(objective.model, objective.graph, self.inputs)
        return objective.loss(self._run.output, self.target)

    def release(self) -> None:
        """Let the activations go."""
        self._run = None

    def differences(
        self,
        evaluate: Evaluations,
        loss: float,
        tensor: Tensor,
        index: list[int],
        eps: float,
        difference: str,
    ) -> Differences:
        """See `cocd._probe.Prober`."""
        objective = self.objective
        self._check_base(evaluate, loss)
        name = objective._names.get(id(tensor))
        while name is not None and objective._records[name].engine != "sequential":
            record = objective._records[name]
            try:
                if not record.checked:
                    problem = self._check(evaluate, loss, name, tensor, index, eps)
                    if problem:
                        objective._demote(name, problem)
                        continue
                    record.checked = True
                found = self._probe(evaluate, loss, name, tensor, index, eps, difference)
            except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
                objective._demote(name, f"cannot follow it ({_first_line(error)})")
                continue
            evaluate.count += evaluations_per_coordinate(difference) * len(index)
            return found
        return sequential(evaluate, loss, tensor, index, eps, difference)

    # --- one tensor's probes, by the engine that is on it ----------------------------------------

    def _probe(
        self,
        evaluate: Evaluations,
        loss: float,
        name: str,
        tensor: Tensor,
        index: list[int],
        eps: float,
        difference: str,
    ) -> Differences:
        record = self.objective._records[name]
        signs = {"central": (1, -1), "forward": (1,), "backward": (-1,)}[difference]
        saved = gather(tensor, index)
        ends = [saved + sign * eps for sign in signs]
        check_radius(saved, saved + eps, saved - eps, eps, difference)
        # What the stored weight really undergoes: fl(w + eps) - w. A probe's signs are adjacent.
        steps = torch.stack([end.double() - saved.double() for end in ends], 1).flatten()
        moves = Moves([i for i in index for _ in signs], steps.to(tensor.dtype))
        started = time.perf_counter()
        changes = torch.cat(
            [self._losses(evaluate, loss, name, tensor, part) for part in self._chunks(name, moves)]
        ).view(-1, len(signs))
        record.seconds += time.perf_counter() - started
        record.probes += moves.K
        if difference == "central":
            return Differences(changes[:, 0] - changes[:, 1], changes[:, 0] + changes[:, 1])
        return Differences(changes[:, 0] * signs[0], None)

    def _chunks(self, name: str, moves: Moves) -> list[Moves]:
        """As many probes at a time as the memory limit allows, from shapes and dtypes alone."""
        record = self.objective._records[name]
        each = record.plan.peak if record.plan is not None else _bytes(self.inputs) * 16
        size = max(2, min(1024, self.objective.memory_limit // max(each, 1)) // 2 * 2)
        return [
            Moves(moves.index[k : k + size], moves.steps[k : k + size])
            for k in range(0, moves.K, size)
        ]

    def _losses(
        self, evaluate: Evaluations, loss: float, name: str, tensor: Tensor, moves: Moves
    ) -> Tensor:
        """f(x + step e_i) - f(x), float64."""
        objective, record = self.objective, self.objective._records[name]
        if record.engine == "incremental":
            assert self._run is not None and record.plan is not None
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
            )
        evaluate.rewind()
        values = batched_losses(
            objective.model,
            name,
            tensor,
            moves,
            self.inputs,
            lambda output: objective.loss(output, self.target),
        )
        return values - loss

    # --- never wrong in silence -------------------------------------------------------------------

    def _check(
        self,
        evaluate: Evaluations,
        loss: float,
        name: str,
        tensor: Tensor,
        index: list[int],
        eps: float,
    ) -> str:
        """Compare a few coordinates with the closure itself; says what is wrong, or nothing."""
        chosen = sorted({index[0], index[len(index) // 2], index[-1]})[:_CHECKED]
        radius = max(eps, 1e-2)  # a tiny radius would leave nothing but rounding to compare
        count = evaluate.count
        started = time.perf_counter()
        expected = sequential(evaluate, loss, tensor, chosen, radius, "central")
        spent = time.perf_counter() - started
        self.objective.checks += evaluate.count - count
        evaluate.count = count
        record = self.objective._records[name]
        record.one_by_one = spent / (2 * len(chosen))
        found = self._probe(evaluate, loss, name, tensor, chosen, radius, "central")
        record.seconds, record.probes = 0.0, 0
        finite = expected.first.isfinite() & found.first.isfinite()
        if not bool((expected.first.isfinite() == found.first.isfinite()).all()):
            return "gives finite losses where the closure does not, or the other way round"
        error = (expected.first - found.first)[finite].abs()
        unit = torch.finfo(tensor.dtype).eps
        allowed = 64 * unit * abs(loss) + 2e3 * unit * expected.first[finite].abs()
        if bool((error > allowed).any()):
            worst = int((error - allowed).argmax())
            return (
                f"disagrees with the closure on element {chosen[worst]}: a difference of "
                f"{found.first[worst]:.9g} where the closure gives {expected.first[worst]:.9g}"
            )
        return ""

    def _check_base(self, evaluate: Evaluations, loss: float) -> None:
        """Now and then, does the traced pass still give what the model gives?"""
        objective = self.objective
        if self._run is None or getattr(self, "_base_checked", False):
            return
        self._base_checked = True
        objective._since_check = (objective._since_check + 1) % _RECHECK
        if objective._since_check != 1:
            return
        count = evaluate.count
        actual = evaluate()
        objective.checks += evaluate.count - count
        evaluate.count = count
        dtype = next(objective.model.parameters()).dtype
        if abs(actual - loss) > 64 * torch.finfo(dtype).eps * max(abs(actual), abs(loss)):
            for name, record in objective._records.items():
                if record.engine == "incremental":
                    objective._demote(
                        name, f"gives {loss:.9g} at the unperturbed point, the model {actual:.9g}"
                    )


def _fingerprint(model: nn.Module) -> tuple[Any, ...]:
    return tuple(
        (
            id(m),
            m.training,
            len(m._forward_hooks) + len(m._forward_pre_hooks),
            *map(id, m._parameters.values()),
        )
        for m in model.modules()
    )


def _bytes(structure: Any) -> int:
    if isinstance(structure, Tensor):
        return structure.numel() * structure.element_size()
    values = structure.values() if isinstance(structure, dict) else structure
    return sum(map(_bytes, values)) if isinstance(structure, (tuple, list, dict)) else 0


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
