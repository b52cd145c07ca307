"""The command: plan, resume, and show the table of existing rows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from math import log10
from pathlib import Path
from typing import NamedTuple

import torch

from .measure import Row, row
from .peers import FIRST_RATE, LARGEST, PEERS, SMALLEST
from .problems import PROBLEMS
from .table import markdown, score

SEEDS = (0, 1, 2)
ROWS = Path(__file__).with_name("rows.jsonl")


class Run(NamedTuple):
    """The fields that identify a run and its row."""

    problem: str
    method: str
    rate: float | None
    seed: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=Path, default=ROWS, help="to resume from and add to")
    parser.add_argument("--method", action="append", choices=("AutoCoCD", *PEERS))
    parser.add_argument("--problem", action="append", choices=tuple(PROBLEMS))
    parser.add_argument("--table", action="store_true", help="show what is there, run nothing")


def run(args: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    rows = load(args.rows)
    names = args.problem or list(PROBLEMS)
    methods = args.method or ["AutoCoCD", *PEERS]
    if args.quick:
        names, methods = names[:2], methods[:2]
    for name in [] if args.table else names:
        for method in methods:
            while todo := next(iter(missing(rows, name, method)), None):
                found = row(*todo, evaluations=200 if args.quick else 0)
                rows.append(found)
                if not args.quick:
                    with args.rows.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(found, allow_nan=False) + "\n")
                if not args.quiet:
                    print(name, method, todo.rate, todo.seed, found["train"], flush=True)
    print(markdown(rows))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


def load(path: Path) -> list[Row]:
    """The rows of earlier runs."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def missing(rows: Sequence[Row], problem: str, method: str) -> Iterator[Run]:
    """The runs still to do: the first seed chooses the rate, the other seeds use the best one."""
    own = {
        (r["rate"], r["seed"]): r for r in rows if (r["problem"], r["method"]) == (problem, method)
    }
    if method == "AutoCoCD":
        wanted: list[tuple[float | None, int]] = [(None, seed) for seed in SEEDS]
    else:
        found = {rate: score(row) for (rate, seed), row in own.items() if seed == SEEDS[0]}
        rate = next_rate(found)
        if rate is None:
            best = min(found, key=lambda each: found[each])
            wanted = [(best, seed) for seed in SEEDS[1:]]
        else:
            wanted = [(rate, SEEDS[0])]
    yield from (Run(problem, method, *each) for each in wanted if each not in own)


def next_rate(found: dict[float, float]) -> float | None:
    """Rates by tens, until both neighbours of the best are worse; then a third and three times.

    >>> next_rate({}), next_rate({0.01: 1.0}), next_rate({0.01: 1.0, 0.001: 2.0})
    (0.01, 0.001, 0.1)
    >>> next_rate({0.01: 1.0, 0.001: 2.0, 0.1: 0.5})
    1.0
    >>> tens = {0.01: 1.0, 0.001: 2.0, 0.1: 3.0}
    >>> next_rate(tens), next_rate({**tens, 0.00333: 1.0}), next_rate({**tens, 0.00333: 1, 0.03: 1})
    (0.00333, 0.03, None)
    """
    tens = {rate: loss for rate, loss in found.items() if log10(rate).is_integer()}
    if not tens:
        return FIRST_RATE
    for factors, near in (((0.1, 10), tens), ((1 / 3, 3), tens)):
        best = min(near, key=lambda rate: near[rate])
        for factor in factors:
            rate = float(f"{best * factor:.3g}")
            if rate not in found and SMALLEST <= rate <= LARGEST:
                return rate
    return None
