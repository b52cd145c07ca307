"""How far CoCD's estimate is from the finite-difference gradient, for budgets of 16 to 2048."""

from __future__ import annotations

from collections.abc import Iterator

from ..runs import Run, Setting

NAME = "figure-error-bound"
ABOUT = "error of the estimate over B on a network of 4k parameters, with the theorem's bound"
TASKS = ("error-bound",)
EPOCHS = 10
STEPS = 100
BUDGETS = (16, 32, 64, 128, 256, 512, 1024, 2048)
BATCH = 256

# Gamma 1 and all of memory, as the theorem has it. The theorem is about one fixed objective, so
# one batch is used throughout; the paper's training draws batches, which the second group does.
SETTINGS: dict[str, Setting] = {
    "lr": 1e-4,
    "eps": 1.0,
    "decay": 1.0,
    "memory_budget": 1.0,
    "weight_decay": 0.0,
    "activation": "tanh",
    "dtype": "float64",
}
GROUPS = (("fixed batch", BATCH), ("mini-batches", 64))


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """A run for each budget, on one batch and on batches that change; an error for each epoch."""
    for group, batch in GROUPS:
        for budget in BUDGETS:
            settings = {**SETTINGS, "batch_size": batch, "compute_budget": budget}
            label = f"CoCD ({group})"
            vary = "compute_budget"
            yield Run(NAME, task, "cocd", label, settings, seed, epochs, STEPS, group, vary)
