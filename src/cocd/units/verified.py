"""The results of checking layers against plain evaluations."""

from __future__ import annotations

import torch

from ..errors import EngineWarning
from ..parts.types import State
from ..parts.warn import warn
from .batch import Batch
from .checks import Coupled, moved, problem_with, refuse_difference
from .layers import Layer, layers_of
from .probing import Probing
from .tape import Nudges


class Verified:
    """Which layers can be probed, in which layout, and whether patches can follow them."""

    def __init__(self) -> None:
        self.checks = 0  # evaluations spent
        self._problems: dict[str, str] = {}  # layer -> its problem, or nothing
        self._layouts: dict[str, int] = {}  # layer -> which of the candidates is right
        self._matters: dict[str, bool] = {}  # parameters that no recorded call reads
        self.unchained: set[str] = set()  # layers that patches cannot follow

    def layers(self, batch: Batch, probing: Probing) -> tuple[list[Layer], dict[str, str]]:
        """Layers with verified rules; and parameters without one, with the reason."""
        batch.unchained = self.unchained
        layers, without = self._found(batch)
        unknown = [layer for layer in layers if layer.key not in self._problems]
        if unknown:
            self.checks += 1
            refuse_difference(batch)
        for layer in unknown:
            self._verify(batch, layer, probing)
        if unknown:
            layers, without = self._found(batch)
        for layer in layers:
            if problem := self._problems[layer.key]:
                without |= dict.fromkeys(layer.parameters, problem)
        without |= dict.fromkeys(self._read_unseen(batch), "what reads it cannot be seen")
        sound = [
            layer
            for layer in layers
            if not layer.parameters or any(name not in without for name in layer.parameters)
        ]
        _refuse_unpulled(batch, sound)
        return sound, without

    def _read_unseen(self, batch: Batch) -> list[str]:
        """Parameters that matter although no recorded call reads them."""
        unseen = batch.unseen()
        for name in unseen:
            if name not in self._matters:
                step = torch.full_like(batch.parameters[name], 0.01)
                with moved(batch, {name: step}):
                    changed = batch.losses(Nudges({})) - batch.base
                self._matters[name] = bool(changed.any())
                self.checks += 1
        return [name for name in unseen if self._matters[name]]

    def _found(self, batch: Batch) -> tuple[list[Layer], dict[str, str]]:
        return layers_of(batch.recording, batch.flow, batch.samples, self._layouts)

    def _verify(self, batch: Batch, layer: Layer, probing: Probing) -> None:
        """Check a layer against plain evaluations, with each candidate layout in turn."""
        problem, tried = "", layer
        for chosen in range(layer.candidates):
            self._layouts[layer.key] = chosen
            tried = next(same for same in self._found(batch)[0] if same.key == layer.key)
            try:
                problem, spent = problem_with(batch, tried, 0.1 * (layer.scale or 1.0))
                self.checks += spent
                break
            except Coupled:
                self.checks += 2
                if chosen + 1 == layer.candidates:
                    raise
            except NotImplementedError:
                problem = f"{layer.rule.name} is called in a form that its rule does not support"
                break
        if problem:
            warn(
                f"{layer.name}: {problem}; it is probed weight by weight from now on", EngineWarning
            )
        elif not self._follows(batch, tried, probing):
            warn(
                f"{layer.name}: patches do not give what the model gives; whole passes are made "
                "instead",
                EngineWarning,
            )
            self.unchained.add(layer.key)
        self._problems[layer.key] = problem

    def _follows(self, batch: Batch, layer: Layer, probing: Probing) -> bool:
        """Whether following patches agrees with replaying the model."""
        units = torch.arange(layer.units)
        if not probing.directions:
            units = units[:: max(1, layer.units // 2)]
        generator = torch.Generator().manual_seed(0)
        index, signs = probing.nudges(layer, units, batch.samples, generator)
        moves = signs * 10 * probing.radius(layer)
        fast = batch.changes(layer, index, moves, {}, False)
        batch.unchained = {layer.key}
        slow = batch.changes(layer, index, moves, {}, False)
        batch.unchained = self.unchained
        self.checks += len(index)
        noise = 1e-9 if layer.calls[0].output.dtype == torch.float64 else 1e-5
        allowed = 1e-2 * slow.abs().max() + noise * batch.base.abs().max()
        return bool(((fast - slow).abs().max() <= allowed) | ~slow.isfinite().all())

    def state_dict(self) -> State:
        return {
            "checks": self.checks,
            "problems": dict(self._problems),
            "layouts": dict(self._layouts),
            "matters": dict(self._matters),
            "unchained": sorted(self.unchained),
        }

    def load_state_dict(self, state: State) -> None:
        self.checks = int(state["checks"])
        self._problems, self._layouts = dict(state["problems"]), dict(state["layouts"])
        self._matters = dict(state["matters"])
        self.unchained = set(state["unchained"])


def _refuse_unpulled(batch: Batch, sound: list[Layer]) -> None:
    """Statistics are held in a replay: what they do must be known of each batch norm by itself."""
    known = {site for layer in sound if len(layer.calls) == 1 for site in layer.sites}
    for i, site in enumerate(batch.recording.sites):
        if site.statistics is not None and i not in known:
            names = ", ".join(p.name for p in site.parameters.values()) or "without parameters"
            raise ValueError(
                f"a batch norm in train mode ({names}) is called twice, or has no unit rule, so "
                "what its statistics do is not known; use one module for each call, model.eval(), "
                "cocd.CoCD or cocd.AutoCoCD"
            )
