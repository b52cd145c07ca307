"""`cocd.trace`: a model and a loss as an objective that answers many probes at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from .._evaluate import Evaluations, scalar
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
from .tracing import Untraceable, given_names, required_names

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
        self._mark: tuple[Any, ...] = ()
        self._follow_model(required_names(model))

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

    def _follow_model(self, given: frozenset[str]) -> None:
        """Trace again if modules, parameters, modes or arguments are not those of the last time."""
        mark = (given, _fingerprint(self.model))
        if mark != self._mark:
            self._trace(given)
            self._mark = mark
            self._kept = [*self.model.modules(), *self.model.parameters()]  # or ids come back

    def _trace(self, given: frozenset[str]) -> None:
        self._since_check = 0
        self._untraceable = ""
        self.graph: Graph | None = None
        if self._engine in (None, "incremental"):
            try:
                self.graph = trace_graph(self.model, given)
            except Untraceable as error:
                if self._engine:
                    raise ValueError(f"engine='incremental' is not possible: {error}") from error
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

    def _demote(self, name: str, why: str, loud: bool = True) -> None:
        record = self._records[name]
        following = ENGINES[ENGINES.index(record.engine) + 1]
        self._records[name] = Record(following, reason=f"{record.engine} engine {why}")
        if loud:
            warn(
                f"{name}: the {record.engine} engine {why}; it is probed by the {following} engine "
                "from now on",
                EngineWarning,
            )

    def _give_up(self, why: str) -> None:
        """The traced pass is not the model's: no parameter can be followed through it."""
        self.graph, self._untraceable = None, why
        self._records = {name: self._first_choice(name) for name in self._records}
        warn(f"{why}; parameters are probed by the batched engine from now on", EngineWarning)

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

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """Whose buffers an evaluation may change."""
        loss_fn = self.objective.loss_fn
        extra = (loss_fn,) if isinstance(loss_fn, nn.Module) else ()
        return (self.objective.model, *extra)

    def __call__(self) -> Any:
        """The loss at the current parameters."""
        output = call_model(self.objective.model, self.inputs)
        return self.objective.loss(output, self.target)

    def prepare(self, rewind: Callable[[], None]) -> Any:
        """The loss at the unperturbed point, with the activations kept for the probes.

        Now and then the model itself is asked too: does the traced pass still give what it gives?
        """
        objective = self.objective
        given = given_names(objective.model, self.inputs)
        objective._follow_model(given)
        if objective.graph is None:
            return self()
        loss, problem = self._follow()
        objective._since_check = (objective._since_check + 1) % _RECHECK
        if objective._since_check != 1 and not problem:
            return loss
        rewind()
        actual = self()
        objective.checks += 1
        problem = problem or _disagreement(loss, actual)
        if not problem:
            return loss
        objective._trace(given)  # something that only the values show may have changed
        rewind()
        loss, still = self._follow()
        if still or _disagreement(loss, actual):
            self._run = None
            objective._give_up(problem)
            rewind()
            return self()
        warn(f"{problem}; it has changed and was traced again", EngineWarning)
        return loss

    def _follow(self) -> tuple[Any, str]:
        """The loss of the traced pass, or what is wrong with it."""
        objective = self.objective
        try:
            if objective.graph is None:
                return None, objective._untraceable
            self._run = Run(objective.model, objective.graph, self.inputs)
            return objective.loss(self._run.output, self.target), ""
        except Exception as error:  # or the model itself fails, which the caller will see
            return None, f"the traced pass fails ({_first_line(error)})"

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
        name = objective._names.get(id(tensor))
        truth = None
        while name is not None and objective._records[name].engine != "sequential":
            record = objective._records[name]
            if not record.checked and truth is None:
                truth = self._truth(evaluate, loss, tensor, index, eps)
            try:
                if truth is not None and not record.checked:
                    problem = self._check(evaluate, loss, name, tensor, truth)
                    if problem:
                        objective._demote(name, problem)
                        continue
                    record.checked = True
                found = self._probe(evaluate, loss, name, tensor, index, eps, difference)
            except Warning:  # the user's filters made an error of it
                raise
            except Exception as error:  # whatever a rule or vmap does not expect
                # That a model is not for vmap is no news, unless it was asked for.
                loud = record.engine == "incremental" or objective._engine is not None
                objective._demote(name, f"cannot follow it ({_first_line(error)})", loud)
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

    def _truth(
        self, evaluate: Evaluations, loss: float, tensor: Tensor, index: list[int], eps: float
    ) -> Truth:
        """A few coordinates, evaluated by the closure itself."""
        chosen = sorted({index[0], index[len(index) // 2], index[-1]})[:_CHECKED]
        radius = max(eps, 0.1)  # a small radius would leave little but rounding to compare
        count = evaluate.count
        started = time.perf_counter()
        expected = sequential(evaluate, loss, tensor, chosen, radius, "central")
        spent = time.perf_counter() - started
        self.objective.checks += evaluate.count - count
        evaluate.count = count
        return Truth(chosen, radius, expected.first, spent / (2 * len(chosen)))

    def _check(
        self, evaluate: Evaluations, loss: float, name: str, tensor: Tensor, truth: Truth
    ) -> str:
        """Does the engine give what the closure gives? Says what is wrong, or nothing."""
        index, radius, expected, seconds = truth
        found = self._probe(evaluate, loss, name, tensor, index, radius, "central").first
        record = self.objective._records[name]
        record.seconds, record.probes, record.one_by_one = 0.0, 0, seconds
        if not torch.equal(expected.isfinite(), found.isfinite()):
            return "gives finite losses where the closure does not, or the other way round"
        # Rounding is amplified by layers that divide by a small deviation; float64 can spare some.
        unit = max(torch.finfo(tensor.dtype).eps, 1e-11)
        allowed = unit * (64 * abs(loss) + 8 * self._magnitude() + 2e3 * expected.abs())
        excess = torch.where(expected.isfinite(), (expected - found).abs() - allowed, 0)
        if bool((excess > 0).any()):
            worst = int(excess.argmax())
            return (
                f"disagrees with the closure on element {index[worst]}: a difference of "
                f"{found[worst]:.9g} where the closure gives {expected[worst]:.9g}"
            )
        return ""

    def _magnitude(self) -> float:
        """How large outputs are: losses near zero are differences of these, and rounded as such."""
        if self._run is None:
            return 0.0
        outputs = [t for t in tree_leaves(self._run.output) if isinstance(t, Tensor) and t.numel()]
        largest = max((float(t.abs().max()) for t in outputs), default=0.0)
        summed = getattr(self.objective._loss, "reduction", "mean") == "sum"
        return largest * len(outputs[0]) if summed else largest


class Truth(NamedTuple):
    """Central differences by the closure itself, and the seconds that one evaluation took."""

    elements: list[int]
    radius: float
    expected: Tensor
    seconds: float


def _disagreement(traced: Any, actual: Any) -> str:
    """What is wrong with the traced pass at the unperturbed point, or nothing."""
    here, there = scalar(traced), scalar(actual)
    dtype = actual.dtype if isinstance(actual, Tensor) else torch.float64
    if abs(here - there) <= 64 * torch.finfo(dtype).eps * max(abs(here), abs(there)):
        return ""
    if here == there or (here != here and there != there):  # infinite, or both NaN
        return ""
    return f"the traced pass gives {here:.9g} at the unperturbed point, the model {there:.9g}"


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
