"""`cocd.trace`: a model and a loss as an objective that answers many probes at once."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..errors import EngineWarning
from ..parts.evaluation import walk
from ..parts.validation import check_choice
from ..parts.warn import warn
from . import losses
from .graph.graph import Graph, trace_graph
from .graph.propagation import Plan
from .graph.tracing import Untraceable, required_names
from .kernels import dispatch
from .kernels.scratch import Scratch
from .pace import Pace
from .traced_loss import TracedLoss

ENGINES = ("incremental", "batched", "sequential")
_VERSION = 1  # of the saved state
_FAST = 8 << 20  # bytes of one stacked activation: about what stays in a last-level cache
_MOST = 32 * _FAST  # bytes of all that a stack of probes holds, where no limit is given


@dataclass
class Record:
    """What is known about one parameter: who probes it, how that went."""

    engine: str
    checked: bool = False
    plan: Plan | None = None
    pace: Pace = field(default_factory=Pace)
    # Bytes that one of several probes holds, all tensors together, by where it does not enter.
    held: dict[tuple[int, ...], int] = field(default_factory=dict)
    reason: str = ""

    def state_dict(self) -> dict[str, Any]:
        """All but measured times; the bytes decide how many probes are taken at a time."""
        peak = None if self.plan is None else self.plan.peak
        return {
            "engine": self.engine,
            "checked": self.checked,
            "decided": self.pace.decided,
            "reason": self.reason,
            "peak": peak,
            "held": [[list(places), size] for places, size in self.held.items()],
        }

    def restored(self, saved: dict[str, Any]) -> Record:
        """This record, chosen for the same parameter, as it was saved."""
        same = self.engine == saved["engine"]
        record = self if same else Record(str(saved["engine"]), reason=str(saved["reason"]))
        record.checked = bool(saved["checked"])
        record.held = {tuple(places): int(size) for places, size in saved["held"]}
        record.pace.decided = bool(saved["decided"])
        if record.plan is not None and saved["peak"] is not None:
            record.plan.peak = int(saved["peak"])
        return record


def trace(
    model: nn.Module,
    loss_fn: Any,
    *,
    engine: str | None = None,
    memory_limit: int | None = None,
    accelerate: bool = True,
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
        memory_limit: bytes that the probes evaluated at once may hold together, beside what the
            closure itself takes; None for what is fast, at most 256 MiB.
        accelerate: use fused loops where numba is installed; False for plain tensor operations.

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
    return Objective(model, loss_fn, engine, memory_limit, accelerate)


class Objective:
    """A traced model and loss; ``objective(inputs, target)`` binds a batch."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Any,
        engine: str | None,
        memory_limit: int | None,
        accelerate: bool = True,
    ) -> None:
        self.model = model
        self.loss_fn = loss_fn
        self.memory_limit = memory_limit or _FAST  # bytes of one stacked activation
        self._memory = memory_limit or _MOST  # bytes of all that a stack holds
        self.accelerate = bool(accelerate)
        self.checks = 0  # evaluations made to check the engines, which no optimizer counts
        self._engine = engine
        self._scratch = Scratch()
        self._mark: tuple[Any, ...] = ()
        self._loaded: dict[str, Any] | None = None  # until the first step after it
        self._follow_model(required_names(model))

    def __call__(self, inputs: Any, target: Any = None) -> TracedLoss:
        """The loss on this batch, as a closure."""
        return TracedLoss(self, inputs, target)

    def engine_of(self, name: str) -> str:
        """Which engine probes the parameter of that name."""
        return self._records[name].engine

    def accelerating(self) -> AbstractContextManager[None]:
        """Fused loops where there are any, unless they are not wanted here."""
        return nullcontext() if self.accelerate else dispatch.disabled()

    def count_checks(self, evaluations: int) -> None:
        """So many evaluations were made to check the engines."""
        self.checks += evaluations

    def loss(self, output: Any, target: Any) -> Any:
        """The loss of an output."""
        return self.loss_fn(output, target)

    # --- saving ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on bit for bit, beside the model's and the optimizer's.

        Engines agree to rounding alone, so a resumed run must not choose them again, nor check
        them at other moments, where the answer might be another one. Each is chosen by its speed
        once, when its first 32 probes have taken 20 ms; a run whose state is saved before that
        may go on by another one. ``engine=...`` leaves nothing to choose.
        """
        return {
            "version": _VERSION,
            "given": sorted(self._mark[0]),
            "checks": self.checks,
            "since_check": self._since_check,
            "stackable": self._stackable,
            "stacks": self._stacks,
            "suffixes": self._suffixes,
            "traced": self.graph is not None,
            "untraceable": self._untraceable,
            "records": {name: record.state_dict() for name, record in self._records.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as the objective did whose state this is; its model has the same parameters."""
        if not isinstance(state, dict) or state.get("version") != _VERSION:
            raise ValueError(f"state must be what Objective.state_dict gave, got {state!r:.80}")
        names = {name for name, _ in self.model.named_parameters()}
        if odd := sorted(names.symmetric_difference(state["records"])):
            raise ValueError(
                f"state belongs to a model with other parameters ({odd[0]} is in one of them "
                "alone); build the objective from the same model"
            )
        self._follow_model(frozenset(state["given"]))
        self._put(state)
        # The first step may find the model in another mode, and trace it again.
        self._loaded = state

    def _put(self, state: dict[str, Any]) -> None:
        self.checks, self._since_check = int(state["checks"]), int(state["since_check"])
        self._stackable, self._stacks = bool(state["stackable"]), int(state["stacks"])
        self._suffixes = bool(state["suffixes"])
        if not state["traced"]:
            self.graph, self._untraceable = None, str(state["untraceable"])
        for name, saved in state["records"].items():
            self._records[name] = self._records[name].restored(saved)

    # --- following a model that may change ------------------------------------------------------

    def _follow_model(self, given: frozenset[str]) -> None:
        """Trace again if modules, parameters, modes or arguments are not those of the last time."""
        mark = (given, _fingerprint(self.model))
        if mark != self._mark:
            self._trace(given)
            self._mark = mark
            self._kept = [*self.model.modules(), *self.model.parameters()]  # or ids come back
            if self._loaded is not None:
                self._put(self._loaded)
        self._loaded = None

    def _trace(self, given: frozenset[str]) -> None:
        self._since_check = 0
        self._stackable = True  # until points that differ in all parameters were seen to fail
        self._stacks = 0  # of such points that were right
        self._suffix_pays: dict[tuple[str, ...], bool] = {}
        self._suffix_pace = Pace()
        self._suffixes = True  # until passes from the first moved layer on were seen to be wrong
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
        if not uses:
            return Record("batched", reason="not used by a layer that was traced")
        return Record("incremental", plan=Plan(self.model, self.graph, name))

    def _demote(self, name: str, why: str, loud: bool = True, following: str | None = None) -> None:
        record = self._records[name]
        following = following or ENGINES[ENGINES.index(record.engine) + 1]
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


def _fingerprint(model: nn.Module) -> tuple[Any, ...]:
    return tuple(
        (
            id(m),
            m.training,
            len(m._forward_hooks) + len(m._forward_pre_hooks),
            *map(id, m._parameters.values()),
        )
        for m in walk(model)
    )
