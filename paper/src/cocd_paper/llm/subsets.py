"""What is trained, and from where on the model depends on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

import cocd

from .llama import Llama, Start

_ALPHA = 16.0  # of LoRA: its product is scaled by alpha / r


class Subset(NamedTuple):
    """Parameters, from where on they change the model, and a radius for directions."""

    parameters: list[nn.Parameter]
    start: Start
    eps: float


class LoRA(nn.Module):
    """W + alpha / r B A with frozen W; B begins with zeros."""

    def __init__(self, layer: nn.Linear, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        rows, columns = layer.weight.shape
        self.weight, self.scale = layer.weight, _ALPHA / rank
        self.a = nn.Parameter(torch.randn(rank, columns, generator=generator) / columns**0.5)
        self.b = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, x: Tensor) -> Tensor:
        """What the layer gives, and the low-rank part."""
        return linear(x, self.weight) + self.change(x)

    def change(self, x: Tensor) -> Tensor:
        """The low-rank part."""
        return self.scale * linear(linear(x, self.a), self.b)


def choose(name: str, model: Llama, seed: int) -> Subset:
    """Make `model` ready for training a subset; everything else is frozen."""
    model.requires_grad_(False)
    made = _MAKERS[name](model, torch.Generator().manual_seed(seed))
    for parameter in made.parameters:
        parameter.requires_grad_(True)
    return made


def _head(model: Llama, generator: torch.Generator) -> Subset:
    last = len(model.blocks) - 1
    feed_norm = model.get_submodule(f"blocks.{last}.feed_norm")
    modules = [feed_norm, model.norm, model.head]
    return Subset([p for m in modules for p in m.parameters()], Start(last, "attention"), 1e-3)


def _norms(model: Llama, generator: torch.Generator) -> Subset:
    return Subset([p for p in model.parameters() if p.dim() == 1], Start(0), 1e-3)


def _all(model: Llama, generator: torch.Generator) -> Subset:
    chosen = [p for p in model.parameters() if p is not model.embedding.weight]
    return Subset(chosen, Start(0), 1e-3)


def _cores(last: bool) -> Callable[[Llama, torch.Generator], Subset]:
    def make(model: Llama, generator: torch.Generator) -> Subset:
        start = _start(model, last)
        found = cocd.cores(model, rank=4, layers=f"blocks.{start.block if last else '*'}.*")
        return Subset(found, start, 1e-2)

    return make


def _lora(last: bool, rank: int) -> Callable[[Llama, torch.Generator], Subset]:
    def make(model: Llama, generator: torch.Generator) -> Subset:
        start = _start(model, last)
        found: list[nn.Parameter] = []
        for block in list(model.blocks)[start.block :]:
            for name in ("query", "value"):
                layer = LoRA(block.get_submodule(name), rank, generator)  # type: ignore[arg-type]
                setattr(block, name, layer)
                found += [layer.a, layer.b]
        return Subset(found, start, 1e-2)

    return make


def _start(model: Llama, last: bool) -> Start:
    return Start(len(model.blocks) - 1, "projections") if last else Start(0)


_MAKERS = {
    "head": _head,
    "norms": _norms,
    "all": _all,
    "cores-last": _cores(last=True),
    "cores": _cores(last=False),
    "lora-last": _lora(last=True, rank=4),
    "lora": _lora(last=False, rank=1),
}
