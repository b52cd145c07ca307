"""How noisy the slopes of unit probes are, at equal passes, against autograd's gradient.

The paper's network for MNIST on random images after a short training, one batch. Where a pooling
follows, only its winners have slopes, and a position is drawn among these; the same network with a
pooling that is not recognised draws uniformly. The other rows spend the same passes on random
directions of whole layers, or on several positions at once. The error is that of one estimate,
|g - gradient|^2 / |gradient|^2, the mean over draws; the bias that of their mean.

The last row is a small residual network with batch norm in train mode.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from cocd_paper import networks
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import cocd

from . import report as output
from .report import Report, Row

DRAWS = 10


class Maxima(nn.Module):
    """2x2 max-pooling by slices, in which unit probes see no pooling."""

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
        rows = torch.maximum(x[:, :, :h:2, :w], x[:, :, 1:h:2, :w])
        return torch.maximum(rows[..., ::2], rows[..., 1::2])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    draws, batch = (2, 8) if args.quick else (DRAWS, 128)
    rows = output.run(args, lambda report: positions(draws, batch, report))
    output.show("Noise of unit probes", *table(rows))
    return 0


def positions(draws: int, batch: int, report: Report) -> list[Row]:
    """A row for each way and network."""
    torch.manual_seed(0)
    cnn = networks.mnist_cnn(activation=nn.Tanh)
    x, y = torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))
    _train(cnn, x, y)
    uniform = nn.Sequential(*(Maxima() if isinstance(m, nn.MaxPool2d) else m for m in cnn))
    rows = []
    cases: list[tuple[str, str, nn.Module, dict[str, Any]]] = [
        ("CNN", "units, winners", cnn, {}),
        ("CNN", "units, uniform", uniform, {}),
        ("CNN", "units, two winners at once", cnn, {"positions": 2}),
        ("CNN", "units, four winners at once", cnn, {"positions": 4}),
        ("CNN", "26 directions, winners", cnn, {"directions": 26}),
        ("CNN", "26 directions, four winners at once", cnn, {"directions": 26, "positions": 4}),
    ]
    for number, (network, way, model, options) in enumerate(cases):
        rows.append({"network": network, "way": way, **noise(model, x, y, draws, options)})
        report(way, (number + 1) / (len(cases) + 1))
    small = networks.ResNet(1, 10, nn.ReLU, "pad")
    x, y = torch.randn(batch // 4, 3, 32, 32), torch.randint(10, (batch // 4,))
    found = noise(small, x, y, max(2, draws // 10), {"directions": 4})
    rows.append({"network": "ResNet of 3 blocks, batch norm", "way": "4 directions", **found})
    return rows


def noise(model: nn.Module, x: Tensor, y: Tensor, draws: int, options: dict[str, Any]) -> Row:
    """Error and bias of the estimate, and the passes that one takes."""
    parameters = list(model.parameters())
    true = torch.cat(
        [g.flatten() for g in torch.autograd.grad(cross_entropy(model(x), y), parameters)]
    )
    objective = cocd.trace(model, cross_entropy)
    gradient = cocd.UnitGradient(objective, **options)
    found = []
    for _ in range(draws):
        gradient(objective(x, y))
        found.append(torch.cat([_grad(p).flatten() for p in parameters]))
    estimates = torch.stack(found)
    size = float(true.square().sum())
    mean = estimates.mean(0)
    return {
        "passes": gradient.evaluations // draws,
        "error": float((estimates - true).square().sum(1).mean()) / size,
        "bias": float((mean - true).square().sum()) / size,
        "cosine": float(nn.functional.cosine_similarity(mean, true, 0)),
    }


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.clone()


def _train(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """So that units differ."""
    adam = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(5):
        adam.zero_grad()
        cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        adam.step()


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and lines."""
    head = ["network", "way", "passes", "error of one", "of the mean", "cosine of the mean"]
    lines = [
        [
            row["network"], row["way"], f"{row['passes']}", f"{row['error']:.3g}",
            f"{row['bias']:.3g}", f"{row['cosine']:.3f}",
        ]
        for row in rows
    ]  # fmt: skip
    return head, lines
