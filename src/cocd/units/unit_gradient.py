"""`UnitGradient`: p.grad from forward passes in which single units are nudged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import cast

import torch
from torch import Tensor

from ..errors import NonFiniteLoss, NonFiniteWarning
from ..objective.protocol import LossT
from ..objective.traced import Objective
from ..objective.traced_loss import TracedLoss
from ..parts.evaluation import Evaluations
from ..parts.types import State
from ..parts.validation import (
    NONFINITE,
    check_choice,
    check_count,
    check_difference,
    check_group,
    check_seed,
)
from ..parts.warn import warn
from .batch import Batch
from .layers import Layer
from .losses import SampleLosses, contributions
from .probing import Probing, Pulls, pull
from .slope_memory import Fresh, SlopeMemory
from .verified import Verified

_VERSION = 1  # of the saved state


@dataclass(frozen=True)
class Coordinates:
    """A group of coordinates: the units of a layer, or the weights of a parameter."""

    name: str
    kind: str  # the rule's name, or "weights"
    count: int
    places: int
    why: str = ""
    whole: bool = False  # must all be probed together


@dataclass(frozen=True)
class Found:
    """The results of one call, before anything changes."""

    groups: list[Layer | str]
    without: dict[str, str]
    fresh: list[Fresh]
    skipped: int
    cursor: int


class UnitGradient:
    """The gradient of a traced objective in ``p.grad``, from forward passes alone.

    A weight probe changes one weight and sees one number. A *unit* probe changes the output of one
    unit of a layer in every sample and sees the losses of all samples. With the inputs of the
    layer, which the forward pass computes anyway, this gives the slopes of all weights of the unit.
    It needs more than a scalar loss: the loss of each sample and the inputs of layers.

    Args:
        objective: the result of `cocd.trace`. Its loss must be a mean or a sum over samples.
        directions: None probes unit by unit. A number k probes whole layers along k random
            directions, drawn for each sample: far fewer passes, noisier slopes.
        compute_budget: units (with `directions`: layers) probed in each call, in turn; None for
            all. The slopes of the others are remembered.
        decay: factor on remembered slopes at each call; 0 forgets them.
        eps: how far a unit moves; None for a hundredth of the layer's root mean square (in float64
            a ten-thousandth).
        difference: "forward" takes one pass per probe, "central" two.
        positions: number of positions of a sample (pixels, tokens) at which a unit moves at once.
        seed: decides the positions, signs and directions.
        sample_losses: a function of output and target that returns the loss of each sample, for
            losses that are not known to be a mean or a sum.
        nonfinite: "skip" keeps the old slopes of units whose probe is not finite; "raise" stops.

    >>> import torch, cocd
    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
    ... )
    >>> objective = cocd.trace(model, torch.nn.functional.mse_loss)
    >>> gradient = cocd.UnitGradient(objective)
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    >>> x, y = torch.randn(32, 4), torch.zeros(32, 2)
    >>> losses = []
    >>> for _ in range(60):
    ...     losses.append(float(gradient(objective(x, y))))
    ...     optimizer.step()
    >>> losses[-1] < losses[0] / 10, gradient.units, gradient.evaluations
    (True, 10, 660)
    """

    def __init__(
        self,
        objective: Objective,
        *,
        directions: int | None = None,
        compute_budget: int | None = None,
        decay: float = 1.0,
        eps: float | None = None,
        difference: str = "forward",
        positions: int = 1,
        seed: int = 0,
        sample_losses: SampleLosses | None = None,
        nonfinite: str = "skip",
    ) -> None:
        if not hasattr(objective, "model") or not hasattr(objective, "loss_fn"):
            raise ValueError(
                f"objective must be what cocd.trace(model, loss_fn) gives, got {objective!r}"
            )
        if sample_losses is not None and not callable(sample_losses):
            raise ValueError(
                "sample_losses must be a function of output and target that returns the loss of "
                f"each sample, got {sample_losses!r}"
            )
        self.objective = objective
        self.directions = None if directions is None else check_count("directions", directions)
        self.compute_budget = (
            None if compute_budget is None else check_count("compute_budget", compute_budget)
        )
        check_group({"decay": decay} if eps is None else {"decay": decay, "eps": eps})
        self.decay = float(decay)
        self.eps = None if eps is None else float(eps)
        check_choice("difference", difference, ("forward", "central"))
        self.difference = check_difference(difference)
        self.positions = check_count("positions", positions)
        self.nonfinite = check_choice("nonfinite", nonfinite, NONFINITE)
        self.sample_losses = sample_losses
        self.evaluations = 0  # passes of a batch, those of failed calls included
        self.skipped = 0  # coordinates whose slopes were not stored because a loss was not finite
        self._generator = torch.Generator().manual_seed(check_seed(seed))
        self._cursor = 0  # units, or layers, that have been probed so far
        self._memory = SlopeMemory()
        self._verified = Verified()
        self._coordinates: list[Coordinates] = []
        self._stackable, self._why = True, ""
        self._warned = False

    # --- one call --------------------------------------------------------------------------------

    def __call__(self, closure: Callable[[], LossT] | None) -> LossT:
        """Probe, leave the slopes in ``p.grad`` and return the loss of ``objective(x, y)``."""
        objective = self.objective
        if not isinstance(closure, TracedLoss) or closure.objective is not self.objective:
            raise ValueError(
                f"closure must be objective(inputs, target) of this objective, got {closure!r}"
            )
        parameters = {name: p for name, p in objective.model.named_parameters() if p.requires_grad}
        for name, p in parameters.items():
            if p.is_complex():
                raise ValueError(
                    f"parameter {name} is complex ({p.dtype}), which unit probes do not "
                    "support; make "
                    "it two real parameters, or freeze it with requires_grad_(False)"
                )
        losses = contributions(objective.loss_fn, self.sample_losses)
        batch = Batch(
            objective.model, objective.loss_fn, losses, parameters, closure.inputs,
            closure.target, stackable=self._stackable,
        )  # fmt: skip
        modules = [
            m for m in (objective.model, objective.loss_fn) if isinstance(m, torch.nn.Module)
        ]
        devices = {p.device for p in parameters.values() if not p.is_cpu}
        random, verified = self._generator.get_state(), self._verified.state_dict()
        try:
            with Evaluations(batch.record, modules, devices, self._count) as evaluate:
                loss = evaluate()
                if not isfinite(loss):
                    raise NonFiniteLoss(f"the loss at x_t is {loss}; nothing has changed")
                batch.rewind = evaluate.rewind
                with evaluate.keeping():
                    batch.tell_apart(loss)
                    found = self._probe(batch, evaluate, loss)
                self._report(found.skipped)
        except BaseException:
            self._generator.set_state(random)
            self._verified.load_state_dict(verified)
            raise
        finally:
            batch.forget()
        self._stackable, self._why = batch.stackable, batch.why
        self._cursor = found.cursor
        keys = [g if isinstance(g, str) else g.key for g in found.groups]
        self._memory.remember(found.fresh, keys, self.decay)
        self._memory.write(found.groups, parameters, found.without)
        return cast(LossT, evaluate.first)

    def _probe(self, batch: Batch, evaluate: Evaluations, loss: float) -> Found:
        probing = Probing(self.directions, self.eps, self.difference, self.positions)
        layers, without = self._verified.layers(batch, probing)
        groups: list[Layer | str] = [*layers, *(n for n in batch.parameters if n in without)]
        self._coordinates = [_coordinates(g, batch, without) for g in groups]
        due, cursor = self._due()
        fresh: list[Fresh] = []
        pulls: Pulls = {}
        for layer in layers:
            if layer.normalises_batch:
                pull(layer, self._memory.of(layer.key), pulls)
        # From the last layer to the first: what batch norms pull is known before it is needed.
        for group, units in zip(reversed(groups), reversed(due), strict=True):
            if not len(units):
                continue
            if isinstance(group, str):
                new = probing.weights(batch, evaluate, loss, group, units, self._generator)
            else:
                with evaluate.interrupts.allowed():
                    new, passes = probing.units(batch, group, units, pulls, self._generator)
                evaluate.charge(passes)
                if group.normalises_batch:
                    pull(group, new.into(self._memory.of(group.key)), pulls)
            fresh.append(new)
        skipped = sum(map(len, due)) - sum(len(new.units) for new in fresh)
        return Found(groups, without, fresh, skipped, cursor)

    def _due(self) -> tuple[list[Tensor], int]:
        """The coordinates of each group to probe now, and the cursor afterwards."""
        counts = [1 if self.directions else c.count for c in self._coordinates]
        n = sum(counts)
        B = self.compute_budget or n
        if n < B:
            what = "layers" if self.directions else "units"
            raise ValueError(f"compute_budget must be at most {n}, the number of {what}, got {B}")
        if n == B:
            return [torch.arange(c.count) for c in self._coordinates], self._cursor + B
        block = (torch.arange(B) + self._cursor) % n
        due, first = [], 0
        for c, count in zip(self._coordinates, counts, strict=True):
            own = block[(block >= first) & (block < first + count)] - first
            together = self.directions or c.whole
            due.append(torch.arange(c.count) if together and len(own) else own)
            first += count
        return due, self._cursor + B

    def _count(self, calls: int) -> None:
        self.evaluations += calls

    def _report(self, skipped: int) -> None:
        if not skipped:
            return
        what = "probes gave losses that are not finite"
        if self.nonfinite == "raise":
            raise NonFiniteLoss(f"{skipped} {what}; nothing has changed")
        if not self._warned:
            warn(f"{skipped} {what}: older slopes stay. Warns once", NonFiniteWarning)
            self._warned = True
        self.skipped += skipped

    # --- what there is, and saving ---------------------------------------------------------------

    @property
    def units(self) -> int:
        """The number of coordinates, as of the last call."""
        return sum(c.count for c in self._coordinates)

    @property
    def layers(self) -> int:
        """The number of layers, counting parameters that are probed as weights."""
        return len(self._coordinates)

    @property
    def checks(self) -> int:
        """Passes spent on checks of rules; they do not count as evaluations."""
        return self._verified.checks

    def explain(self) -> str:
        """A table of layers: rule, units, positions, and the reason for a fallback."""
        rows = [("parameters", "probed by", "units", "places", "")]
        rows += [(c.name, c.kind, str(c.count), str(c.places), c.why) for c in self._coordinates]
        if self._why:
            rows.append(("all layers", "one pass per probe", "", "", self._why))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            "  ".join(
                [*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[4]]
            ).rstrip()
            for row in rows
        )

    def state_dict(self) -> State:
        """All that a resumed run needs, copied."""
        return {
            "version": _VERSION,
            "evaluations": self.evaluations,
            "skipped": self.skipped,
            "cursor": self._cursor,
            "random": self._generator.get_state(),
            "memory": self._memory.state_dict(),
            "verified": self._verified.state_dict(),
            "stackable": [self._stackable, self._why],
            "warned": self._warned,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue where a saved run stopped."""
        if state.get("version") != _VERSION:
            raise ValueError(
                f"state_dict has version {state.get('version')!r}, this release reads {_VERSION}"
            )
        self.evaluations = int(state["evaluations"])
        self.skipped, self._cursor = int(state["skipped"]), int(state["cursor"])
        self._generator.set_state(state["random"])
        self._memory.load_state_dict(state["memory"])
        self._verified.load_state_dict(state["verified"])
        self._stackable, self._why = state["stackable"]
        self._warned = bool(state["warned"])


def _coordinates(group: Layer | str, batch: Batch, without: dict[str, str]) -> Coordinates:
    if isinstance(group, str):
        return Coordinates(group, "weights", batch.parameters[group].numel(), 1, without[group])
    return Coordinates(group.name, group.rule.name, group.units, group.cells, "", group.whole)
