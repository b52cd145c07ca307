"""The probes of one layer: where, how far, and the slopes that follow from their losses."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..objective.closure import sequential
from ..objective.protocol import Difference
from ..parts.evaluation import Evaluations
from .batch import Batch
from .layers import Layer
from .slope_memory import Fresh

# Of the output's root mean square: wider where rounding is.
_RADIUS = {torch.float64: 1e-4, torch.float32: 1e-2}
_WIDE = 0.1

Pulls = dict[int, Tensor]  # of batch norms, by site: see `pull`


@dataclass(frozen=True)
class Probing:
    """How layers are probed; see `UnitGradient` for the fields."""

    directions: int | None
    eps: float | None
    difference: Difference
    positions: int

    @property
    def central(self) -> bool:
        return self.difference == "central"

    def radius(self, layer: Layer) -> float:
        """How far the units of a layer move."""
        if self.eps is not None:
            return self.eps
        return _RADIUS.get(layer.calls[0].output.dtype, _WIDE) * (layer.scale or 1.0)

    def nudges(
        self, layer: Layer, units: Tensor, samples: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Flat positions and signs (K, E, N) of the nudges of each of K passes."""
        K, Q = self.directions or len(units), min(self.positions, layer.cells)
        at = _places(K, Q, samples, layer.cells, generator)
        if self.directions:  # all units of a layer at the same places
            at = at.repeat_interleave(len(units), 1)
            probed = units.repeat(Q).expand(K, -1)
        else:
            probed = units.unsqueeze(1).expand(-1, Q)
        index = layer.index(probed, at)
        signs = torch.randint(0, 2, index.shape, generator=generator)
        return index, (signs * 2 - 1).to(torch.float64)

    def units(
        self, batch: Batch, layer: Layer, units: Tensor, pulls: Pulls, generator: torch.Generator
    ) -> tuple[Fresh, int]:
        """New slopes of these units, and the passes spent."""
        if layer.rule.effects is not None and layer.plain and (layer.cells > 1 or layer.pulls_more):
            return self._everywhere(batch, layer, units, pulls, generator)
        r = self.radius(layer)
        index, signs = self.nudges(layer, units, batch.samples, generator)
        changes = batch.changes(layer, index, signs * r, pulls, self.central)
        good = changes.isfinite().all(1)
        changes = torch.where(good.unsqueeze(1), changes, 0)
        K, E, _ = index.shape
        positions = E // len(units) if self.directions else E
        weight = layer.cells / (positions * r * (K if self.directions else 1))
        slopes = batch.slopes(layer, index, changes.unsqueeze(1) * signs * weight)
        together = self.directions or layer.whole
        kept = units[: len(units) * bool(good.all())] if together else units[good]
        return Fresh(layer.key, kept, layer.rows, slopes), K * (2 if self.central else 1)

    def _everywhere(
        self, batch: Batch, layer: Layer, units: Tensor, pulls: Pulls, generator: torch.Generator
    ) -> tuple[Fresh, int]:
        """Parameters with one number for each unit, moved at all positions of a sample at once."""
        assert layer.rule.effects is not None
        r, U = self.radius(layer), layer.units
        effects = [layer.rule.effects(site.arguments) for site in layer.calls]
        K = self.directions or len(units)
        which = torch.ones(K, 1, U) if self.directions else torch.eye(U)[units].unsqueeze(1)
        good = torch.ones(K, dtype=torch.bool)
        slopes = {}
        for name in effects[0] if layer.normalises_batch else sorted(layer.calls[0].parameters):
            signs = torch.randint(0, 2, (K, batch.samples, U), generator=generator) * 2 - 1
            moves = signs * which
            parts = []
            for part in torch.split(moves, batch.at_once(layer)):
                nudges = [
                    layout.spread_out(part).to(effect[name].dtype) * (r * effect[name])
                    for layout, effect in zip(layer.layouts, effects, strict=True)
                ]
                parts.append(batch.changes_of(layer, nudges, pulls, self.central))
            changes = torch.cat(parts)
            good &= changes.isfinite().all(1)
            changes = torch.where(good.unsqueeze(1), changes, 0)
            share = r * (K if self.directions else 1)
            found = torch.einsum("kn,knu->u", changes, moves.to(changes.dtype)) / share
            slopes[name] = found.to(layer.calls[0].output.dtype)
        kept = units[: len(units) * bool(good.all())] if self.directions else units[good]
        passes = K * len(slopes) * (2 if self.central else 1)
        return Fresh(layer.key, kept, layer.rows, slopes), passes

    def weights(
        self, batch: Batch, evaluate: Evaluations, loss: float, name: str, index: Tensor,
        generator: torch.Generator,
    ) -> Fresh:  # fmt: skip
        """New slopes of weights that no unit rule covers: probed as coordinates."""
        tensor = batch.parameters[name]
        radius = self.eps or _RADIUS.get(tensor.dtype, _WIDE)
        flat = torch.zeros(tensor.numel(), dtype=torch.float64)
        if self.directions:
            for _ in range(self.directions):
                signs = torch.randint(0, 2, flat.shape, generator=generator) * 2.0 - 1
                flat += signs * self._along(evaluate, loss, tensor, signs * radius) / radius
            flat /= self.directions
        else:
            found = sequential(evaluate, loss, tensor, index.tolist(), radius, self.difference)
            flat[index] = found.first / (2 * radius if self.central else radius)
        good = flat[index].isfinite()
        if self.directions and not bool(good.all()):
            good = torch.zeros_like(good)
        return Fresh(name, index[good], {"weight": 0}, {"weight": flat.to(tensor.dtype)})

    def _along(self, evaluate: Evaluations, loss: float, tensor: Tensor, step: Tensor) -> float:
        """The change of the loss along a step of one parameter."""
        saved, step = tensor.detach().clone(), step.view(tensor.shape).to(tensor.dtype)

        def points() -> Generator[None, None, None]:
            try:
                tensor.copy_(saved + step)
                yield
                if self.central:
                    tensor.copy_(saved - step)
                    yield
            finally:
                tensor.copy_(saved)

        values = evaluate.losses(points)
        return (values[0] - values[1]) / 2 if self.central else values[0] - loss


def _places(K: int, Q: int, N: int, cells: int, generator: torch.Generator) -> Tensor:
    """(K, Q, N): Q different places of each sample."""
    if Q == 1:
        return torch.randint(0, cells, (K, 1, N), generator=generator)
    order = torch.rand((K, N, cells), generator=generator).topk(Q, dim=2).indices
    return order.transpose(1, 2)


def pull(layer: Layer, slopes: dict[str, Tensor], pulls: Pulls) -> None:
    """Store the effect of a batch norm's statistics on the loss, linear in its input, in `pulls`.

    With dy at the normalised output, the input's slope is (gamma / sigma) (dy - mean(dy) -
    x^ mean(dy x^)). Statistics are held in a replay, which gives the first term; the means are
    the slopes of shift and scale.
    """
    if "bias" not in slopes or "weight" not in slopes:
        return
    for position, site in zip(layer.sites, layer.calls, strict=True):
        if site.statistics is None:
            continue
        x, (mean, inverse) = site.input, site.statistics
        shape = [1, -1] + [1] * (x.dim() - 2)
        gamma = site.arguments.get("weight")
        scale = inverse if gamma is None else inverse * gamma.view(shape)
        shift, rise = slopes["bias"].view(shape), slopes["weight"].view(shape)
        normal = (x - mean) * inverse
        pulls[position] = -(scale * x.shape[1] / x.numel()) * (shift + normal * rise)
