"""One row of the plan: a subset trained by a method, with its curve."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import cocd

from ..plans.llm import Row
from . import checkpoint, methods, questions, subsets
from .llama import Llama, Tail, padded
from .methods import Inputs
from .tokenizer import Tokenizer

BATCH = 16
_HELD = 50  # rows of a held-out pass
_POINTS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the evaluations: where it is judged
_DIVERGED = 20.0  # loss

Judged = tuple[float, float]  # loss, accuracy


class Materials:
    """The model and the rows, read once."""

    def __init__(self, model: Path, tokenizer: Path, trec: Path) -> None:
        self.shape, self.weights = checkpoint.read(model)
        words = Tokenizer(tokenizer, self.shape.vocabulary)
        self.questions = questions.load(trec, words)
        labels = questions.word_tokens(words)
        self.weights["head.weight"] = self.weights["embedding.weight"][labels].clone()
        self._cached: dict[tuple[str, float], Cached] = {}

    def model(self) -> Llama:
        """The model as it was trained, with a head for the label words."""
        model = Llama(self.shape, len(questions.WORDS))
        model.load_state_dict(self.weights)
        return model.eval()

    def rows(self, name: str, start: float) -> Cached:
        """Rows of a split, with what no subset changes that begins at `start`."""
        key = (name, start)
        if key not in self._cached:
            self._cached[key] = Cached(self.model(), getattr(self.questions, name), start)
        return self._cached[key]


class Cached:
    """Rows with the activations that training does not change."""

    def __init__(self, model: Llama, rows: questions.Rows, start: float) -> None:
        self.labels = torch.tensor(rows[1])
        tokens, self.mask = padded(rows[0], questions.LENGTH)
        parts = zip(tokens.split(_HELD), self.mask.split(_HELD), strict=True)
        self.start = start
        self.x = torch.cat([_below(model, *part, start) for part in parts])

    def batch(self, rows: list[int]) -> tuple[Inputs, Tensor]:
        """Inputs of `llama.Tail`, and labels."""
        x = self.x[rows]  # what comes after attention looks at one token of each prompt alone
        return (x,) if self.start % 1 else (x, self.mask[rows]), self.labels[rows]


@torch.no_grad()
def _below(model: Llama, tokens: Tensor, mask: Tensor, start: float) -> Tensor:
    """The activations at `start`."""
    x: Tensor = model.embedding(tokens)
    block: Any
    for block in list(model.blocks)[: int(start)]:
        x = block(x, mask)
    if start % 1:
        block = model.blocks[int(start)]
        x = block.attend(x, mask, only_last=True)
    return x


def train(row: Row, materials: Materials) -> dict[str, Any]:
    """The row's results."""
    torch.manual_seed(row.seed)
    model = materials.model()
    subset = subsets.choose(row.subset, model, row.seed)
    tail = Tail(model, subset.start)
    train, dev = (materials.rows(name, subset.start) for name in ("train", "dev"))
    method = methods.make(row.method, subset, tail, row.lr, row.evaluations, row.seed)
    batches = _Batches(train, row.seed)
    curve: list[dict[str, float]] = []
    seconds = 0.0

    def judge() -> None:
        (loss, _), (dev_loss, accuracy) = judged(tail, train), judged(tail, dev)
        found = {"loss": loss, "dev_loss": dev_loss, "dev": accuracy}
        place = {"evaluations": method.evaluations, "seconds": seconds}
        curve.append({name: round(value, 5) for name, value in {**place, **found}.items()})

    if not row.tuning:
        judge()
    how = "done"
    for part in _POINTS[-1:] if row.tuning else _POINTS:
        while method.evaluations < part * row.evaluations:
            inputs, labels = batches.next()
            began = process_time()
            try:
                method.step(inputs, labels)
            except cocd.NonFiniteLoss:
                how = "diverged"
                break
            seconds += process_time() - began
        judge()
        if how != "done" or not curve[-1]["loss"] < _DIVERGED:
            how = "diverged"
            break
    ended = how == "done" and not row.tuning  # test rows choose nothing
    test = judged(tail, materials.rows("test", subset.start))[1] if ended else None
    return {
        **row._asdict(),
        "n": sum(p.numel() for p in subset.parameters),
        "how": how,
        "seconds": round(seconds, 2),
        "loss": curve[-1]["loss"] if isfinite(curve[-1]["loss"]) else None,
        "dev": curve[-1]["dev"],
        "test": test,
        "curve": curve,
    }


@torch.no_grad()
def judged(tail: Tail, rows: Cached) -> Judged:
    """Mean loss and accuracy on all of the rows."""
    total, right = 0.0, 0
    for i in range(0, len(rows.labels), _HELD):
        inputs, labels = rows.batch(list(range(i, min(i + _HELD, len(rows.labels)))))
        logits = tail(*inputs)
        total += float(cross_entropy(logits, labels, reduction="sum"))
        right += int((logits.argmax(1) == labels).sum())
    return total / len(rows.labels), right / len(rows.labels)


class _Batches:
    """Permutations of the rows, one after the other."""

    def __init__(self, rows: Cached, seed: int) -> None:
        self.rows = rows
        self.order: list[int] = []
        self.generator = torch.Generator().manual_seed(seed)

    def next(self) -> tuple[Inputs, Tensor]:
        if len(self.order) < BATCH:
            self.order = torch.randperm(len(self.rows.labels), generator=self.generator).tolist()
        chosen, self.order = self.order[:BATCH], self.order[BATCH:]
        return self.rows.batch(chosen)
