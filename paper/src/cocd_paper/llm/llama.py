"""A Llama, from the tokens of several prompts to the logits of a few label words."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from .checkpoint import Shape

_EPS = 1e-5


class Prompts(NamedTuple):
    """Several prompts one after the other, without padding.

    `x` is their tokens or, further up, their activations; `table` holds sines and cosines of their
    positions, `mask` which tokens see which, `last` where each prompt ends.
    """

    x: Tensor
    table: Tensor
    mask: Tensor
    last: Tensor


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

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        dim, hidden = shape.dim, shape.hidden
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        kv = dim // shape.heads * shape.kv_heads
        self.attention_norm = RMSNorm(dim)
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, kv, bias=False)
        self.value = nn.Linear(dim, kv, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)
        self.feed_norm = RMSNorm(dim)
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, prompts: Prompts, only_last: bool = False) -> Tensor:
        """The next activations, of all tokens or only of each prompt's last."""
        return self.feed(self.attend(prompts, only_last))

    def attend(self, prompts: Prompts, only_last: bool = False) -> Tensor:
        """The activations after attention."""
        x, table, mask, last = prompts
        normed = self.attention_norm(x)
        asking, asked = (normed, table)
        if only_last:
            x, asking, asked, mask = x[last], normed[last], table[last], mask[last]
        q = rotated(self._split(self.query(asking), self.heads), asked)
        k = rotated(self._split(self.key(normed), self.kv_heads), table)
        v = self._split(self.value(normed), self.kv_heads)
        shared = self.heads != self.kv_heads
        found = scaled_dot_product_attention(
            q[None], k[None], v[None], attn_mask=mask, enable_gqa=shared
        )
        return x + self.output(found[0].transpose(0, 1).flatten(1))

    def feed(self, x: Tensor) -> Tensor:
        """The activations after the feed-forward layer."""
        normed = self.feed_norm(x)
        return x + self.down(silu(self.gate(normed)) * self.up(normed))

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(len(x), heads, -1).transpose(0, 1)


def rotated(x: Tensor, table: Tensor) -> Tensor:
    """Pairs of numbers, turned by angles that grow with the position."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.view_as_complex(table)).flatten(-2)


class Llama(nn.Module):
    """The model with a head that knows the label words alone."""

    def __init__(self, shape: Shape, labels: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.dim)
        self.head = nn.Linear(shape.dim, labels, bias=False)

    def forward(self, prompts: Prompts) -> Tensor:
        """Logits of the label words for the token after each prompt."""
        logits: Tensor = Tail(self, 0)(prompts._replace(x=self.embedding(prompts.x)))
        return logits


class Tail(nn.Module):
    """The model from block `start` on; what comes before is constant where it is not trained.

    `start` is a whole number, or a half more where attention of that block is constant, too; then
    the input is the activations of the last tokens.
    """

    def __init__(self, model: Llama, start: float) -> None:
        super().__init__()
        self.start = start
        self.blocks: list[Block] = [*model.blocks][int(start) :]  # type: ignore[list-item]
        self.norm, self.head = model.norm, model.head

    def forward(self, prompts: Prompts) -> Tensor:
        """Logits of the label words."""
        x = prompts.x
        for i, block in enumerate(self.blocks):
            only_last = i == len(self.blocks) - 1
            if i == 0 and self.start % 1:
                x = block.feed(x)
            else:
                x = block(prompts._replace(x=x), only_last)
        logits: Tensor = self.head(self.norm(x))
        return logits


def prompts_of(rows: list[list[int]], shape: Shape) -> Prompts:
    """Prompts of tokens, one after the other."""
    lengths = torch.tensor([len(row) for row in rows])
    owner = torch.repeat_interleave(torch.arange(len(rows)), lengths)
    position = torch.cat([torch.arange(len(row)) for row in rows])
    mask = (owner[:, None] == owner) & (position[:, None] >= position)
    size = shape.dim // shape.heads
    speed = 10000.0 ** (-torch.arange(0, size, 2) / size)
    angle = position[:, None] * speed
    table = torch.stack([angle.cos(), angle.sin()], -1)
    tokens = torch.tensor([token for row in rows for token in row])
    return Prompts(tokens, table, mask, lengths.cumsum(0) - 1)
