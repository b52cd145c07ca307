"""`UnitGradient`: p.grad from forward passes in which single units are nudged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ..errors import EngineWarning, NonFiniteLoss, NonFiniteWarning
from ..objective.closure import sequential
from ..parts.evaluation import Evaluations
from ..parts.validation import NONFINITE, check_choice, check_count, check_difference, check_group
from ..parts.warn import warn
from .batch import Batch
from .checks import Coupled, problem_with
from .layers import Layer, layers_of
from .losses import contributions
from .memory import Fresh, Memory

_VERSION = 1  # of the saved state
_RADIUS = {torch.float64: 1e-4}  # of the output's root mean square; wider where rounding is
_WIDE = 1e-2


@dataclass
class Coordinates:
    """Some coordinates of the whole: the units of a layer, or the weights of a parameter."""

    name: str
    kind: str  # the rule's name, or "weights"
    count: int
    places: int
    why: str = ""
    whole: bool = False  # must all be probed together


class UnitGradient:
    """The gradient of a traced objective in ``p.grad``, from forward passes alone.

    A weight probe changes one weight and sees one number. A *unit* probe adds to the output of one
    unit of a layer in every sample and sees the losses of all samples; with the inputs of the
    layer, which the forward pass has anyway, this gives the slopes of all weights of the unit.
    This needs more than a scalar loss: the losses of single samples and the layers' inputs.

    Args:
        objective: what `cocd.trace` gives. Its loss must be a mean or a sum over samples.
        directions: None probes unit by unit. A number k probes whole layers along k random
            directions, drawn for each sample: far fewer passes, noisier slopes.
        compute_budget: units (with `directions`: layers) that are probed in each call, in turn;
            None for all. The slopes of the others are remembered.
        decay: what remembered slopes are multiplied with at each call; 0 forgets them.
        eps: how far a unit is moved; None for a hundredth of the layer's root mean square (in
            float64 a ten-thousandth).
        difference: "forward" takes one pass a probe, "central" two.
        positions: at how many positions of a sample (pixels, tokens) a unit is moved at once.
        seed: of the positions, signs and directions.
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
        objective: Any,
        *,
        directions: int | None = None,
        compute_budget: int | None = None,
        decay: float = 1.0,
        eps: float | None = None,
        difference: str = "forward",
        positions: int = 1,
        seed: int = 0,
        sample_losses: Any = None,
        nonfinite: str = "skip",
    ) -> None:
        if not hasattr(objective, "model") or not hasattr(objective, "loss_fn"):
            raise ValueError(
                f"objective must be what cocd.trace(model, loss_fn) gives, got {objective!r}"
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
        self.checks = 0  # passes made to check rules, which do not count as evaluations
        self.skipped = 0  # coordinates whose slopes were not stored because a loss was not finite
        self._generator = torch.Generator().manual_seed(seed)
        self._cursor = 0  # units, or layers, that have been probed so far
        self._memory = Memory()
        self._checked: dict[str, str] = {}  # layer -> what is wrong with it, or nothing
        self._layouts: dict[str, int] = {}  # layer -> which of the candidates is right
        self._unchained: set[str] = set()  # layers that patches cannot follow
        self._coordinates: list[Coordinates] = []
        self._stackable, self._why = True, ""
        self._warned = False

    # --- one call --------------------------------------------------------------------------------

    def __call__(self, closure: Any) -> Any:
        """Probe, leave the slopes in ``p.grad`` and return the loss of ``objective(x, y)``."""
        if getattr(closure, "objective", None) is not self.objective:
            raise ValueError(
                f"closure must be objective(inputs, target) of this objective, got {closure!r}"
            )
        objective: Any = self.objective
        parameters = {name: p for name, p in objective.model.named_parameters() if p.requires_grad}
        batch = Batch(
            objective.model, objective.loss_fn,
            contributions(objective.loss_fn, self.sample_losses), parameters,
            closure.inputs, closure.target, stackable=self._stackable, unchained=self._unchained,
        )  # fmt: skip
        modules = [
            m for m in (objective.model, objective.loss_fn) if isinstance(m, torch.nn.Module)
        ]
        devices = {p.device for p in parameters.values() if not p.is_cpu}
        random = self._generator.get_state()
        checked, layouts = dict(self._checked), dict(self._layouts)
        try:
            with Evaluations(batch.record, modules, devices, self._count) as evaluate:
                loss = evaluate()
                if not isfinite(loss):
                    raise NonFiniteLoss(f"the loss at x_t is {loss}; nothing has been changed")
                batch.rewind = evaluate.rewind
                batch.tell_apart(loss)
                groups, without, fresh, skipped, last = self._probe(batch, evaluate, loss)
                self._report(skipped)
        except BaseException:
            self._generator.set_state(random)
            self._checked, self._layouts = checked, layouts
            raise
        finally:
            batch.forget()
        self._stackable, self._why = batch.stackable, batch.why
        self._cursor = last
        keys = [g if isinstance(g, str) else g.key for g in groups]
        self._memory.remember(fresh, keys, self.decay)
        self._memory.write(groups, parameters, without)
        return evaluate.first

    def _count(self, calls: int) -> None:
        self.evaluations += calls

    def _probe(
        self, batch: Batch, evaluate: Evaluations, loss: float
    ) -> tuple[list[Layer | str], dict[str, str], list[Fresh], int, int]:
        layers, without = layers_of(batch.recording, batch.flow, batch.samples, self._layouts)
        layers = self._sound(batch, layers, without)
        groups: list[Layer | str] = [*layers, *(n for n in batch.parameters if n in without)]
        self._coordinates = [_coordinates(g, batch, without) for g in groups]
        due, last = self._due()
        fresh: list[Fresh] = []
        skipped = 0
        pulls = self._pulls(layers)
        evaluate.interrupts.window = True
        # From the last layer to the first: what batch norms pull is known before it is needed.
        for i in reversed(range(len(groups))):
            group, units = groups[i], due[i]
            if not len(units):
                continue
            if isinstance(group, str):
                found, bad = self._weights(batch, evaluate, loss, group, units)
            else:
                found, bad = self._units(batch, evaluate, group, units, pulls)
                self._pull(group, found, pulls)
            fresh.append(found)
            skipped += bad
        evaluate.interrupts.window = False
        return groups, without, fresh, skipped, last

    def _due(self) -> tuple[list[Tensor], int]:
        """Which coordinates of each group are probed now, and where the cursor is afterwards."""
        counts = [c.count for c in self._coordinates]
        n = len(counts) if self.directions else sum(counts)
        B = min(self.compute_budget or n, n)
        block = (torch.arange(B) + self._cursor) % max(n, 1)
        due = []
        first = 0
        for i, c in enumerate(self._coordinates):
            if self.directions:
                due.append(torch.arange(c.count if bool((block == i).any()) else 0))
                continue
            own = block[(block >= first) & (block < first + c.count)] - first
            due.append(torch.arange(c.count) if c.whole and len(own) else own)
            first += c.count
        return due, self._cursor + B

    def _radius(self, layer: Layer) -> float:
        if self.eps is not None:
            return self.eps
        return _RADIUS.get(layer.calls[0].output.dtype, _WIDE) * (layer.scale or 1.0)

    def _units(
        self, batch: Batch, evaluate: Evaluations, layer: Layer, units: Tensor,
        pulls: dict[int, Tensor],
    ) -> tuple[Fresh, int]:  # fmt: skip
        """New slopes of these units, one by one or all at once along random directions."""
        cells, r, Q = layer.cells, self._radius(layer), min(self.positions, layer.cells)
        index, signs = self._nudges(batch, layer, units, Q, self._generator)
        K = len(index)
        central = self.difference == "central"
        changes = batch.changes(layer, index, signs * r, pulls, central)
        evaluate.charge(K * (2 if central else 1))
        good = changes.isfinite().all(1)
        changes = torch.where(good.unsqueeze(1), changes, 0)
        weight = cells / (Q * r * (K if self.directions else 1))
        d = changes.unsqueeze(1) * signs * weight
        slopes = batch.slopes(layer, index, d)
        kept = units[good] if not self.directions else units[: len(units) * bool(good.all())]
        return Fresh(layer.key, kept, layer.rows, slopes), len(units) - len(kept)

    def _nudges(
        self, batch: Batch, layer: Layer, units: Tensor, Q: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Flat positions and signs (K, E, N) of each pass's nudges, at Q places of each sample."""
        K = self.directions or len(units)
        at = _places(K, Q, batch.samples, layer.cells, generator)
        if self.directions:
            at = at.repeat_interleave(len(units), 1)
            probed = units.repeat(Q).expand(K, -1)
        else:
            probed = units.unsqueeze(1).expand(-1, Q)
        index = layer.index(probed, at)
        signs = torch.randint(0, 2, index.shape, generator=generator)
        return index, (signs * 2 - 1).to(batch.base.dtype)

    def _weights(
        self, batch: Batch, evaluate: Evaluations, loss: float, name: str, index: Tensor
    ) -> tuple[Fresh, int]:
        """New slopes of weights that no unit rule covers: probed as coordinates."""
        tensor = batch.parameters[name]
        radius = self.eps or _RADIUS.get(tensor.dtype, _WIDE)
        flat = torch.zeros(tensor.numel(), dtype=torch.float64)
        if self.directions:
            for _ in range(self.directions):
                signs = torch.randint(0, 2, (tensor.numel(),), generator=self._generator) * 2.0 - 1
                flat += signs * self._along(evaluate, loss, tensor, signs, radius)
            flat /= self.directions
        else:
            found = sequential(evaluate, loss, tensor, index.tolist(), radius, self.difference)
            width = 2 * radius if self.difference == "central" else radius
            flat[index] = found.first / width
        good = flat[index].isfinite()
        if self.directions and not bool(good.all()):
            good = torch.zeros_like(good)
        slopes = {"weight": flat.to(tensor.dtype)}
        return Fresh(name, index[good], {"weight": 0}, slopes), int((~good).sum())

    def _along(
        self, evaluate: Evaluations, loss: float, tensor: Tensor, signs: Tensor, radius: float
    ) -> float:
        """The slope of the loss along a direction of one parameter."""
        saved, step = tensor.detach().clone(), (signs * radius).view(tensor.shape).to(tensor.dtype)

        def points() -> Iterator[None]:
            try:
                tensor.copy_(saved + step)
                yield
                if self.difference == "central":
                    tensor.copy_(saved - step)
                    yield
            finally:
                tensor.copy_(saved)

        values = evaluate.losses(points)  # type: ignore[arg-type]
        down = values[1] if len(values) > 1 else loss
        return (values[0] - down) / (radius * len(values))

    # --- batch norm ------------------------------------------------------------------------------

    def _pulls(self, layers: list[Layer]) -> dict[int, Tensor]:
        """What batch norms that are not probed now add to the loss of a nudge: from memory."""
        pulls: dict[int, Tensor] = {}
        for layer in layers:
            self._pull_of(layer, self._memory.of(layer.key), pulls)
        return pulls

    def _pull(self, layer: Layer, found: Fresh, pulls: dict[int, Tensor]) -> None:
        self._pull_of(layer, found.into(self._memory.of(layer.key)), pulls)

    @staticmethod
    def _pull_of(layer: Layer, slopes: dict[str, Tensor], pulls: dict[int, Tensor]) -> None:
        """What the statistics of a batch norm do to the loss, linear in its input.

        With dy at the normalised output, the input's slope is (gamma / sigma) (dy - mean(dy) -
        x^ mean(dy x^)). Statistics are held in a replay, which gives the first term; the means
        are the slopes of shift and scale.
        """
        for position, site in zip(layer.sites, layer.calls, strict=True):
            if site.statistics is None or "bias" not in slopes or "weight" not in slopes:
                continue
            x, (mean, inverse) = site.input, site.statistics
            shape = [1, -1] + [1] * (x.dim() - 2)
            gamma = site.arguments.get("weight")
            scale = inverse if gamma is None else inverse * gamma.view(shape)
            shift, rise = slopes["bias"].view(shape), slopes["weight"].view(shape)
            normal = (x - mean) * inverse
            pulls[position] = -(scale * x.shape[1] / x.numel()) * (shift + normal * rise)

    # --- never wrong in silence ------------------------------------------------------------------

    def _sound(self, batch: Batch, layers: list[Layer], without: dict[str, str]) -> list[Layer]:
        """The layers whose rules agree with plain evaluations; the others' parameters have none."""
        if not all(layer.key in self._checked for layer in layers):
            for layer in layers:
                self._check(batch, layer)
            layers, _ = layers_of(batch.recording, batch.flow, batch.samples, self._layouts)
        for layer in layers:
            if problem := self._checked[layer.key]:
                without |= {p.name: problem for p in layer.calls[0].parameters.values()}
        return [
            layer
            for layer in layers
            if not layer.parameters or any(name not in without for name in layer.parameters)
        ]

    def _check(self, batch: Batch, layer: Layer) -> None:
        """Hold a layer against plain evaluations, with each candidate for its layout in turn."""
        for chosen in range(layer.candidates):
            self._layouts[layer.key] = chosen
            same, _ = layers_of(batch.recording, batch.flow, batch.samples, self._layouts)
            tried = next(other for other in same if other.key == layer.key)
            try:
                problem, spent = problem_with(batch, tried, 0.1 * (layer.scale or 1.0))
                self.checks += spent
                break
            except Coupled:
                self.checks += 2
                if chosen + 1 == layer.candidates:
                    raise
            except NotImplementedError:
                problem = f"{layer.rule.name} is called in a form that its rule has not"
                break
        if problem:
            warn(
                f"{layer.name}: {problem}; it is probed weight by weight from now on", EngineWarning
            )
        self._checked[layer.key] = problem
        if not problem and not self._agrees(batch, tried):
            warn(
                f"{layer.name}: patches do not give what the model gives; whole passes are made "
                "instead",
                EngineWarning,
            )
            self._unchained.add(layer.key)

    def _agrees(self, batch: Batch, layer: Layer) -> bool:
        """Does following patches give what replaying the model gives?"""
        units = torch.arange(layer.units) if self.directions else torch.arange(layer.units)[::7][:3]
        index, signs = self._nudges(batch, layer, units, 1, torch.Generator().manual_seed(0))
        moves = signs * self._radius(layer) * 10
        batch.unchained = self._unchained
        fast = batch.changes(layer, index, moves, {}, False)
        batch.unchained = {layer.key}
        slow = batch.changes(layer, index, moves, {}, False)
        batch.unchained = self._unchained
        noise = 1e-9 if layer.calls[0].output.dtype == torch.float64 else 1e-5
        allowed = 1e-2 * slow.abs().max() + noise * batch.base.abs().max()
        return bool(((fast - slow).abs().max() <= allowed) | ~slow.isfinite().all())

    def _report(self, skipped: int) -> None:
        if not skipped:
            return
        what = "probes gave losses that are not finite"
        if self.nonfinite == "raise":
            raise NonFiniteLoss(f"{skipped} {what}; nothing has been changed")
        if not self._warned:
            warn(f"{skipped} {what}: older slopes stay. This is said once", NonFiniteWarning)
            self._warned = True
        self.skipped += skipped

    # --- what there is, and saving ---------------------------------------------------------------

    @property
    def units(self) -> int:
        """How many coordinates there are, as far as the last call has seen."""
        return sum(c.count for c in self._coordinates)

    def explain(self) -> str:
        """For each layer: its rule, units, places to probe them at, and what it falls back to."""
        rows = [("parameters", "probed by", "units", "places", "")]
        rows += [(c.name, c.kind, str(c.count), str(c.places), c.why) for c in self._coordinates]
        if self._why:
            rows.append(("all layers", "one pass a probe", "", "", self._why))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            "  ".join(
                [*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[4]]
            ).rstrip()
            for row in rows
        )

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, copied."""
        return {
            "version": _VERSION,
            "evaluations": self.evaluations,
            "checks": self.checks,
            "skipped": self.skipped,
            "cursor": self._cursor,
            "random": self._generator.get_state(),
            "memory": self._memory.state_dict(),
            "checked": dict(self._checked),
            "layouts": dict(self._layouts),
            "unchained": sorted(self._unchained),
            "stackable": [self._stackable, self._why],
            "warned": self._warned,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where a saved run stopped."""
        if state.get("version") != _VERSION:
            raise ValueError(
                f"state_dict has version {state.get('version')!r}, this release reads {_VERSION}"
            )
        self.evaluations, self.checks = int(state["evaluations"]), int(state["checks"])
        self.skipped, self._cursor = int(state["skipped"]), int(state["cursor"])
        self._generator.set_state(state["random"])
        self._memory.load_state_dict(state["memory"])
        self._checked, self._layouts = dict(state["checked"]), dict(state["layouts"])
        self._unchained = set(state["unchained"])
        self._stackable, self._why = state["stackable"]
        self._warned = bool(state["warned"])


def _places(K: int, Q: int, N: int, cells: int, generator: torch.Generator) -> Tensor:
    """(K, Q, N): Q different places of each sample."""
    if Q == 1:
        return torch.randint(0, cells, (K, 1, N), generator=generator)
    order = torch.rand((K, N, cells), generator=generator).topk(Q, dim=2).indices
    return order.transpose(1, 2)


def _coordinates(group: Layer | str, batch: Batch, without: dict[str, str]) -> Coordinates:
    if isinstance(group, str):
        return Coordinates(group, "weights", batch.parameters[group].numel(), 1, without[group])
    return Coordinates(group.name, group.rule.name, group.units, group.cells, "", group.whole)
