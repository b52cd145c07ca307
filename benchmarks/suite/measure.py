"""One run: a problem, a method, a rate and a seed give a row."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor, nn

import cocd

from .peers import build
from .problems import PROBLEMS, Loss

Row = dict[str, Any]
_HELD_OUT = 0.3  # of the rows of a problem
_TRACED = 300  # weights: for fewer the closure alone is faster; the numbers are the same


def row(problem: str, method: str, rate: float | None, seed: int, evaluations: int = 0) -> Row:
    """Losses over all training rows and over all others, at the start and at the end.

    A run that diverges (its loss is not finite, or its rate overflows) ends with infinite losses,
    which are None in a row.
    """
    task = PROBLEMS[problem]
    evaluations = evaluations or task.evaluations
    torch.manual_seed(seed)
    model, loss, x, y = task.make()
    cut = len(x) if len(x) < 10 else round((1 - _HELD_OUT) * len(x))
    train, rest = (x[:cut], y[:cut]), (x[cut:], y[cut:]) if cut < len(x) else (x, y)
    params = [p for p in model.parameters() if p.requires_grad]
    first, began = _loss(model, loss, train), time.perf_counter()
    spent, ended = 0, "done"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cocd.NonFiniteWarning)
        warnings.simplefilter("ignore", cocd.RadiusWarning)
        warnings.simplefilter("ignore", cocd.RestoreWarning)
        warnings.simplefilter("ignore", cocd.EngineWarning)
        optimizer = build(method, params, rate, seed, task.rough)
        many = sum(p.numel() for p in params) >= _TRACED and method not in ("SPSA", "MeZO")
        objective = cocd.trace(model, loss) if many else partial(_plain, model, loss)
        batches = _batches(train, task.batch, seed)
        try:
            while optimizer.evaluations < evaluations:
                optimizer.step(objective(*next(batches)))
        except cocd.NonFiniteLoss:
            ended = "diverged"
        spent = optimizer.evaluations
    losses = [_loss(model, loss, part) for part in (train, rest)]
    train_loss, held_out = (each if isfinite(each) and ended == "done" else inf for each in losses)
    return {
        "problem": problem,
        "held_out_problem": task.held_out,
        "n": sum(p.numel() for p in params),
        "method": method,
        "rate": rate,
        "seed": seed,
        "start": first,
        "train": train_loss if isfinite(train_loss) else None,
        "test": held_out if isfinite(held_out) else None,
        "evaluations": spent,
        "seconds": round(time.perf_counter() - began, 2),
    }


def _plain(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    return lambda: loss(model(x), y)


def _batches(rows: tuple[Tensor, Tensor], size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """All rows, or batches drawn without replacement, epoch by epoch."""
    x, y = rows
    generator = torch.Generator().manual_seed(seed)
    while True:
        if not 0 < size < len(x):
            yield x, y
            continue
        order = torch.randperm(len(x), generator=generator)
        for start in range(0, len(x) - size + 1, size):
            index = order[start : start + size]
            yield x[index], y[index]


@torch.no_grad()
def _loss(model: nn.Module, loss: Loss, rows: tuple[Tensor, Tensor]) -> float:
    """In evaluation mode; the model is put back into the mode it was in."""
    training = model.training
    model.eval()
    found = float(loss(model(rows[0]), rows[1]))
    model.train(training)
    return found
