"""One batch: its recorded pass, and the losses of its samples where units are nudged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.utils._pytree import tree_leaves

from ..objective.batched import call_model
from ..objective.stacking import quiet
from .layers import Layer
from .losses import Contributions, checked
from .tape import Diverged, Nudges, Recording, Replay

_MEMORY = 32 << 20  # bytes of the largest stacked output


@dataclass
class Batch:
    """The model on one batch, recorded once and replayed with nudges."""

    model: nn.Module
    loss_fn: Any
    contributions: Contributions
    parameters: Mapping[str, Tensor]
    inputs: Any
    target: Any
    rewind: Callable[[], None] = lambda: None  # random numbers and buffers, before each pass
    stackable: bool = True  # until torch.func.vmap was seen to fail
    why: str = ""
    recording: Recording = field(init=False)
    base: Tensor = field(init=False)  # (N,)
    samples: int = field(init=False)
    _factor: float = 1.0

    def record(self) -> Any:
        """The unperturbed pass; gives the loss as `loss_fn` does."""
        self.recording = Recording(self.parameters)
        with self.recording:
            output = call_model(self.model, self.inputs)
        self._output = output
        return self.loss_fn(output, self.target)

    def tell_apart(self, loss: float) -> None:
        """The losses of the samples at the unperturbed point; `ValueError` if there are none."""
        given = [t for t in tree_leaves(self.inputs) if isinstance(t, Tensor) and t.dim()]
        found = self.contributions(self._output, self.target)
        sizes = [t.shape[0] for t in given] or [len(found)]
        self.samples = next((n for n in sizes if len(found) % max(n, 1) == 0), sizes[0])
        name = getattr(self.loss_fn, "__name__", type(self.loss_fn).__name__)
        self._factor = checked(found, loss, self.samples, name)
        self.base = self._by_sample(found)

    def _by_sample(self, found: Tensor) -> Tensor:
        return found.reshape(self.samples, -1).sum(1) * self._factor

    def losses(self, nudges: Nudges) -> Tensor:
        """(N,): what each sample contributes to the loss where outputs are nudged."""
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
            except Exception as error:  # whatever vmap does not know
                self.stackable = False
                self.why = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        return torch.stack([one(*nudges) for nudges in zip(*stacks, strict=True)])

    def changes(
        self, layer: Layer, index: Tensor, steps: Tensor, pulls: dict[int, Tensor], central: bool
    ) -> Tensor:
        """(K, N): how the contributions change with nudges (K, E, N) at flat positions `index`.

        A central difference is halved, so that it is of the same size.
        """
        parts = []
        size = self._at_once(layer)
        for at, by in zip(torch.split(index, size), torch.split(steps, size), strict=True):
            flat = torch.zeros(len(at), sum(layer.sizes), dtype=layer.calls[0].output.dtype)
            flat.scatter_add_(1, at.flatten(1), by.to(flat.dtype).flatten(1))
            up = self.stacked(self._split(layer, flat), pulls)
            down = self.stacked(self._split(layer, -flat), pulls) if central else None
            parts.append(up - self.base if down is None else (up - down) / 2)
        return torch.cat(parts)

    def _split(self, layer: Layer, flat: Tensor) -> dict[int, Tensor]:
        pieces = torch.split(flat, layer.sizes, 1)
        return {
            site: piece.view(-1, *layout.shape)
            for site, piece, layout in zip(layer.sites, pieces, layer.layouts, strict=True)
        }

    def _at_once(self, layer: Layer) -> int:
        calls = self.recording.calls
        largest = max(
            t.numel() for c in calls for t in tree_leaves(c.output) if isinstance(t, Tensor)
        )
        return max(1, min(256, _MEMORY // (4 * max(largest, sum(layer.sizes)))))

    def forget(self) -> None:
        """Let the activations go."""
        with suppress(AttributeError):
            del self.recording, self._output
