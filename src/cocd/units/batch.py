"""One batch: its recorded pass, and the losses of its samples with nudged units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.utils._pytree import tree_leaves

from ..objective.batched import call_model
from ..objective.protocol import LossFunction, LossValue
from ..objective.stacking import quiet
from .chain import Chains, Step
from .flow import Flow
from .layers import Layer
from .losses import Contributions, checked
from .patches import Maps, at_positions, outputs
from .tape import Diverged, Nudges, Replay, Tape
from .unwritten import unwritten

_MEMORY = 32 << 20  # bytes of the largest stacked output
_SPARSE = 8  # positions for each that is probed, from which on these alone are looked at
_CACHED = 8 << 20  # the same, where it is soon read again


@dataclass
class Batch:
    """The model on one batch, recorded once and replayed with nudges."""

    model: nn.Module
    loss_fn: LossFunction
    contributions: Contributions
    parameters: Mapping[str, Tensor]
    inputs: object
    target: object
    rewind: Callable[[], None] = lambda: None  # random numbers and buffers, before each pass
    stackable: bool = True  # until torch.func.vmap has failed
    why: str = ""
    unchained: set[str] = field(default_factory=set)  # layers that patches cannot follow
    recording: Tape = field(init=False)
    base: Tensor = field(init=False)  # (N,)
    samples: int = field(init=False)
    dtypes: set[torch.dtype] = field(init=False)  # of output and loss
    _factor: float = 1.0

    def record(self) -> LossValue:
        """A pass; gives the loss as `loss_fn` does. The first one, unperturbed, is kept."""
        recording = Tape(self.parameters)
        first = not hasattr(self, "recording")
        with unwritten(self.parameters) if first else nullcontext(), recording:
            output = call_model(self.model, self.inputs)
        recording.finish(output)
        loss = self.loss_fn(output, self.target)
        if first:
            self.recording = recording
            self.maps = Maps()
            self.flow = Flow(recording)
            self._chains = Chains(recording, self.flow)
            given = [t for t in tree_leaves((output, loss)) if isinstance(t, Tensor)]
            self.dtypes = {t.dtype for t in given if t.is_floating_point()}
        return loss

    def tell_apart(self, loss: float) -> None:
        """The losses of the samples at the unperturbed point; `ValueError` if there are none."""
        given = [t for t in tree_leaves(self.inputs) if isinstance(t, Tensor) and t.dim()]
        found = self.contributions(self.recording.output, self.target)
        sizes = [t.shape[0] for t in given] or [len(found)]
        self.samples = next((n for n in sizes if len(found) % max(n, 1) == 0), sizes[0])
        name = getattr(self.loss_fn, "__name__", type(self.loss_fn).__name__)
        self._factor = checked(found, loss, self.samples, name, self.dtypes)
        self.base = self._by_sample(found)

    def _by_sample(self, found: Tensor) -> Tensor:
        return found.reshape(self.samples, -1).sum(1) * self._factor

    def losses(self, nudges: Nudges) -> Tensor:
        """(N,): the contribution of each sample to the loss, with nudged outputs."""
        self.rewind()
        replay = Replay(self.recording, nudges)
        with replay:
            output = call_model(self.model, self.inputs)
        replay.finish()
        return self._by_sample(self.contributions(output, self.target)) + replay.pulled

    def stacked(self, added: dict[int, Tensor], pulls: dict[int, Tensor]) -> Tensor:
        """(K, N): the same for nudges (K, ...) of some sites."""
        positions, stacks = list(added), list(added.values())

        def one(*nudges: Tensor) -> Tensor:
            return self.losses(Nudges(dict(zip(positions, nudges, strict=True)), pulls))

        if self.stackable and len(stacks[0]) > 1:
            try:
                with quiet():
                    found: Tensor = vmap(one, randomness="same")(*stacks)
                return found
            except Diverged:
                raise
            except Exception as error:  # anything that vmap does not support
                self.stackable = False
                self.why = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        return torch.stack([one(*nudges) for nudges in zip(*stacks, strict=True)])

    def changes(
        self, layer: Layer, index: Tensor, steps: Tensor, pulls: dict[int, Tensor], central: bool
    ) -> Tensor:
        """(K, N): how the contributions change with nudges (K, E, N) at flat positions `index`.

        A central difference is halved, so that it is of the same size.
        """
        steps_on = self._chain(layer) if index.shape[1] in (1, layer.units) else None
        if steps_on is not None:
            return self._by_chain(steps_on, layer, index, steps, central)
        parts = []
        size = self.at_once(layer)
        for at, by in zip(torch.split(index, size), torch.split(steps, size), strict=True):
            flat = layer.calls[0].output.new_zeros(len(at), sum(layer.sizes))
            flat.scatter_add_(1, at.flatten(1).to(flat.device), by.to(flat).flatten(1))
            up = self.stacked(self._split(layer, flat), pulls)
            down = self.stacked(self._split(layer, -flat), pulls) if central else None
            parts.append(up - self.base if down is None else (up - down) / 2)
        return torch.cat(parts)

    def changes_of(
        self, layer: Layer, nudges: list[Tensor], pulls: dict[int, Tensor], central: bool
    ) -> Tensor:
        """(K, N): the same for whole outputs that are nudged, (K, ...) for each call."""
        up = self.stacked(dict(zip(layer.sites, nudges, strict=True)), pulls)
        if not central:
            return up - self.base
        down = self.stacked({s: -n for s, n in zip(layer.sites, nudges, strict=True)}, pulls)
        return (up - down) / 2

    def _chain(self, layer: Layer) -> list[Step] | None:
        """The calls from a layer to the output, if patches can follow them."""
        x = layer.calls[0].output
        if (
            layer.key in self.unchained
            or len(layer.calls) > 1
            or x.dim() not in (2, 4)
            or not x.is_cpu
        ):
            return None
        if layer.layouts[0].unit != 1 or layer.layouts[0].spread != 1:
            return None
        return self._chains.behind(x)

    def _by_chain(
        self, steps_on: list[Step], layer: Layer, index: Tensor, steps: Tensor, central: bool
    ) -> Tensor:
        x = layer.calls[0].output
        largest = max([step.out[0].numel() for step in steps_on] or [1])
        size = max(1, _CACHED // (4 * largest * self.samples))
        parts = []
        for at, by in zip(torch.split(index, size), torch.split(steps, size), strict=True):
            up = self._of(outputs(steps_on, self.maps, x, at, by))
            down = self._of(outputs(steps_on, self.maps, x, at, -by)) if central else None
            parts.append(up - self.base if down is None else (up - down) / 2)
        return torch.cat(parts)

    def _of(self, stacked: Tensor) -> Tensor:
        """(K, N): the contributions of samples to the loss, with stacked outputs."""
        found = self.contributions.stacked(stacked, self.target)
        return found.reshape(len(found), self.samples, -1).sum(2) * self._factor

    def slopes(self, layer: Layer, index: Tensor, d: Tensor) -> dict[str, Tensor]:
        """Slopes of a layer's parameters, of slopes `d` at flat positions, both (K, E, N)."""
        x = layer.calls[0].output
        local = len(layer.calls) == 1 and layer.layouts[0].spread == 1
        few = index.numel() * layer.units * _SPARSE <= x.numel()
        if layer.rule.name == "conv2d" and local and few:
            found = at_positions(self.maps, layer.calls[0], index, d.to(x.dtype))
            if found is not None:
                return found
        plain = layer.layouts[0].shape == (self.samples, layer.units) and len(layer.calls) == 1
        if plain and index.shape[1] == 1 and len(index) <= layer.units:  # units one by one
            one = torch.zeros(self.samples, layer.units, dtype=x.dtype)
            one[:, index[:, 0, 0] % layer.units] = d[:, 0].t().to(x.dtype)
            return layer.slopes(one.to(x.device).flatten())
        wide = torch.promote_types(x.dtype, torch.float32)
        flat = torch.zeros(sum(layer.sizes), dtype=wide)
        flat.scatter_add_(0, index.flatten(), d.flatten().to(wide))
        return layer.slopes(flat.to(x))

    def _split(self, layer: Layer, flat: Tensor) -> dict[int, Tensor]:
        pieces = torch.split(flat, layer.sizes, 1)
        return {
            site: piece.view(-1, *layout.shape)
            for site, piece, layout in zip(layer.sites, pieces, layer.layouts, strict=True)
        }

    def at_once(self, layer: Layer) -> int:
        calls = self.recording.calls
        largest = max(
            t.numel() for c in calls for t in tree_leaves(c.output) if isinstance(t, Tensor)
        )
        return max(1, min(256, _MEMORY // (4 * max(largest, sum(layer.sizes)))))

    def unseen(self) -> list[str]:
        """Parameters that no recorded call reads."""
        return [name for name in self.parameters if name not in self.recording.seen]

    def forget(self) -> None:
        """Release the activations."""
        with suppress(AttributeError):
            del self.recording, self.maps, self.flow, self._chains
