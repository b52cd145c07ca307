"""AutoCoCD: does it diverge, what does it learn from each query, what does each part do?

Groups: `queries`, the paper's number of evaluations on each task; `defaults`, the same with nothing
set at all; `robust`, these defaults on many networks at a tenth of it; `batches`, on larger batches
at as many evaluations; `lr`, a first length that is wrong by ten; `budget`, fixed budgets beside
the one that it finds; `ablation`, on validation rows and at a fixed budget. docs/adaptive.md says
how the defaults were chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ..methods import AUTOMATIC_BUDGET, OWN, WITHOUT
from ..runs import Run, Setting
from . import paper

NAME = "adaptive"
ABOUT = "AutoCoCD beside CoCD: equal evaluations, many networks, ablation"
TASKS = ("sarcos", "mnist", "cifar10")
EPOCHS = paper.EPOCHS

# What AutoCoCD finds by itself on SARCOS; on the CNNs the paper's.
_BUDGETS: dict[str, int] = {"sarcos": AUTOMATIC_BUDGET, "mnist": 256, "cifar10": 1024}


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """All groups of one task."""
    yield from _queries(task, seed, epochs)
    yield _auto(task, "AutoCoCD (defaults)", "defaults", {"compute_budget": OWN}, seed, epochs)
    tenth = max(1, epochs // 10)
    if task != "cifar10":
        yield from _robust(task, seed, tenth)
        yield from _first_lengths(task, seed, tenth)
    yield from _budgets(task, seed, tenth)
    if task == "sarcos":
        yield from _batches(seed, epochs)
        yield from _ablation(seed, tenth)


def _auto(
    task: str, label: str, group: str, own: dict[str, Setting], seed: int, epochs: int, **rest: str
) -> Run:
    own = {"compute_budget": _BUDGETS[task], **own}
    return paper.make(NAME, task, "auto", label, own, seed=seed, epochs=epochs, group=group, **rest)


def _queries(task: str, seed: int, epochs: int) -> Iterator[Run]:
    for activation in ("tanh", "silu"):
        own: dict[str, Setting] = {"activation": activation}
        yield _auto(task, f"AutoCoCD ({activation})", "queries", own, seed, epochs)


def _robust(task: str, seed: int, epochs: int) -> Iterator[Run]:
    networks: list[tuple[str, dict[str, Setting]]] = [
        (f"{activation} network", {"activation": activation}) for activation in ("tanh", "relu")
    ]
    if task == "sarcos":
        choices = product(("tanh", "relu", "gelu"), ("standardised", "raw"), (60, 30, 120))
        networks = [
            (
                f"{activation}, {inputs} inputs, {width} units",
                {"activation": activation, "inputs": inputs, "width": width},
            )
            for activation, inputs, width in choices
        ]
    for where, own in networks:
        own_too: dict[str, Setting] = {**own, "compute_budget": OWN}
        yield _auto(task, f"AutoCoCD ({where})", "robust", own_too, seed, epochs)
        yield paper.make(
            NAME, task, "cocd", f"CoCD (paper's settings; {where})", own, seed=seed,
            epochs=epochs, group="robust",
        )  # fmt: skip


def _first_lengths(task: str, seed: int, epochs: int) -> Iterator[Run]:
    for lr in (0.1, 1.0, 10.0):
        own: dict[str, Setting] = {"lr": lr, "compute_budget": OWN}
        yield _auto(task, f"AutoCoCD (lr {lr:g})", "lr", own, seed, epochs, vary="lr")


def _budgets(task: str, seed: int, epochs: int) -> Iterator[Run]:
    rest: dict[str, Setting] = {}
    where = ""
    if task == "sarcos":  # on the paper's network it is the same
        rest, where = {"width": 120}, "120 units, "
    fixed = dict.fromkeys((AUTOMATIC_BUDGET, _BUDGETS[task]))
    named: list[tuple[str, Setting]] = [("found", OWN), *((f"= {B:,}", B) for B in fixed)]
    for how, B in named if task != "cifar10" else named[:1]:  # where a small one takes hours
        own: dict[str, Setting] = {**rest, "compute_budget": B}
        yield _auto(task, f"AutoCoCD ({where}B {how})", "budget", own, seed, epochs)


def _batches(seed: int, epochs: int) -> Iterator[Run]:
    for size in (128, 256):
        own: dict[str, Setting] = {"compute_budget": OWN, "batch_size": size}
        yield _auto("sarcos", f"AutoCoCD (batches of {size})", "batches", own, seed, epochs)


def _ablation(seed: int, epochs: int) -> Iterator[Run]:
    held = {"split": "validation"}
    yield _auto("sarcos", "AutoCoCD", "ablation", {}, seed, epochs, **held)
    for part in WITHOUT:
        own: dict[str, Setting] = {"without": part}
        if part == "curvature":  # slopes are divided by a hundred times as much: so much longer
            own["lr"] = WITHOUT[part]["damping"]
        yield _auto("sarcos", f"without {part}", "ablation", own, seed, epochs, **held)
    for budget in (16, 32, 128, 256):
        own = {"compute_budget": budget}
        yield _auto("sarcos", f"B = {budget}", "ablation", own, seed, epochs, **held)
    for budget in (16, 64):
        own = {"order": "cyclic", "compute_budget": budget}
        yield _auto("sarcos", f"cyclic order, B = {budget}", "ablation", own, seed, epochs, **held)
    for eps in (0.1, 1.0):
        yield _auto("sarcos", f"eps = {eps:g}", "ablation", {"eps": eps}, seed, epochs, **held)
