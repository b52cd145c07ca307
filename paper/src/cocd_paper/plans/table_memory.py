"""What a method needs beside the weights: optimizer state and the peak of a step."""

from __future__ import annotations

from collections.abc import Iterator

from ..runs import Run, Setting

NAME = "table-memory"
ABOUT = "optimizer state and peak memory of a step: CoCD, MeZO, SGD and Adam on four networks"
TASKS = ("sarcos", "mnist", "cifar10-resnet", "wide-mlp")
SMOKE_TASKS, SMOKE_METHODS = ("sarcos",), ("cocd", "adam")  # a process each
EPOCHS = 0

BATCH = {"sarcos": 64, "mnist": 128, "cifar10-resnet": 128, "wide-mlp": 64}
BUDGET = {"sarcos": 64, "mnist": 256, "cifar10-resnet": 64, "wide-mlp": 64}
COCD: dict[str, Setting] = {"lr": 1e-4, "eps": 0.01, "decay": 0.99}
# One evaluation at a time: memory does not depend on how many there are.
ONE_BY_ONE: dict[str, Setting] = {**COCD, "compute_budget": 4, "engine": "closure"}
METHODS: tuple[tuple[str, str, dict[str, Setting]], ...] = (
    ("cocd", "CoCD, M = 1 (traced)", {**COCD, "memory_budget": 1.0}),
    ("cocd", "CoCD, M = 0.25 (traced)", {**COCD, "memory_budget": 0.25}),
    ("cocd", "CoCD, M = 1 (closure)", {**ONE_BY_ONE, "memory_budget": 1.0}),
    ("cocd", "CoCD, M = 0.25 (closure)", {**ONE_BY_ONE, "memory_budget": 0.25}),
    ("mezo", "MeZO", {"lr": 1e-6, "eps": 1e-3, "directions": 1}),
    ("sgd", "SGD with momentum, backpropagation", {"lr": 1e-4, "momentum": 0.9}),
    ("adam", "Adam, backpropagation", {"lr": 1e-4}),
)


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """One measurement for each method; there is nothing to train."""
    for method, label, own in METHODS:
        activation = "relu" if task == "cifar10-resnet" else "tanh"
        settings: dict[str, Setting] = {"activation": activation, "dtype": "float32"}
        settings["batch_size"] = BATCH[task]
        if method == "cocd":
            settings["compute_budget"] = BUDGET[task]
        settings.update(own)
        yield Run(NAME, task, method, label, settings, seed, 0, 0)
