"""One row of the plan: a subset trained by a method, with its curve."""

from __future__ import annotations

from math import cos, inf, isfinite, pi
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import cocd

from ..plans.llm import Row
from . import checkpoint, methods, questions, subsets
from .llama import Llama, Start, Tail, below, padded
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
        self._cached: dict[tuple[str, Start], Cached] = {}

    def model(self) -> Llama:
        """The model as it was trained, with a head for the label words."""
        model = Llama(self.shape, len(questions.WORDS))
        model.load_state_dict(self.weights)
        return model.eval()

    def rows(self, name: str, start: Start) -> Cached:
        """Rows of a split, with what no subset changes whose model begins at `start`."""
        key = (name, start)
        if key not in self._cached:
            self._cached[key] = Cached(self.model(), getattr(self.questions, name), start)
        return self._cached[key]


class Cached:
    """Rows with the activations that training does not change."""

    def __init__(self, model: Llama, rows: questions.Rows, start: Start) -> None:
        self.labels = torch.tensor(rows[1])
        prompts = zip(*(t.split(_HELD) for t in padded(rows[0], questions.LENGTH)), strict=True)
        parts = [below(model, tokens, mask, start) for tokens, mask in prompts]
        self.inputs = [torch.cat(part) for part in zip(*parts, strict=True)]

    def batch(self, rows: list[int]) -> tuple[Inputs, Tensor]:
        """Inputs of `llama.Tail`, and labels."""
        return tuple(x[rows] for x in self.inputs), self.labels[rows]


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
        dev_loss, accuracy = judged(tail, dev)
        found = {"dev_loss": dev_loss, "dev": accuracy}
        if not row.tuning:
            found["loss"], _ = judged(tail, train)
        place = {"evaluations": method.evaluations, "seconds": seconds}
        curve.append({name: round(value, 5) for name, value in {**place, **found}.items()})

    if not row.tuning:
        judge()
    how = "done"
    for part in _POINTS[-1:] if row.tuning else _POINTS:
        while method.evaluations < part * row.evaluations:
            inputs, labels = batches.next()
            began = process_time()
            if row.schedule == "cosine":
                method.set_rate(row.lr * (1 + cos(pi * method.evaluations / row.evaluations)) / 2)
            try:
                method.step(inputs, labels)
            except cocd.NonFiniteLoss:
                how = "diverged"
                break
            seconds += process_time() - began
        judge()
        if how != "done" or not curve[-1]["dev_loss"] < _DIVERGED:
            how = "diverged"
            break
    ended = how == "done" and not row.tuning  # test rows choose nothing
    test = judged(tail, materials.rows("test", subset.start))[1] if ended else None
    loss = curve[-1].get("loss", inf)  # of the training rows, which tuning does not look at
    return {
        **row._asdict(),
        "n": sum(p.numel() for p in subset.parameters),
        "how": how,
        "seconds": round(seconds, 2),
        "loss": loss if isfinite(loss) else None,
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
