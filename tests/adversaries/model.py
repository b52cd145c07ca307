"""A model whose forward is a function, and the registry of these."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


class Model(nn.Module):
    """Two layers, and whatever `forward` does with them."""

    def __init__(self, forward: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        self.way = forward
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 2)
        for name, value in attributes.items():
            if name.startswith("buffer_"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.way(self, *args, **kwargs)


@dataclass
class Adversary:
    """A model, what is changed between two steps, and whether the engine may give up."""

    build: Callable[[], nn.Module]
    change: Callable[[Any], None] = lambda model: None
    falls_back: bool = False  # with a warning
    inputs: Any = field(default_factory=lambda: torch.randn(6, 4, dtype=torch.float64))


ADVERSARIES: dict[str, Adversary] = {}


def adversary(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a forward."""
    attributes = options.pop("attributes", dict)

    def register(forward: Callable[..., Any]) -> Callable[..., Any]:
        ADVERSARIES[forward.__name__] = Adversary(lambda: Model(forward, **attributes()), **options)
        return forward

    return register
