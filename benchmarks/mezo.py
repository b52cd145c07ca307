"""A step of `cocd.baselines.MeZO` and of the published loop, on a Llama of stories15M's shape.

All weights but the embedding are trained, or all of them. Three implementations take turns:

- `cocd`: `cocd.baselines.MeZO`;
- `official`: each perturbation draws every tensor again and makes new ones (``p.data = p.data +
  ...``), four times per step, as the published trainer does;
- `in place`: the same with ``add_``, and with the final restoration merged into the update.

Weights are random: neither time nor memory depends on them. Memory is the peak of torch's own
tensors over a step, minus that of a forward pass, in units of the largest tensor that is trained.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
from cocd_paper.llm.checkpoint import Shape
from cocd_paper.llm.llama import Llama, padded
from cocd_paper.peak import peak_tensor_bytes
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cocd.baselines import MeZO

from . import report as output
from .report import Report, Row

STORIES = Shape(dim=288, hidden=768, layers=6, heads=6, kv_heads=6, vocabulary=32_000, length=256)
QUICK = Shape(dim=16, hidden=24, layers=2, heads=2, kv_heads=2, vocabulary=64, length=256)
LR, EPS = 1e-6, 1e-3
BATCH, TOKENS, LABELS = 16, 24, 6
ROUNDS = 15

Step = Callable[[], object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    shape, rounds = (QUICK, 2) if args.quick else (STORIES, ROUNDS)
    rows = output.run(args, lambda report: mezo(shape, rounds=rounds, report=report))
    output.show("A step of MeZO", *table(rows))
    return 0


def mezo(shape: Shape, *, rounds: int, report: Report = lambda *_: None) -> list[Row]:
    """A row for each way and for what is trained."""
    rows: list[Row] = []
    for embedding in (False, True):
        rows += _ways(shape, embedding, rounds, lambda share: report("mezo", share))
    return rows


def _ways(shape: Shape, embedding: bool, rounds: int, tell: Callable[[float], None]) -> list[Row]:
    torch.manual_seed(0)
    model = Llama(shape, LABELS)
    model.embedding.requires_grad_(embedding)
    parameters = [p for p in model.parameters() if p.requires_grad]
    prompts = padded(torch.randint(shape.vocabulary, (BATCH, TOKENS)).tolist(), TOKENS)
    labels = torch.randint(LABELS, (BATCH,))

    @torch.no_grad()
    def closure() -> Tensor:
        return cross_entropy(model(*prompts), labels)

    optimizer = MeZO(parameters, lr=LR, eps=EPS)
    steps: dict[str, Step] = {
        "cocd": lambda: optimizer.step(closure),
        "official": lambda: official_step(parameters, closure),
        "in place": lambda: in_place_step(parameters, closure),
    }
    times: dict[str, list[float]] = {name: [] for name in [*steps, "two evaluations"]}
    both: dict[str, Step] = {**steps, "two evaluations": lambda: (closure(), closure())}
    for step in both.values():
        step()
    for number in range(rounds):
        first = number % len(both)
        for name in [*both, *both][first : first + len(both)]:
            began = perf_counter()
            both[name]()
            times[name].append(perf_counter() - began)
        tell((number + 1) / rounds)
    forward = peak_tensor_bytes(closure)
    largest = max(p.nbytes for p in parameters)
    return [
        {
            "trained": "all" if embedding else "all but the embedding",
            "way": name,
            "seconds": median(times[name]),
            "ratio": median(
                mine / theirs for mine, theirs in zip(times[name], times["official"], strict=True)
            ),
            "extra": peak_tensor_bytes(step) - forward,
            "largest": largest,
        }
        for name, step in both.items()
    ]


@torch.no_grad()
def official_step(parameters: list[nn.Parameter], closure: Callable[[], Tensor]) -> None:
    """Perturb, perturb back twice as far, restore, update: four draws, each makes new tensors."""
    seed = int(torch.randint(2**31, ()))

    def perturb(scale: float) -> None:
        torch.manual_seed(seed)
        for p in parameters:
            z = torch.normal(mean=0, std=1, size=p.data.size(), dtype=p.data.dtype)
            p.data = p.data + scale * z * EPS

    perturb(1)
    up = closure()
    perturb(-2)
    down = closure()
    perturb(1)
    slope = float((up - down) / (2 * EPS))
    torch.manual_seed(seed)
    for p in parameters:
        z = torch.normal(mean=0, std=1, size=p.data.size(), dtype=p.data.dtype)
        p.data = p.data - LR * (slope * z)


@torch.no_grad()
def in_place_step(parameters: list[nn.Parameter], closure: Callable[[], Tensor]) -> None:
    """The least one can write by hand: three draws, weights restored to rounding."""
    seed = int(torch.randint(2**31, ()))

    def walk(by: float) -> None:
        generator = torch.Generator().manual_seed(seed)
        for p in parameters:
            p.add_(torch.randn(p.shape, generator=generator), alpha=by)

    walk(EPS)
    up = closure()
    walk(-2 * EPS)
    down = closure()
    walk(EPS - LR * float((up - down) / (2 * EPS)))


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and lines."""
    head = ["trained", "way", "ms per step", "beside official", "extra memory, largest tensors"]
    lines = [
        [
            row["trained"],
            row["way"],
            f"{1000 * row['seconds']:.0f}",
            f"{row['ratio']:.2f}",
            f"{row['extra'] / row['largest']:.2f}",
        ]
        for row in rows
    ]
    return head, lines
