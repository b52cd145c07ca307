"""`cocd.trace`: a model and a loss as an objective that answers many probes at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Generic

from torch import Tensor, nn

from ..errors import ClosureWarning, EngineWarning
from ..parts.buffers import walk
from ..parts.rewritten import note_writers
from ..parts.types import State
from ..parts.validation import check_choice
from ..parts.warn import warn
from . import losses
from .engine_timing import EngineTiming
from .graph.graph import Graph
from .graph.layers import unwrapped
from .graph.propagation import Plan
from .graph.record import WRITES_A_PARAMETER
from .graph.tracer import Tracer
from .kernels import dispatch
from .kernels.scratch import Scratch
from .protocol import ValueT
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
    timing: EngineTiming = field(default_factory=EngineTiming)
    # Bytes that one of several probes holds, all tensors together, by where it does not enter.
    held: dict[tuple[int, ...], int] = field(default_factory=dict)
    reason: str = ""

    def state_dict(self) -> State:
        """All but measured times; the bytes decide how many probes are taken at a time."""
        peak = None if self.plan is None else self.plan.peak
        return {
            "engine": self.engine,
            "checked": self.checked,
            "decided": self.timing.decided,
            "reason": self.reason,
            "peak": peak,
            "held": [[list(places), size] for places, size in self.held.items()],
        }

    def restored(self, saved: State) -> Record:
        """This record, chosen for the same parameter, as it was saved."""
        same = self.engine == saved["engine"]
        record = self if same else Record(str(saved["engine"]), reason=str(saved["reason"]))
        record.checked = bool(saved["checked"])
        record.held = {tuple(places): int(size) for places, size in saved["held"]}
        record.timing.decided = bool(saved["decided"])
        if record.plan is not None and saved["peak"] is not None:
            record.plan.peak = int(saved["peak"])
        return record


def trace(
    model: nn.Module,
    loss_fn: Callable[..., ValueT],
    *,
    engine: str | None = None,
    memory_limit: int | None = None,
    accelerate: bool = True,
) -> Objective[ValueT]:
    """Turn a model and a loss into an objective that evaluates only what a probe changes.

    ``objective(inputs, target)`` is a closure for any optimizer, here or elsewhere. Calling it
    returns ``loss_fn(model(inputs), target)``; coordinate methods ask it for many probes at once.

    Args:
        model: any module. It is followed call by call while it runs. A model that cannot be
            followed is evaluated in batches of whole passes, or one by one, and a warning says
            why. For `torch.compile`, `DataParallel` and `DistributedDataParallel` the module
            inside is used.
        loss_fn: a function of the model's output and the target.
        engine: "incremental", "batched" or "sequential" for all parameters; None chooses the
            fastest applicable one for each.
        memory_limit: bytes that the probes evaluated at once may hold together, in addition to the
            closure's own memory; at least two probes, the ends of a central difference, are. None
            chooses for speed, at most 256 MiB.
        accelerate: use fused loops if numba is installed; False for plain tensor operations.

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
    if isinstance(loss_fn, type) and issubclass(loss_fn, nn.Module):
        raise ValueError(
            f"loss_fn must be a function of output and target, got the class {loss_fn.__name__}; "
            f"write {loss_fn.__name__}()"
        )
    if engine is not None:
        check_choice("engine", engine, ENGINES)
    whole = isinstance(memory_limit, int) and not isinstance(memory_limit, bool)
    if memory_limit is not None and (not whole or memory_limit < 1):
        raise ValueError(
            f"memory_limit must be a whole number of bytes above 0, got {memory_limit!r}"
        )
    if not isinstance(accelerate, bool):
        raise ValueError(f"accelerate must be True or False, got {accelerate!r}")
    return Objective(model, loss_fn, engine, memory_limit, accelerate)


