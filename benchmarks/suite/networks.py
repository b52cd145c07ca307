"""Networks of the suite that are more than a stack of layers."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn


def mlp(*sizes: int, activation: type[nn.Module] = nn.ReLU, norm: str = "") -> nn.Sequential:
    """Linear layers with an activation between them, and a norm before it if one is named."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            if norm:
                layers.append(nn.LayerNorm(b) if norm == "layer" else nn.BatchNorm1d(b))
            layers.append(activation())
    return nn.Sequential(*layers)


class Point(nn.Module):
    """A vector that is looked for; the data are only passed by."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(start.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        return self.x.expand(len(inputs), -1)


class Rows(nn.Module):
    """A GRU over the rows of an image, the last state into a linear layer."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(8, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.head(self.gru(images.view(-1, 8, 8))[0][:, -1])
        return out


class Attention(nn.Module):
    """One transformer layer over the rows of an image, and the mean of its tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.place = nn.Parameter(0.02 * torch.randn(8, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images.view(-1, 8, 8)) + self.place
        y = self.norm1(x)
        weights = self.q(y) @ self.k(y).transpose(1, 2) / x.shape[-1] ** 0.5
        x = x + weights.softmax(-1) @ self.v(y)
        x = x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))
        out: Tensor = self.head(x.mean(1))
        return out


class Factors(nn.Module):
    """Ratings as products of two vectors."""

    def __init__(self, rows: int, columns: int, rank: int) -> None:
        super().__init__()
        self.u = nn.Embedding(rows, rank)
        self.v = nn.Embedding(columns, rank)
        with torch.no_grad():
            for table in (self.u, self.v):
                table.weight.mul_(0.3)

    def forward(self, pairs: Tensor) -> Tensor:
        out: Tensor = (self.u(pairs[:, 0]) * self.v(pairs[:, 1])).sum(1)
        return out


class Next(nn.Module):
    """The next symbol of a chain, from the last three."""

    def __init__(self, symbols: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.body = mlp(3 * width, 32, symbols, activation=nn.Tanh)

    def forward(self, context: Tensor) -> Tensor:
        out: Tensor = self.body(self.embed(context).flatten(1))
        return out


class Decay(nn.Module):
    """a exp(-b t) + c: three numbers of quite different sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(1.0))
        self.b = nn.Parameter(torch.tensor(1.0))
        self.c = nn.Parameter(torch.tensor(0.0))

    def forward(self, t: Tensor) -> Tensor:
        return self.a * torch.exp(-self.b * t) + self.c


class Mixture(nn.Module):
    """The density of a mixture of normal distributions, one variance each."""

    def __init__(self, parts: int, dimension: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.randn(parts, dimension))
        self.spread = nn.Parameter(torch.zeros(parts))
        self.weight = nn.Parameter(torch.zeros(parts))

    def forward(self, x: Tensor) -> Tensor:
        off = (x[:, None] - self.mean).square().sum(2) * torch.exp(-2 * self.spread) / 2
        scale = self.weight.log_softmax(0) - x.shape[1] * self.spread
        return torch.logsumexp(scale - off, 1)
