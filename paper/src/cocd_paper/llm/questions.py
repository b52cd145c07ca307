"""TREC as prompts: `<question> It is a`, and a word for each of the six kinds of answer."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from .tokenizer import Tokenizer

WORDS = ("reason", "thing", "word", "person", "place", "number")  # as TREC numbers its classes
_PROMPT = "It is a"
_LONGEST = 20  # tokens of a question, the one that begins every text included
LENGTH = _LONGEST + 3  # tokens of a prompt
_SPLIT_SEED = 0

Rows = tuple[list[list[int]], list[int]]  # tokens of every prompt, and its label


class Questions(NamedTuple):
    """Rows that train, rows that choose settings, and rows that judge."""

    train: Rows
    dev: Rows
    test: Rows


def load(folder: Path, tokenizer: Tokenizer, train: int = 512, dev: int = 500) -> Questions:
    """Training and development rows are drawn from the training file, once for all seeds."""
    tokens, labels = _read(folder / "TREC.train.all", tokenizer)
    generator = torch.Generator().manual_seed(_SPLIT_SEED)
    order = torch.randperm(len(labels), generator=generator).tolist()

    def some(chosen: list[int]) -> Rows:
        return [tokens[i] for i in chosen], [labels[i] for i in chosen]

    test = _read(folder / "TREC.test.all", tokenizer)
    return Questions(some(order[:train]), some(order[train : train + dev]), test)


def _read(path: Path, tokenizer: Tokenizer) -> Rows:
    prompt = tokenizer(_PROMPT, begin=False)
    rows: list[list[int]] = []
    labels: list[int] = []
    for line in path.read_text(encoding="latin-1").splitlines():
        label, _, question = line.partition(" ")
        rows.append(tokenizer(question)[:_LONGEST] + prompt)
        labels.append(int(label))
    return rows, labels


def word_tokens(tokenizer: Tokenizer) -> list[int]:
    """The token of each label word."""
    found = [tokenizer(word, begin=False) for word in WORDS]
    if long := [word for word, tokens in zip(WORDS, found, strict=True) if len(tokens) != 1]:
        raise ValueError(f"label words must be single tokens, {', '.join(long)} is not")
    return [tokens[0] for tokens in found]
