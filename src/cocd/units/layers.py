"""Layers of units: all calls that share parameters, and the places at which they can be probed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from .flow import Flow
from .rules import UnitRule
from .tape import Site, Tape


@dataclass(frozen=True)
class UnitLayout:
    """How a call's output is laid out over samples, positions and units, as if contiguous."""

    shape: tuple[int, ...]
    unit: int  # dimension
    sample: int  # dimension
    samples: int
    minor: bool = False  # of the dimension that samples share with tokens, the samples run fastest

    @classmethod
    def candidates(cls, shape: torch.Size, unit: int, samples: int) -> list[UnitLayout]:
        """Possible layouts, the likeliest first; none if the output has no part per sample."""
        unit %= len(shape)
        others = [i for i in range(len(shape)) if i != unit]
        found = [cls(tuple(shape), unit, i, samples) for i in others if shape[i] == samples]
        if not found and others and shape[others[0]] and shape[others[0]] % samples == 0:
            found = [cls(tuple(shape), unit, others[0], samples, minor) for minor in (False, True)]
        return found

    @property
    def spread(self) -> int:
        """Positions that share the samples' dimension: tokens flattened into the batch."""
        return self.shape[self.sample] // self.samples

    @property
    def owners(self) -> Tensor:
        """Whose each element is, in a shape that can be broadcast over the output."""
        each = torch.arange(self.samples)
        along = each.repeat(self.spread) if self.minor else each.repeat_interleave(self.spread)
        return along.view([-1 if i == self.sample else 1 for i in range(len(self.shape))])

    def spread_out(self, values: Tensor) -> Tensor:
        """(K, N, U) in a shape that can be broadcast over K outputs."""
        each = torch.arange(self.samples)
        owners = each.repeat(self.spread) if self.minor else each.repeat_interleave(self.spread)
        found = values[:, owners]
        if self.unit < self.sample:
            found = found.transpose(1, 2)
        sides = [size if i in (self.sample, self.unit) else 1 for i, size in enumerate(self.shape)]
        return found.reshape(len(values), *sides)

    @property
    def units(self) -> int:
        return self.shape[self.unit]

    @property
    def positions(self) -> int:
        return prod(self.shape) // max(1, self.units * self.samples)

    def index(self, units: Tensor, positions: Tensor) -> Tensor:
        """Where these lie in the flat output: units (K, E) and positions (K, E, N)."""
        strides = [prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        step = strides[self.sample]
        apart = step * (1 if self.minor else self.spread)
        found = torch.arange(self.samples) * apart + (units * strides[self.unit]).unsqueeze(-1)
        rest = positions
        for i in reversed(range(len(self.shape))):
            size = self.spread if i == self.sample else self.shape[i]
            if i != self.unit and size > 1:
                between = self.samples if self.minor and i == self.sample else 1
                found = found + rest % size * (strides[i] * between)
                rest = rest.div(size, rounding_mode="floor")
        return found


@dataclass
class Layer:
    """Calls of one rule with the same parameters; their positions are counted through."""

    rule: UnitRule
    key: str
    sites: list[int]  # positions in the recording
    layouts: list[UnitLayout]
    calls: list[Site]
    winners: list[Tensor | None]  # of each call: the positions (N, U, cells) that a pooling keeps
    candidates: int  # for its layout

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters."""
        return sorted(p.name for p in self.calls[0].parameters.values())

    @property
    def name(self) -> str:
        return ", ".join(self.parameters) or "a normalisation without parameters"

    @property
    def units(self) -> int:
        return self.layouts[0].units

    @property
    def cells(self) -> int:
        """The number of places to choose from, for each unit of each sample."""
        return sum(self._cells)

    @property
    def _cells(self) -> list[int]:
        return [
            layout.positions if kept is None else kept.shape[2]
            for layout, kept in zip(self.layouts, self.winners, strict=True)
        ]

    @property
    def scale(self) -> float:
        """Root mean square of the outputs."""
        return max(site.scale for site in self.calls)

    @property
    def rows(self) -> dict[str, int]:
        """For each argument the dimension that runs over units."""
        return self.rule.parameters

    @property
    def whole(self) -> bool:
        """Whether all units must be probed together, because a parameter has no row for each."""
        return any(
            p.shape[self.rows[n] % len(p.shape)] != self.units
            for n, p in self.calls[0].parameters.items()
        )

    @property
    def plain(self) -> bool:
        """Whether each parameter has one number per unit."""
        return all(p.shape == (self.units,) for p in self.calls[0].parameters.values())

    @property
    def pulls_more(self) -> bool:
        """Does a batch norm's pull need slopes of a shift or a scale that is no parameter?"""
        return any(len(s.parameters) < 2 for s in self.calls if s.statistics is not None)

    @property
    def normalises_batch(self) -> bool:
        """Whether one of the calls is a batch norm in train mode."""
        return any(site.statistics is not None for site in self.calls)

    def index(self, units: Tensor, cells: Tensor) -> Tensor:
        """Flat positions in all outputs, one after the other: (K, E), (K, E, N) -> (K, E, N)."""
        if len(self.calls) == 1:
            return self._index(0, units, cells)
        found = torch.zeros_like(cells)
        first = start = 0
        for call, (size, count) in enumerate(zip(self.sizes, self._cells, strict=True)):
            inside = (cells >= first) & (cells < first + count)
            local = (cells - first).clamp(0, count - 1)
            found = torch.where(inside, self._index(call, units, local) + start, found)
            first, start = first + count, start + size
        return found

    def _index(self, call: int, units: Tensor, cells: Tensor) -> Tensor:
        """The same in the output of one call."""
        layout, kept = self.layouts[call], self.winners[call]
        if kept is not None:
            cells = kept[torch.arange(layout.samples), units.unsqueeze(-1), cells]
        return layout.index(units, cells)

    @property
    def sizes(self) -> list[int]:
        return [prod(layout.shape) for layout in self.layouts]

    def slopes(self, flat: Tensor) -> dict[str, Tensor]:
        """Slopes of the parameters, by argument, of slopes of all outputs; summed over calls."""
        total: dict[str, Tensor] = {}
        for site, layout, part in zip(
            self.calls, self.layouts, torch.split(flat, self.sizes), strict=True
        ):
            found = self.rule.slopes(site.arguments, part.view(layout.shape))
            for name in site.parameters:
                total[name] = total[name] + found[name] if name in total else found[name]
        return total


def layers_of(
    recording: Tape, flow: Flow, samples: int, chosen: Mapping[str, int]
) -> tuple[list[Layer], dict[str, str]]:
    """The layers in forward order, and the parameters without one, with the reason.

    `chosen` says which of the candidates for its layout is a layer's.
    """
    without = dict(recording.without_rule)
    groups: dict[str, list[int]] = {}
    for position, site in enumerate(recording.sites):
        parameters = [(n, *p.key) for n, p in sorted(site.parameters.items())]
        key = repr((site.rule.name, parameters or position))
        groups.setdefault(key, []).append(position)
    layers = []
    for key, positions in groups.items():
        sites = [recording.sites[i] for i in positions]
        found = _layer(key, positions, sites, samples, chosen.get(key, 0), flow)
        if isinstance(found, Layer):
            layers.append(found)
        else:
            for name in (p.name for site in sites for p in site.parameters.values()):
                without.setdefault(name, found)
    return layers, without


def _layer(
    key: str, positions: list[int], sites: list[Site], samples: int, chosen: int, flow: Flow
) -> Layer | str:
    """The layer, or why it cannot be one."""
    if any(site.written for site in sites):
        return "its input is written to after the call"
    rule = sites[0].rule
    candidates = [UnitLayout.candidates(site.output.shape, rule.dim, samples) for site in sites]
    fewest = min(map(len, candidates))
    if not fewest:
        return "its output is not one for each sample"
    for parameter in (p for site in sites for p in site.parameters.values()):
        if not parameter.shape:
            return "it is a single number"
        if any(
            n > 1 and not step for n, step in zip(parameter.shape, parameter.stride, strict=True)
        ):
            return "it is expanded"
    layouts = [found[min(chosen, fewest - 1)] for found in candidates]
    winners = [
        flow.winners(site) if layout.sample == 0 and layout.spread == 1 else None
        for site, layout in zip(sites, layouts, strict=True)
    ]
    return Layer(rule, key, positions, layouts, sites, winners, fewest)
