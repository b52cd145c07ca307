"""A Llama, from the tokens of prompts to the logits of a few label words."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from .checkpoint import Shape

_EPS = 1e-5


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
        length = x.shape[1]
        first = length - 1 if only_last else 0
        normed = self.attention_norm(x)
        q = self._rotated(self._split(self.query(normed[:, first:])), first, length)
        k = self._rotated(self._split(self.key(normed)), 0, length)
        v = self._split(self.value(normed))
        found = scaled_dot_product_attention(q, k, v, attn_mask=mask[:, :, first:])
        return x[:, first:] + self.output(found.transpose(1, 2).flatten(2))

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
        logits: Tensor = Tail(self, 0)(self.embedding(tokens), mask)
        return logits


class Tail(nn.Module):
    """The model from block `start` on, for what comes before is constant if it is not trained.

    `start` is a whole number, or a half more where attention of that block is constant, too; then
    the input is the activations of the last tokens.
    """

    def __init__(self, model: Llama, start: float) -> None:
        super().__init__()
        self.start = start
        self.blocks = model.blocks[int(start) :]
        self.norm, self.head = model.norm, model.head

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits of the label words."""
        block: Any
        for i, block in enumerate(self.blocks):
            if i == 0 and self.start % 1:
                x = block.feed(x)
            else:
                x = block(x, mask, only_last=i == len(self.blocks) - 1)
        logits: Tensor = self.head(self.norm(x[:, -1]))
        return logits


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
