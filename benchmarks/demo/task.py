"""What is learnt: scikit-learn's 8 x 8 handwritten digits, by a small tanh network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import cocd

BATCH = 64


class Rows(NamedTuple):
    """Images and their digits."""

    x: Tensor
    y: Tensor


class Task(NamedTuple):
    """Rows to learn from, and rows to be judged by."""

    train: Rows
    test: Rows


def digits(seed: int, *, validation: bool = False) -> Task:
    """The 1,797 digits, 70 % of them to learn from, scaled by what those alone show.

    With `validation` a fifth of the training rows stands in for the test rows: settings are
    chosen there, and the test rows of the same seed play no part in it.
    """
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, stratify=y, random_state=seed)
    if validation:
        x, x_test, y, y_test = train_test_split(x, y, test_size=0.2, stratify=y, random_state=seed)
    # One mean and one deviation for all pixels: some pixels are blank in every image.
    mean, deviation = x.mean(), x.std()

    def rows(images: Any, labels: Any) -> Rows:
        scaled = torch.as_tensor((images - mean) / deviation, dtype=torch.float32)
        return Rows(scaled.view(-1, 1, 8, 8), torch.as_tensor(labels, dtype=torch.int64))

    return Task(rows(x, y), rows(x_test, y_test))


def network(seed: int) -> nn.Sequential:
    """1,898 parameters. Tanh, because stale estimates make ReLU networks of this kind diverge."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 10),
        )


def objective(model: nn.Module) -> cocd.Objective:
    """The loss of `model` on a batch, as the closure that an optimizer's `step` takes."""
    return cocd.trace(model, cross_entropy)


def batches(rows: Rows, seed: int) -> Iterator[Rows]:
    """Shuffled batches without end, the same ones for every method."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(rows.y), generator=generator)
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            yield Rows(rows.x[chosen], rows.y[chosen])


@torch.no_grad()
def score(model: nn.Module, rows: Rows) -> tuple[float, float]:
    """Loss and accuracy."""
    logits = model(rows.x)
    accuracy = (logits.argmax(1) == rows.y).float().mean()
    return cross_entropy(logits, rows.y).item(), accuracy.item()


def describe(task: Task) -> dict[str, Any]:
    """What a reader of the results has to know about data and network."""
    model = network(0)
    return {
        "data": "scikit-learn digits, 8 x 8",
        "training_rows": len(task.train.y),
        "test_rows": len(task.test.y),
        "batch": BATCH,
        "network": [str(layer) for layer in model],
        "parameters": sum(p.numel() for p in model.parameters()),
    }
