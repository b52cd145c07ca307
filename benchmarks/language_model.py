"""Probes of a language model, layer by layer, against its closure.

A Llama of 15 M random weights (6 layers of 288 units, hidden 768, 6 heads, vocabulary 32,000), with
adapters of rank 4 on the queries and values of every layer; 16 sequences of 24 tokens; the loss is
over six label words after the last token. Nothing is downloaded. Steps through `cocd.trace` and
through an ordinary closure take turns in one process; the result is the ratio of processor seconds
per evaluation, as a median over the turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import process_time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import cocd
from cocd import baselines

from . import report as output
from .report import Report, Row

TURNS = 5


@dataclass(frozen=True)
class Size:
    """Of the model and its batch; the default is stories15M's."""

    layers: int = 6
    width: int = 288
    hidden: int = 768
    heads: int = 6
    vocabulary: int = 32_000
    batch: int = 16
    tokens: int = 24
    rank: int = 4
    labels: int = 6


QUICK = Size(layers=2, width=32, hidden=64, heads=2, vocabulary=100, batch=4, tokens=6, rank=2)


class RMSNorm(nn.Module):
    """As Llama's code has it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (x.float() * scale).type_as(x) * self.weight


class Adapted(nn.Module):
    """A linear layer with a LoRA adapter, whose second factor is not zero, as in training."""

    def __init__(self, size: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(size, size, bias=False)
        self.a, self.b = nn.Linear(size, rank, bias=False), nn.Linear(rank, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.b(self.a(x))


class Block(nn.Module):
    """Rotary attention and a gated network, each behind a norm."""

    cos: Tensor
    sin: Tensor

    def __init__(self, size: Size) -> None:
        super().__init__()
        width, head = size.width, size.width // size.heads
        self.q, self.v = Adapted(width, size.rank), Adapted(width, size.rank)
        self.k, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, size.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(size.hidden, width, bias=False)
        self.before, self.between = RMSNorm(width), RMSNorm(width)
        self.head = head
        angles = torch.outer(torch.arange(size.tokens), 1e4 ** -(torch.arange(0, head, 2) / head))
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def _rotated(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-second, first], dim=-1) * self.sin

    def forward(self, x: Tensor) -> Tensor:
        h = self.before(x)
        q, k, v = (
            layer(h).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        q, k = self._rotated(q), self._rotated(k)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        h = self.between(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Logits of the label words behind the last token."""

    words: Tensor

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.table = nn.Embedding(size.vocabulary, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = RMSNorm(size.width)
        self.register_buffer("words", torch.arange(size.labels) * 7)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x)[:, -1], self.table.weight[self.words])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    size, turns = (QUICK, 2) if args.quick else (Size(), TURNS)
    rows = output.run(args, lambda report: language_model(size, turns=turns, report=report))
    columns = ["trained", "method", "coordinates", "closure, ms", "traced, ms", "ratio"]
    output.show(
        "language-model: one evaluation, and how many of them the time of the closure's holds",
        columns,
        [
            [
                row["trained"],
                row["method"],
                f"{row['coordinates']:,}",
                f"{1e3 * row['closure_seconds']:.2f}",
                f"{1e3 * row['traced_seconds']:.3f}",
                f"{row['ratio']:.1f}",
            ]
            for row in rows
        ],
        words=2,
    )
    return 0


def language_model(
    size: Size | None = None, *, turns: int = TURNS, report: Report = lambda *_: None
) -> list[Row]:
    """One row for each set of parameters and method."""
    size = size or Size()
    torch.manual_seed(0)
    model = Llama(size)
    tokens = torch.randint(size.vocabulary, (size.batch, size.tokens))
    target = torch.arange(size.batch) % size.labels
    subsets = _subsets(model)
    cases = [(name, "CoCD") for name in subsets]
    cases += [("last block", "MeZO"), ("last block", "MeZO, 8 directions")]
    rows = []
    for done, (name, method) in enumerate(cases):
        report(f"language-model: {method} on {name}", done / len(cases))
        rows.append(_compare(model, tokens, target, subsets[name], name, method, turns))
    report("language-model: done", 1.0)
    return rows


def _subsets(model: Llama) -> dict[str, list[Tensor]]:
    def adapters(block: Block) -> list[Tensor]:
        layers = (block.q.a, block.q.b, block.v.a, block.v.b)
        return [layer.weight for layer in layers]

    blocks = [module for module in model.blocks if isinstance(module, Block)]
    order = sorted({0, len(blocks) // 2, len(blocks) - 2, len(blocks) - 1})
    return {
        **{f"adapters of layer {i}": adapters(blocks[i]) for i in order},
        "network of the last layer": [blocks[-1].gate.weight, blocks[-1].down.weight],
        "last norm": [model.norm.weight],
        "last block": list(blocks[-1].parameters()),
    }


def _compare(
    model: Llama,
    tokens: Tensor,
    target: Tensor,
    chosen: list[Tensor],
    name: str,
    method: str,
    turns: int,
) -> Row:
    for p in model.parameters():
        p.requires_grad_(any(p is one for one in chosen))
    objective = cocd.trace(model, F.cross_entropy)
    traced = objective(tokens, target)

    def closure() -> Tensor:
        return F.cross_entropy(model(tokens), target)

    many = _steps(chosen, method, _budget(model, chosen[0]))
    few = _steps(chosen, method, 4)
    many(traced, len(chosen))  # checks, compilation, first allocations
    few(closure, 1)
    steps = 4 if method == "MeZO" else 1  # MeZO makes two evaluations per step
    pairs = [(many(traced, steps), few(closure, steps)) for _ in range(turns)]
    return {
        "trained": name,
        "method": method,
        "coordinates": sum(p.numel() for p in chosen),
        "traced_seconds": median(a for a, _ in pairs),
        "closure_seconds": median(b for _, b in pairs),
        "ratio": median(b / a for a, b in pairs),
        "turns": turns,
    }


def _budget(model: Llama, first: Tensor) -> int:
    """Coordinates per step: fewer below the last block, where a probe takes longer."""
    below = (p for block in list(model.blocks)[:-1] for p in block.parameters())
    return 16 if any(p is first for p in below) else 64


def _steps(
    chosen: list[Tensor], method: str, budget: int
) -> Callable[[Callable[[], Tensor], int], float]:
    """Take steps that change almost nothing, and return the seconds per evaluation."""
    optimizer: cocd.CoCD | baselines.MeZO
    if method.startswith("MeZO"):
        directions = 8 if method.endswith("directions") else 1
        optimizer = baselines.MeZO(chosen, lr=1e-12, eps=1e-3, directions=directions)
    else:  # by turns from every tensor
        budget = min(budget, sum(p.numel() for p in chosen))
        optimizer = baselines.RandomCoordinate(chosen, lr=1e-12, eps=1e-2, compute_budget=budget)

    def steps(closure: Callable[[], Tensor], count: int) -> float:
        before, started = optimizer.evaluations, process_time()
        for _ in range(count):
            optimizer.step(closure)
        return (process_time() - started) / (optimizer.evaluations - before)

    return steps
