"""``cocd-paper llm``: fine-tune stories15M on TREC by forward passes; one JSON line a run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..plans import llm as plan
from ..plans.llm import Pair, Row
from .table import best, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--model", type=Path, help="a llama2.c checkpoint, such as stories15M.bin")
    parser.add_argument("--tokenizer", type=Path, help="its tokenizer.bin")
    parser.add_argument("--trec", type=Path, help="the folder of TREC.train.all and TREC.test.all")
    parser.add_argument("--rows", type=Path, default=Path("llm.jsonl"), help="%(default)s")
    parser.add_argument("--subset", nargs="+", choices=plan.SUBSETS, default=[*plan.SUBSETS])
    parser.add_argument("--method", nargs="+", choices=plan.METHODS, default=[*plan.METHODS])
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--schedule",
        choices=plan.SCHEDULES,
        help="schedule of the learning rate; by default cosine for Adam, constant for the others",
    )
    parser.add_argument("--evaluations", type=int, default=plan.EVALUATIONS)
    parser.add_argument("--table", action="store_true", help="show existing rows; run nothing")
    parser.add_argument("--figure", type=Path, help="draw the curves as SVG")


def run(args: argparse.Namespace) -> int:
    """Make the rows that are not there yet, one after the other; then show them."""
    rows = read(args.rows)
    if not args.table:
        if missing := [f"--{n}" for n in ("model", "tokenizer", "trec") if not getattr(args, n)]:
            print(f"cocd-paper: llm needs {' and '.join(missing)}")
            return 2
        from .training import Materials, train

        torch.set_num_threads(1)
        materials = Materials(args.model, args.tokenizer, args.trec)

        def make(row: Row) -> None:
            if row.key not in rows:
                rows[row.key] = found = train(row, materials)
                with args.rows.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                said = f"{found['how']}, dev {found['dev']}, {found['seconds']} s"
                print(f"{row.key}: {said}", flush=True)

        for pair in plan.pairs(args.subset, args.method, args.evaluations, args.schedule):
            make_pair(pair, args.seed, rows, make)
    print(table(list(rows.values())))
    if args.figure:
        from .figure import draw

        draw(list(rows.values()), args.subset, args.figure)
    return 0


def make_pair(
    pair: Pair, seeds: list[int], rows: dict[str, dict[str, Any]], make: Callable[[Row], None]
) -> None:
    """Choose the learning rate, then run at that one."""
    lr = 0.0 if pair.method in plan.WITHOUT_RATE else choose_rate(pair, rows, make)
    for row in pair.runs(lr, seeds):
        make(row)


def choose_rate(pair: Pair, rows: dict[str, dict[str, Any]], make: Callable[[Row], None]) -> float:
    """The best of the grid and of the two beside it.

    The search begins with the middle of the grid and adds rates while the best is at an edge of
    what was tried.
    """
    tried: dict[float, dict[str, Any]] = {}

    def attempt(*rates: float) -> float:
        for row in pair.tuning(rates):
            make(row)
            tried[row.lr] = rows[row.key]
        lr: float = best([*tried.values()])["lr"]
        return lr

    middle = len(plan.GRID) // 2
    lr = attempt(*plan.GRID[middle - 1 : middle + 1])
    while missing := [rate for rate in plan.neighbours(lr) if rate not in tried]:
        lr = attempt(*missing)
    return attempt(*plan.between(lr))


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The rows there are, by their keys."""
    if not path.exists():
        return {}
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return {Row(**{n: row[n] for n in Row._fields if n in row}).key: row for row in found}
