"""Seconds to reach the paper's final score of CoCD: unit probes, CoCD, AutoCoCD and gradients.

Each method trains the paper's network of a task on its data, from the same weights and batches,
until the mean loss or the accuracy on held-out rows reaches that of the paper's CoCD after 50
epochs, or its time is over. Seconds are processor seconds without evaluations on held-out rows.
Unit probes see the losses of single samples and the layers' inputs, which the black-box methods
here do not.

With ``--json``, each method's row is written when it ends, and existing rows are not measured
again.

Memory is the peak of torch's own tensors over one step beyond that of a forward pass.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import process_time
from typing import Any

import torch
from cocd_paper import data as datasets
from cocd_paper import tasks
from cocd_paper.peak import peak_tensor_bytes
from cocd_paper.plans import paper
from torch import nn

import cocd

from . import report as output
from .report import Report, Row

TARGETS = {"sarcos": 31.18, "mnist": 0.9548, "cifar10": 0.4508}  # CoCD's in the paper's Table 2
BUDGETS = {"sarcos": 200_000, "mnist": 30_000, "cifar10": 300_000}  # evaluations of UnitDescent
RATE = 5e-3  # of AdamW; chosen on validation rows of SARCOS
LIMIT = 600.0  # seconds for each method
LOOKS = 0.1  # of its time so far a method trains before its score is looked at again


@dataclass
class Method:
    """A step on a batch, and how many evaluations have been made."""

    step: Callable[[Any, Any], object]
    evaluations: Callable[[], int]


def methods(
    model: nn.Module, task: tasks.Task, rate: float = RATE
) -> dict[str, Callable[[], Method]]:
    """Those that are compared; each is built on the model when its turn comes."""
    own = paper.COCD[task.name]
    decay = float(paper.COMMON[task.name]["weight_decay"])
    objective = cocd.trace(model, task.loss)

    def of(optimizer: Any) -> Method:
        return Method(
            lambda x, y: optimizer.step(objective(x, y)), lambda: int(optimizer.evaluations)
        )

    def units(directions: int | None) -> Method:
        gradient = cocd.UnitGradient(objective, directions=directions)
        adam = torch.optim.AdamW(model.parameters(), lr=rate)

        def step(x: Any, y: Any) -> None:
            gradient(objective(x, y))
            adam.step()

        return Method(step, lambda: gradient.evaluations)

    def backpropagation() -> Method:
        sgd = torch.optim.SGD(model.parameters(), lr=float(own["lr"]), momentum=0.9)
        steps = [0]

        def step(x: Any, y: Any) -> None:
            sgd.zero_grad()
            task.loss(model(x), y).backward()  # type: ignore[no-untyped-call]
            sgd.step()
            steps[0] += 1

        return Method(step, lambda: steps[0])

    return {
        "SGD, backpropagation": backpropagation,
        "UnitGradient + AdamW, directions": lambda: units(1),
        "UnitGradient + AdamW, all units": lambda: units(None),
        "UnitDescent": lambda: of(
            cocd.UnitDescent(objective, max_evaluations=BUDGETS[task.name])
        ),
        "AutoCoCD, traced": lambda: of(cocd.AutoCoCD(model.parameters())),
        "CoCD, traced": lambda: of(
            cocd.CoCD(
                model.parameters(), lr=float(own["lr"]), eps=float(own["eps"]),
                decay=float(own["decay"]), compute_budget=int(own["compute_budget"]),
                weight_decay=decay,
            )
        ),
    }  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is run, and for how long."""
    parser.add_argument("--task", choices=TARGETS, nargs="+", default=list(TARGETS))
    parser.add_argument("--method", metavar="TEXT", help="methods with this in their name alone")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each method (600)")
    parser.add_argument("--lr", type=float, default=RATE, help="of AdamW (%(default)s)")
    parser.add_argument("--split", choices=("test", "validation"), default="test")
    parser.add_argument("--data", type=Path, help="folder with the data sets (COCD_DATA)")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    limit = 1.0 if args.quick else args.limit

    def measure(report: Report) -> list[Row]:
        rows = _known(args.json)
        for task in args.task:
            done = {row["method"] for row in rows if row["task"] == task}
            chosen = [m for m in _names(task) if (args.method or "").lower() in m.lower()]
            for method in (m for m in chosen if m not in done):
                rows.append(race(task, method, limit, args))
                report(f"{task}, {method}", 1.0)
                if args.json:
                    output.write(rows, args.json)
        return rows

    rows = output.run(args, measure)
    output.show("Seconds to the paper's final score of CoCD", *table(rows), words=2)
    return 0


def _known(path: Path | None) -> list[Row]:
    """Rows of an earlier call."""
    text = path.read_text(encoding="utf-8") if path else ""
    rows: list[Row] = json.loads(text or "[]")
    return rows


def _names(task: str) -> list[str]:
    return list(methods(nn.Identity(), tasks.find(task)))


def race(name: str, method: str, limit: float, args: argparse.Namespace) -> Row:
    """The row of a method on a task."""
    task = tasks.find(name)
    if args.quick:
        splits = datasets.generated(task.dataset, 0, rows=256)
    else:
        splits = datasets.load(task.dataset, data=args.data, split=args.split, seed=0)
    torch.manual_seed(0)
    model = task.network(activation=nn.Tanh).train()
    built = methods(model, task, args.lr)[method]()
    return {"task": name, "method": method, **_train(task, model, built, splits, limit)}


def _train(
    task: tasks.Task, model: nn.Module, method: Method, splits: datasets.Splits, limit: float
) -> Row:
    size = int(paper.COMMON[task.name]["batch_size"])
    batches = tasks.Batches(splits.train_x, splits.train_y, size, 0, torch.float32)
    target, seconds, looked, steps = TARGETS[task.name], 0.0, 0.0, 0
    metric, reached = float("nan"), False
    while seconds < limit and not reached:
        x, y = batches.next()
        began = process_time()
        method.step(x, y)
        seconds += process_time() - began
        steps += 1
        if seconds > looked * (1 + LOOKS) + 0.05:
            looked = seconds
            metric = tasks.score(task, model, splits.held_x, splits.held_y)[1]
            reached = task.better(metric, target)
    x, y = batches.next()
    with torch.no_grad():
        forward = peak_tensor_bytes(lambda: model(x))
    return {
        "reached": reached,
        "seconds": seconds,
        "metric": metric if isfinite(metric) else None,
        "steps": steps,
        "evaluations": method.evaluations(),
        "extra": peak_tensor_bytes(lambda: method.step(x, y)) - forward,
    }


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and lines."""
    head = ["task", "method", "seconds", "score", "steps", "evaluations", "extra MiB"]
    lines = [
        [
            row["task"],
            row["method"],
            f"{row['seconds']:.1f}" if row["reached"] else f"not in {row['seconds']:.0f}",
            "–" if row["metric"] is None else f"{row['metric']:.4g}",
            f"{row['steps']:,}",
            f"{row['evaluations']:,}",
            f"{row['extra'] / 2**20:.1f}",
        ]
        for row in rows
    ]
    return head, lines