class Objective(Generic[ValueT]):
    """A traced model and loss; ``objective(inputs, target)`` binds a batch."""

    _mode: tuple[bool, ...] | None  # of the modules, when the model could not be followed
    _suffix_pays: dict[tuple[str, ...], bool]

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., ValueT],
        engine: str | None,
        memory_limit: int | None,
        accelerate: bool = True,
    ) -> None:
        self.model = unwrapped(model)
        self.loss_fn = loss_fn
        self.memory_limit = memory_limit or _FAST  # bytes of one stacked activation
        self._memory = memory_limit or _MOST  # bytes of all that a stack holds
        self.accelerate = bool(accelerate)
        self.checks = 0  # evaluations made to check the engines, which no optimizer counts
        self._engine = engine
        self._scratch = Scratch()
        self._mark: tuple[object, ...] = ()
        self._told: set[str] = set()  # reasons that a warning has named
        self._loaded: State | None = None  # until the first pass after it
        self._follow_model()

    def __call__(self, inputs: object, target: object = None) -> TracedLoss[ValueT]:
        """The loss on this batch, as a closure.

        A tuple of inputs is passed as arguments, a mapping by name.
        """
        if isinstance(inputs, Mapping):
            inputs = dict(inputs)
        return TracedLoss(self, inputs, target)

    def engine_of(self, name: str) -> str:
        """The engine that probes the parameter of this name."""
        return self._records[name].engine

    def accelerating(self) -> AbstractContextManager[None]:
        """Fused loops where there are any, unless they are not wanted here."""
        return nullcontext() if self.accelerate else dispatch.disabled()

    def count_checks(self, evaluations: int) -> None:
        """So many evaluations were made to check the engines."""
        self.checks += evaluations

    def tell_stranger(self, tensor: Tensor) -> None:
        """A tensor that is no parameter of the model is probed, and changes nothing: warn once."""
        why = f"no parameter of the traced model is the one of shape {tuple(tensor.shape)}"
        if why not in self._told:
            self._told.add(why)
            warn(
                f"{why} that the optimizer probes, and probes of it do not change the loss. Build "
                "the optimizer from the parameters of this model, after replacing or copying any",
                ClosureWarning,
            )

    def loss(self, output: object, target: object) -> ValueT:
        """The loss of an output."""
        return self.loss_fn(output, target)

    # --- saving ---------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """What a run needs to resume bit for bit, besides the model's and optimizer's states.

        Engines agree only to rounding, so a resumed run must neither choose them again nor check
        them at other steps. Each is chosen by its speed once, when its first 32 probes have taken
        20 ms. A run whose state is saved earlier may choose differently; ``engine=...`` fixes the
        choice.
        """
        now = self._loaded or {
            "traced": self.graph is not None,
            "untraceable": self._untraceable,
            "records": {name: record.state_dict() for name, record in self._records.items()},
        }
        return {
            "version": _VERSION,
            "checks": self.checks,
            "since_check": self._since_check,
            "stackable": self._stackable,
            "stacks": self._stacks,
            "suffixes": self._suffixes,
            "suffix_pays": [[list(names), pays] for names, pays in self._suffix_pays.items()],
            **{key: now[key] for key in ("traced", "untraceable", "records")},
        }

    def load_state_dict(self, state: State) -> None:
        """Resume from a state of an objective whose model has the same parameters."""
        if not isinstance(state, dict) or state.get("version") != _VERSION:
            raise ValueError(f"state must be what Objective.state_dict gave, got {state!r:.80}")
        names = {name for name, _ in self.model.named_parameters()}
        if odd := sorted(names.symmetric_difference(state["records"])):
            raise ValueError(
                f"state belongs to a model with other parameters ({odd[0]} is in one of them "
                "alone); build the objective from the same model"
            )
        self._mark = ()
        self._follow_model()
        self.checks, self._since_check = int(state["checks"]), int(state["since_check"])
        self._stackable, self._stacks = bool(state["stackable"]), int(state["stacks"])
        self._suffixes = bool(state["suffixes"])
        pays = {tuple(names): bool(worth) for names, worth in state["suffix_pays"]}
        self._suffix_pays.update(pays)
        if state["untraceable"]:
            self._untraceable, self._mode = str(state["untraceable"]), None
            self._told.add(self._untraceable)
        self._loaded = state
        self._put_loaded()

    def _put_loaded(self) -> None:
        """Records as they were saved; where parameters are used the first pass will show."""
        if self._loaded is None:
            return
        for name, saved in self._loaded["records"].items():
            self._records[name] = self._records[name].restored(saved)
        if self.graph is not None or self._untraceable or self._engine in ("batched", "sequential"):
            self._loaded = None

    # --- following a model that may change ------------------------------------------------------

    def _follow_model(self) -> None:
        """Begin anew if modules or parameters are not those of the last time."""
        mark = _fingerprint(self.model)
        if mark == self._mark:
            return
        self._mark = mark
        self._kept = [*self.model.modules(), *self.model.parameters()]  # or ids come back
        self._since_check = 0
        self._stackable = True  # until points that differ in all parameters were seen to fail
        self._stacks = 0  # of such points that were right
        self._suffix_pays = {}
        self._suffix_timing = EngineTiming()
        self._suffixes = True  # until passes from the first moved layer on were seen to be wrong
        self._untraceable = ""
        self._mode = None
        self.graph: Graph | None = None
        self._tracer = Tracer(self.model)
        self._loss = losses.known(self.loss_fn)
        self._names = {id(p): name for name, p in self.model.named_parameters()}
        self._records_by_graph: dict[int, dict[str, Record]] = {}
        self._records = {name: self._first_choice(name) for name in self._names.values()}

    def _reconsider(self) -> None:
        """In another mode a model that was given up may be followed."""
        if self._untraceable:
            modes = _modes(self.model)
            self._mode = self._mode or modes
            if self._mode != modes:
                self._untraceable = ""

    def _can_follow(self) -> bool:
        """Is a pass worth recording?"""
        return self._engine in (None, "incremental") and not self._untraceable

    def _take(self, graph: Graph) -> None:
        """These are the calls of the model now."""
        if graph is self.graph:
            return
        before, self.graph = self.graph, graph
        if before is not None:
            self._suffix_pays.clear()
        kept = {id(version.graph) for version in self._tracer.versions}
        self._records_by_graph = {k: r for k, r in self._records_by_graph.items() if k in kept}
        records = self._records_by_graph.get(id(graph))
        if records is None:
            old = self._records if before is not None and graph.resembles(before) else {}
            records = {name: self._chosen(name, old.get(name)) for name in self._names.values()}
        self._records_by_graph[id(graph)] = self._records = records
        self._put_loaded()

    def _first_choice(self, name: str) -> Record:
        if self._engine in ("batched", "sequential"):
            return Record(self._engine, reason="asked for")
        if self._untraceable:
            return Record("batched", reason=self._untraceable)
        if self.graph is None:
            return Record("incremental", reason="not probed yet")
        uses = self.graph.sources.get(name, [])
        if not uses:
            return Record("incremental", reason="not used in the forward pass")
        return Record("incremental", plan=Plan(self.model, self.graph, name))

    def _chosen(self, name: str, before: Record | None) -> Record:
        """The first choice, or what has become of it in a pass of the same calls."""
        record = self._first_choice(name)
        if before is None:
            return record
        if before.engine != record.engine:
            return before
        if record.plan is not None and before.plan is not None:
            record.plan.resume(before.plan)
        return replace(before, plan=record.plan)

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
        """No parameter can be followed through the model, as it is now."""
        if self._engine:
            raise ValueError(f"engine='incremental' is not possible: {why}")
        if why == WRITES_A_PARAMETER:
            note_writers(walk(self.model))
        self.graph, self._untraceable, self._mode = None, why, _modes(self.model)
        self._records = {name: self._first_choice(name) for name in self._names.values()}
        self._put_loaded()
        if why not in self._told:
            self._told.add(why)
            warn(
                f"the model cannot be followed call by call: {why}. Every probe is a whole "
                "pass from now on; to choose that without a warning, call cocd.trace with "
                "engine='batched'",
                EngineWarning,
            )

    def explain(self) -> str:
        """For each parameter: engine, rule, what is recomputed, estimated and measured gain."""
        from .explain import table

        return table(self)


def _fingerprint(model: nn.Module) -> tuple[object, ...]:
    return tuple((id(m), *map(id, m._parameters.values())) for m in walk(model))


def _modes(model: nn.Module) -> tuple[bool, ...]:
    return tuple(m.training for m in walk(model))
