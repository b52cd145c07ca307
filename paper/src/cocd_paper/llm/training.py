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
from .llama import Llama, Prompts, Tail, prompts_of
from .tokenizer import Tokenizer

BATCH = 16
_HELD = 50  # rows of a held-out pass
_POINTS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)  # of the evaluations: where it is judged
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

    def model(self) -> Llama:
        """The model as it was trained, with a head for the label words."""
        model = Llama(self.shape, len(questions.WORDS))
        model.load_state_dict(self.weights)
        return model.eval()


class Cached:
    """Rows with the activations that training does not change."""

    def __init__(self, model: Llama, rows: questions.Rows, start: float) -> None:
        self.tokens, self.labels = rows[0], torch.tensor(rows[1])
        self.start, self.shape = start, model.shape
        self.inputs: list[Tensor] = []
        with torch.no_grad():
            for i in range(0, len(self.tokens), _HELD):
                self.inputs += _below(model, self.tokens[i : i + _HELD], start)

    def batch(self, rows: list[int]) -> tuple[Prompts, Tensor]:
        """Inputs of `llama.Tail`, and labels."""
        x = torch.cat([self.inputs[i] for i in rows])
        if self.start % 1:  # what comes after attention looks at one token of each prompt alone
            nothing = torch.empty(0)
            return Prompts(x, nothing, nothing, nothing), self.labels[rows]
        prompts = prompts_of([self.tokens[i] for i in rows], self.shape)
        return prompts._replace(x=x), self.labels[rows]


def _below(model: Llama, rows: list[list[int]], start: float) -> list[Tensor]:
    """The activations at `start`, for every row."""
    prompts = prompts_of(rows, model.shape)
    prompts = prompts._replace(x=model.embedding(prompts.x))
    for block in model.blocks[: int(start)]:
        prompts = prompts._replace(x=block(prompts))
    if start % 1:
        block = model.get_submodule(f"blocks.{int(start)}")
        return list(block.attend(prompts, only_last=True)[:, None].unbind())  # type: ignore[operator]
    return list(torch.split(prompts.x, [len(row) for row in rows]))


def train(row: Row, materials: Materials) -> dict[str, Any]:
    """The row's results."""
    torch.manual_seed(row.seed)
    model = materials.model()
    subset = subsets.choose(row.subset, model, row.seed)
    rows = materials.questions
    tail = Tail(model, subset.start)
    train, dev = (Cached(model, part, subset.start) for part in (rows.train, rows.dev))
    method = methods.make(row.method, subset, row.lr, row.evaluations, row.seed)
    batches = _Batches(train, row.seed)
    curve: list[dict[str, float]] = []
    seconds = 0.0

    def judge() -> None:
        (loss, _), (dev_loss, accuracy) = judged(tail, train), judged(tail, dev)
        found = {"loss": loss, "dev_loss": dev_loss, "dev": accuracy}
        place = {"evaluations": method.evaluations, "seconds": seconds}
        curve.append({name: round(value, 5) for name, value in {**place, **found}.items()})

    judge()
    how = "done"
    for part in _POINTS:
        while method.evaluations < part * row.evaluations:
            prompts, labels = batches.next()
            began = process_time()
            try:
                method.step(lambda: cross_entropy(tail(prompts), labels))  # noqa: B023
            except cocd.NonFiniteLoss:
                how = "diverged"
                break
            seconds += process_time() - began
        judge()
        if how != "done" or not curve[-1]["loss"] < _DIVERGED:
            how = "diverged"
            break
    test = judged(tail, Cached(model, rows.test, subset.start))[1] if how == "done" else 0.0
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
        prompts, labels = rows.batch(list(range(i, min(i + _HELD, len(rows.labels)))))
        logits = tail(prompts)
        total += float(cross_entropy(logits, labels, reduction="sum"))
        right += int((logits.argmax(1) == labels).sum())
    return total / len(rows.labels), right / len(rows.labels)


class _Batches:
    """Permutations of the rows, one after the other."""

    def __init__(self, rows: Cached, seed: int) -> None:
        self.rows = rows
        self.order: list[int] = []
        self.generator = torch.Generator().manual_seed(seed)

    def next(self) -> tuple[Prompts, Tensor]:
        if len(self.order) < BATCH:
            self.order = torch.randperm(len(self.rows.labels), generator=self.generator).tolist()
        chosen, self.order = self.order[:BATCH], self.order[BATCH:]
        return self.rows.batch(chosen)
