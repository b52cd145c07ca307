"""What an entry of the zoo is."""

from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_map

INCREMENTAL = {"*": "incremental"}


class Case(NamedTuple):
    """A model on one batch; `expected` maps patterns of parameter names to engines, first wins.

    "incremental" means by a rule; "without a rule" means by the same engine, which then makes
    the call itself for every probe.
    """

    model: nn.Module
    loss_fn: Any
    inputs: Any
    target: Any
    expected: dict[str, str] = INCREMENTAL

    def engine(self, name):
        return next(engine for key, engine in self.expected.items() if fnmatchcase(name, key))

    def to(self, dtype):
        def cast(x):
            return x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

        loss_fn = self.loss_fn.to(dtype) if isinstance(self.loss_fn, nn.Module) else self.loss_fn
        if isinstance(loss_fn, partial):
            loss_fn = partial(loss_fn.func, **tree_map(cast, loss_fn.keywords))
        inputs, target = tree_map(cast, (self.inputs, self.target))
        return Case(self.model.to(dtype), loss_fn, inputs, target, self.expected)


class Net(nn.Module):
    """Layers by name, and a forward that is a function of them and of the inputs."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.function(self, x)


def labels(n, classes):
    return torch.arange(n) % classes


def image(channels, size, n=3):
    return torch.randn(n, channels, size, size)


def classifier(*layers, x, classes=3):
    return Case(nn.Sequential(*layers), nn.CrossEntropyLoss(), x, labels(len(x), classes))
