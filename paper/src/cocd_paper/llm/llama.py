"""A Llama, from the tokens of prompts to the logits of a few label words."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from .checkpoint import Shape

_EPS = 1e-5


class Start(NamedTuple):
    """From where on the model depends on what is trained: a block, and what in it is constant.

    `constant` is "input", "projections" (the frozen queries, keys and values, to which adapters
    add), or "attention"; the latter two are for the last block, of which only the last tokens'
    rows matter.
    """

    block: int
    constant: str = "input"


class RMSNorm(nn.Module):
    """x / rms(x), scaled."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + _EPS) * self.weight


class Block(nn.Module):
    """Attention, then a gated feed-forward layer."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        dim, hidden = shape.dim, shape.hidden
        self.heads = shape.heads
        self.attention_norm = RMSNorm(dim)
        self.query, self.key, self.value, self.output = (
            nn.Linear(dim, dim, bias=False) for _ in range(4)
        )
        self.feed_norm = RMSNorm(dim)
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)
        size = dim // shape.heads
        speed = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angle = torch.arange(shape.length)[:, None] * speed
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x: Tensor, mask: Tensor, only_last: bool = False) -> Tensor:
        """The next activations, of all tokens or only of each prompt's last."""
        return self.feed(self.attend(x, mask, only_last))

    def attend(self, x: Tensor, mask: Tensor, only_last: bool = False) -> Tensor:
        """The activations after attention."""
        first = x.shape[1] - 1 if only_last else 0
        _, q, k, v = self.projections(x, first)
        return self._mixed(x[:, first:], q, k, v, mask[:, :, first:])

    def projections(self, x: Tensor, first: int) -> tuple[Tensor, ...]:
        """The normed input; queries from token `first` on, keys and values, by heads."""
        length = x.shape[1]
        normed = self.attention_norm(x)
        q = self._rotated(self._split(self.query(normed[:, first:])), first, length)
        k = self._rotated(self._split(self.key(normed)), 0, length)
        return normed, q, k, self._split(self.value(normed))

    def adapt(
        self, x: Tensor, normed: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor
    ) -> Tensor:
        """The activations of the last tokens after attention, from the frozen projections."""
        length = normed.shape[1]
        last = length - 1
        if (change := _change(self.query, normed[:, last:])) is not None:
            q = q + self._rotated(self._split(change), last, length)
        if (change := _change(self.key, normed)) is not None:
            k = k + self._rotated(self._split(change), 0, length)
        if (change := _change(self.value, normed)) is not None:
            v = v + self._split(change)
        return self._mixed(x, q, k, v, mask)

    def _mixed(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        found = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.output(found.transpose(1, 2).flatten(2))

    def feed(self, x: Tensor) -> Tensor:
        """The activations after the feed-forward layer."""
        normed = self.feed_norm(x)
        return x + self.down(silu(self.gate(normed)) * self.up(normed))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _rotated(self, x: Tensor, first: int, stop: int) -> Tensor:
        """Pairs of numbers, turned by angles that grow with the position."""
        a, b, cos, sin = x[..., 0::2], x[..., 1::2], self.cos[first:stop], self.sin[first:stop]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


class Llama(nn.Module):
    """The model, with a head that knows the label words alone."""

    def __init__(self, shape: Shape, labels: int) -> None:
        super().__init__()
        if shape.heads != shape.kv_heads:
            raise ValueError("models with fewer key than query heads cannot be read here")
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.dim)
        self.head = nn.Linear(shape.dim, labels, bias=False)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Logits of the label words for the token after each prompt."""
        logits: Tensor = Tail(self, Start(0))(self.embedding(tokens), mask)
        return logits


class Tail(nn.Module):
    """The model from `start` on: what comes before is constant, and computed once for all rows."""

    def __init__(self, model: Llama, start: Start) -> None:
        super().__init__()
        self.start = start
        self.blocks = model.blocks[start.block :]
        self.norm, self.head = model.norm, model.head

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        """Logits of the label words, from what `below` gives."""
        block: Any
        for i, block in enumerate(self.blocks):
            if self.start.constant == "attention":
                x = block.feed(x)
            elif self.start.constant == "projections":
                x = block.feed(block.adapt(x, *others))
            else:
                x = block(x, *others, only_last=i == len(self.blocks) - 1)
        logits: Tensor = self.head(self.norm(x[:, -1]))
        return logits


@torch.no_grad()
def below(model: Llama, tokens: Tensor, mask: Tensor, start: Start) -> tuple[Tensor, ...]:
    """What `Tail` begins with."""
    x: Tensor = model.embedding(tokens)
    block: Any
    for block in list(model.blocks)[: start.block]:
        x = block(x, mask)
    if start.constant == "input":
        return x, mask
    block = model.blocks[start.block]
    if start.constant == "attention":
        return (block.attend(x, mask, only_last=True),)
    last = x.shape[1] - 1
    return x[:, last:], *block.projections(x, last), mask[:, :, last:]


def _change(layer: nn.Module, x: Tensor) -> Tensor | None:
    """What an adapter adds to the output of its frozen layer."""
    return layer.change(x) if hasattr(layer, "change") else None  # type: ignore[operator]


def padded(rows: list[list[int]], length: int) -> tuple[Tensor, Tensor]:
    """Tokens with padding on the left, and which tokens see which, for attention.

    What is padding sees itself alone, so that its softmax is a number.
    """
    tokens = torch.zeros(len(rows), length, dtype=torch.long)
    known = torch.zeros(len(rows), length, dtype=torch.bool)
    for i, row in enumerate(rows):
        tokens[i, length - len(row) :] = torch.tensor(row)
        known[i, length - len(row) :] = True
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    mask = (known[:, None] & causal) | torch.eye(length, dtype=torch.bool)
    return tokens, mask[:, None]
