"""Remembered slopes: the rows of units that were not probed decay."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from .layers import Layer


class Fresh(NamedTuple):
    """New slopes of some units of a layer, by argument; the rows of other units do not count."""

    key: str
    units: Tensor
    rows: dict[str, int]  # argument -> its dimension that runs over units
    slopes: dict[str, Tensor]

    def into(self, held: dict[str, Tensor]) -> dict[str, Tensor]:
        """`held` with the new rows in it."""
        merged = {}
        for name, values in self.slopes.items():
            row, old = self.rows[name], held.get(name)
            if len(self.units) and values.shape[row] in (1, len(self.units)):
                merged[name] = values  # all of them, or one for all, which are probed together
                continue
            old = torch.zeros_like(values) if old is None else old.clone()
            old.index_copy_(row, self.units, values.index_select(row, self.units))
            merged[name] = old
        return merged


class SlopeMemory:
    """Slopes by layer and argument."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, Tensor]] = {}

    def of(self, key: str) -> dict[str, Tensor]:
        """The remembered slopes of a layer."""
        return self.held.get(key, {})

    def remember(self, fresh: Iterable[Fresh], present: Iterable[str], decay: float) -> None:
        """Old slopes decay, new ones replace their rows; missing layers are forgotten."""
        kept = {key: self.held[key] for key in present if key in self.held}
        if decay != 1:
            kept = {k: {n: t * decay for n, t in held.items()} for k, held in kept.items()}
        for new in fresh:
            kept[new.key] = new.into(kept.get(new.key, {}))
        self.held = kept

    def write(
        self, groups: Iterable[Layer | str], parameters: Mapping[str, Tensor], whole: Container[str]
    ) -> None:
        """The sum over all uses, in ``p.grad``; parameters in `whole` are probed as weights."""
        for tensor in parameters.values():
            if tensor.grad is None:
                tensor.grad = torch.zeros_like(tensor)
            else:
                tensor.grad.zero_()
        for group in groups:
            if isinstance(group, str):
                for values in self.of(group).values():
                    _grad(parameters[group]).copy_(values.view(parameters[group].shape))
                continue
            held = self.of(group.key)
            for name, parameter in group.calls[0].parameters.items():
                if name in held and parameter.name not in whole:
                    parameter.of(_grad(parameters[parameter.name])).add_(held[name])

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        return {k: {n: t.clone() for n, t in held.items()} for k, held in self.held.items()}

    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        self.held = {k: {n: t.clone() for n, t in held.items()} for k, held in state.items()}


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
