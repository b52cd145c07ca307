"""DeepZero's sparse estimator, and CoCD in its place, at equal evaluations.

A network with BatchNorm of about as many weights as DeepZero's small one, on CIFAR-10 with random
crops and mirrored images. Every gradient goes into SGD with momentum, a warm-up and a cosine, as in
DeepZero; its learning rates are tried on validation rows (group `rates`) and used on test rows
(group `methods`). ``--epochs`` sets the length: an epoch is `EVALUATIONS` evaluations.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..methods import OWN, cost
from ..runs import Run, Setting

NAME = "deepzero"
ABOUT = "sparse coordinate differences (DeepZero), CoCD in their place, random, AutoCoCD"
TASKS = ("cifar10-small",)
EPOCHS = 10
EVALUATIONS = 30_000  # of an epoch
TRIED = 1  # epochs of a run that chooses a rate

MASK = 1308  # coordinates that a sparsity of 0.9 leaves; biases and BatchNorm are kept whole
ALL = 11_910
SMALL = 128  # about a tenth of the mask
REDRAWS = 10  # in a run, as in DeepZero's 50 epochs with a mask for 5 of them

COMMON: dict[str, Setting] = {
    "augment": "crop and flip",
    "batch_size": 64,
    "dtype": "float32",
    "weight_decay": 5e-4,
}
DESCENT: dict[str, Setting] = {
    "stepper": "sgd",
    "momentum": 0.9,
    "schedule": "warm cosine",
    "eps": 5e-3,
    "difference": "forward",
}
MASKED: dict[str, Setting] = {"sparsity": 0.9, "ratios": "zo-grasp", "directions": 192}

# The rates that are tried; the one in front is used on test rows.
RATES: dict[str, tuple[float, ...]] = {
    "sparse": (0.1, 0.03, 0.3),
    "memory on the mask": (0.03, 0.003, 0.01, 0.1),
    "memory on all": (0.003, 0.01, 0.03, 0.1, 0.3),
    "random": (0.1, 0.03, 0.3, 1.0),
}

# label: the entry of `RATES`, whether masks are redrawn, and what else is its own
METHODS: dict[str, tuple[str, bool, dict[str, Setting]]] = {
    "Sparse CGE, redrawn (DeepZero)": (
        "sparse", True, {**MASKED, "compute_budget": MASK, "decay": 0.0}
    ),
    "Sparse CGE, static": ("sparse", False, {**MASKED, "compute_budget": MASK, "decay": 0.0}),
    "CGE of all": ("sparse", False, {"compute_budget": ALL, "decay": 0.0}),
    "CoCD on the mask, redrawn": (
        "memory on the mask", True, {**MASKED, "compute_budget": SMALL, "decay": 0.9}
    ),
    "CoCD on the mask, redrawn, forgetting": (
        "memory on the mask", True, {**MASKED, "compute_budget": SMALL, "decay": 0.9, "forget": 1}
    ),
    "CoCD on the mask, static": (
        "memory on the mask", False, {**MASKED, "compute_budget": SMALL, "decay": 0.9}
    ),
    "CoCD on all": ("memory on all", False, {"compute_budget": SMALL, "decay": 0.9}),
    "Random coordinates": (
        "random", False, {"compute_budget": SMALL, "decay": 0.0, "order": "random"}
    ),
}  # fmt: skip


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """The rates on validation rows, then every method on test rows."""
    tried = set[str]()
    for label, (entry, _, _) in METHODS.items():
        if entry not in tried:
            tried.add(entry)
            for lr in RATES[entry]:
                length = min(TRIED, epochs)
                yield make(task, label, lr, seed, length, group="rates", split="validation")
    for label, (entry, _, _) in METHODS.items():
        yield make(task, label, RATES[entry][0], seed, epochs, group="methods", split="test")
    automatic: dict[str, Setting] = {"compute_budget": OWN, "max_evaluations": epochs * EVALUATIONS}
    yield Run(
        NAME, task, "auto", "AutoCoCD", {**COMMON, **automatic}, seed, epochs,
        EVALUATIONS // 100, group="methods",
    )  # fmt: skip
    label = "UnitDescent (sees the losses of samples)"
    yield Run(
        NAME, task, "unit-descent", label, {**COMMON, **automatic, "weight_decay": 0.0}, seed,
        epochs, EVALUATIONS // 100, group="units",
    )  # fmt: skip


def make(
    task: str, label: str, lr: float, seed: int, epochs: int, *, group: str, split: str
) -> Run:
    """One method with one rate."""
    _, redrawn, own = METHODS[label]
    settings = {**COMMON, **DESCENT, **own, "lr": lr}
    per_epoch = max(1, round(EVALUATIONS / cost("coherent", settings)))
    if redrawn:
        sweeps = epochs * per_epoch * int(own["compute_budget"]) / MASK
        settings["redraw"] = max(1, round(sweeps / REDRAWS))
    vary = "lr" if group == "rates" else ""
    return Run(
        NAME, task, "coherent", label, settings, seed, epochs, per_epoch, group, vary, split
    )  # fmt: skip
