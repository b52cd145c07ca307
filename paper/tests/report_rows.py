"""Rows for the tests of the report: made up, in the form that the runner writes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cocd_paper.report.read import read
from cocd_paper.report.sections import Section, sections
from cocd_paper.report.series import Series, group

Run = list[dict[str, Any]]
MACHINE = {"cpu": "Some CPU", "cores": 2, "threads": 2, "platform": "Linux"}
VERSIONS = {"cocd": "0.1.0", "torch": "2.13.0", "numpy": "2.0", "python": "3.11"}
SARCOS = {"lr": 1e-3, "decay": 1.0, "eps": 1.0, "compute_budget": 64, "weight_decay": 1e-4,
          "activation": "tanh"}  # fmt: skip
MNIST = {"lr": 1e-2, "decay": 0.99, "eps": 0.1, "compute_budget": 256, "weight_decay": 1e-4,
          "activation": "tanh"}  # fmt: skip
BCCD = {**SARCOS, "eps": 1e-6, "decay": 0.0}
STEPS = {"sarcos": 695, "mnist": 469, "cifar10": 391, "cifar10-resnet": 40}


def run_row(
    plan: str = "table-main",
    task: str = "sarcos",
    method: str = "cocd",
    label: str = "CoCD",
    **changes: Any,
) -> dict[str, Any]:
    row = {
        "row": "run", "schema": 1, "plan": plan, "task": task, "method": method, "label": label,
        "group": "", "vary": "", "split": "test", "smoke": False, "seed": 0, "settings": {},
        "epochs": 50, "steps_per_epoch": STEPS.get(task, 100), "parameters": 12727,
        "versions": VERSIONS, "machine": MACHINE,
        "command": f"cocd reproduce {plan} --data /home/someone/data",
        "started": "2026-01-02T03:04:05+00:00",
    }  # fmt: skip
    row.update(changes)
    identity = hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()
    row.setdefault("key", f"{method}-s{row['seed']}-{identity[:8]}")
    return row


def epoch_row(
    epoch: int,
    loss: float | None,
    metric: float | None = None,
    *,
    steps: int = 695,
    cost: int = 129,
    pace: float = 2.5,
    **more: Any,
) -> dict[str, Any]:
    return {
        "row": "epoch", "epoch": epoch, "step": epoch * steps,
        "evaluations": epoch * steps * cost, "seconds": epoch * pace,
        "train_loss": None if epoch == 0 else loss, "loss": loss,
        "metric": loss if metric is None else metric, **more,
    }  # fmt: skip


def end_row(last: dict[str, Any], status: str = "done", how: str = "") -> dict[str, Any]:
    keys = ("epoch", "step", "evaluations", "seconds")
    return {"row": "end", "status": status, "how": how, **{key: last[key] for key in keys}}


def lines(run: dict[str, Any], epochs: Run, end: str = "done", how: str = "") -> Run:
    rows = [run, *epochs]
    if end:
        rows.append(end_row(epochs[-1], end, how))
    return rows


def decay(
    start: float, final: float, epochs: int, wobble: float = 0.0, seed: int = 0, pace: float = 8.0
) -> Iterator[tuple[int, float]]:
    """A loss that falls from `start` to exactly `final`."""
    for epoch in range(epochs + 1):
        share = (math.exp(-epoch / pace) - math.exp(-epochs / pace)) / (
            1 - math.exp(-epochs / pace)
        )
        noise = wobble * math.sin(1.7 * epoch + seed) * share
        yield epoch, final + (start - final) * share * (1 + noise)


def training(
    run: dict[str, Any],
    final: float,
    *,
    start: float | None = None,
    done: int | None = None,
    end: str = "done",
    told: bool = False,
    **shape: Any,
) -> Run:
    """A run whose held-out metric ends at `final` (an accuracy if the task has one)."""
    accuracy = run["task"] != "sarcos"
    steps = run["steps_per_epoch"]
    rows = []
    for epoch, value in decay(0.1 if accuracy else 500.0, final, run["epochs"], seed=run["seed"],
                              **{"wobble": 0.1, **shape}):  # fmt: skip
        loss = 2.3 * (1.02 - value) if accuracy else value
        more: dict[str, Any] = {"coherence": told_at(epoch)} if told and epoch else {}
        rows.append(epoch_row(epoch, loss, value if accuracy else None, steps=steps, **more))
    rows = rows[: (run["epochs"] if done is None else done) + 1]
    return lines(run, rows, end)


def told_at(epoch: int) -> dict[str, Any]:
    tensors = {f"{i}.weight": {"correlation": 0.9 - 0.1 * i - 0.3 / epoch} for i in range(3)}
    return {
        "correlation": 0.8 - 0.4 / epoch,
        "relative_change": 0.3 + 1 / epoch,
        "age_mean": 199.0,
        "pairs": 695 * 64,
        "by_tensor": tensors,
    }


def write(folder: Path, rows: Run, *, flat: bool = False) -> Path:
    """Write one run in either layout; gives the file."""
    run = rows[0]
    name = f"{run['key']}.jsonl" if flat else f"{run['key']}/rows.jsonl"
    file = folder / str(run["plan"]) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    file.write_text(text, encoding="utf-8")
    return file


def series_of(folder: Path) -> list[Series]:
    """The series of all rows below the folder."""
    return group(read(folder).results)


def section_of(folder: Path, name: str) -> Section:
    """What the report says of one plan."""
    return {section.name: section for section in sections(read(folder).results)}[name]


def three_seeds(folder: Path) -> Path:
    """CoCD and BCCD on SARCOS, three seeds each, of ten epochs."""
    for seed, (ours, theirs) in enumerate([(25.0, 300.0), (26.0, 350.0), (30.0, 310.0)]):
        write(folder, training(run_row(settings=SARCOS, seed=seed, epochs=10), ours))
        rival = run_row(method="bccd", label="BCCD", settings=BCCD, seed=seed, epochs=10)
        write(folder, training(rival, theirs))
    return folder


def everything(folder: Path, epochs: int = 50) -> None:
    """Rows of all plans, in the paper's shape and with made-up values."""
    for rows in [*_main(epochs), *_figures(epochs), *_measures(), *_tuning()]:
        write(folder, rows)


def _main(epochs: int) -> Iterator[Run]:
    bccd = {**SARCOS, "eps": 1e-6, "decay": 0.0}
    sarcos = [
        ("cocd", "CoCD (paper's settings)", SARCOS, 25.9),
        ("cocd", "CoCD (tuned)", {**SARCOS, "lr": 0.02, "decay": 0.9}, 14.2),
        ("bccd", "BCCD (paper's settings)", bccd, 353.0),
        ("bccd", "BCCD (tuned)", {**bccd, "lr": 0.1, "eps": 0.1}, 13.1),
        ("random", "Random coordinates (tuned)", {"lr": 0.1, "eps": 0.1}, 21.0),
        ("spsa", "SPSA (tuned)", {"lr": 1e-3, "directions": 64}, 90.0),
        ("sgd", "SGD (oracle)", {"lr": 1e-3, "momentum": 0.9}, 1.84),
    ]
    for seed in range(3):
        for method, label, settings, final in sarcos:
            run = run_row(method=method, label=label, settings=settings, seed=seed, epochs=epochs)
            told = label == "CoCD (paper's settings)"
            yield training(run, final * (1 + 0.04 * (seed - 1)), told=told)
    mnist = [
        ("cocd", "CoCD (paper's settings)", MNIST, 0.957),
        ("bccd", "BCCD (paper's settings)", {**MNIST, "eps": 1e-6, "decay": 0.0}, 0.25),
        ("bccd", "BCCD (tuned)", {**MNIST, "lr": 0.5, "decay": 0.0}, 0.951),
        ("sgd", "SGD (oracle)", {"lr": 1e-2, "momentum": 0.9}, 0.99),
    ]
    for method, label, settings, final in mnist:
        run = run_row(task="mnist", method=method, label=label, settings=settings, epochs=epochs)
        yield training(run, final)
    run = run_row(
        task="mnist", method="zosgd", label="ZO-SGD (tuned)", settings={"lr": 1.0}, epochs=epochs
    )
    yield training(run, 0.6, done=9, end="diverged")
    run = run_row(task="cifar10", label="CoCD (paper's settings)", settings=MNIST | {
        "compute_budget": 1024, "weight_decay": 5e-4}, epochs=epochs)  # fmt: skip
    yield training(run, 0.44, done=12, end="")


def _figures(epochs: int) -> Iterator[Run]:
    for method, label in (("cocd", "CoCD"), ("bccd", "BCCD")):
        for i, eps in enumerate((1e-6, 1e-3, 1e-1, 1.0)):
            settings = {**SARCOS, "compute_budget": 256, "eps": eps}
            run = run_row("figure-smoothing", method=method, label=label, settings=settings,
                          vary="eps", epochs=epochs)  # fmt: skip
            yield training(run, 40.0 - 4 * i if method == "cocd" else 150.0 + 20 * i)
    groups = {
        "eps": ("eps", (1e-3, 1e-2, 1e-1, 1.0)),
        "gamma": ("decay", (0.0, 0.5, 0.9, 0.95, 0.99)),  # 1 is the default, made for "eps"
        "B": ("compute_budget", (1, 16, 256, 1024)),
        "M": ("memory_budget", (0.25, 0.5, 0.75)),
    }
    mnist = {**MNIST, "decay": 1.0, "eps": 1.0}
    for task, base in (("sarcos", SARCOS), ("mnist", mnist)):
        for panel, (vary, values) in groups.items():
            for i, value in enumerate(values):
                settings = {**base, "memory_budget": 1.0, vary: value}
                run = run_row("figure-ablation", task, settings=settings, group=panel, vary=vary,
                              epochs=epochs)  # fmt: skip
                yield training(run, 90.0 - 12 * i if task == "sarcos" else 0.7 + 0.05 * i)
    settings = {**SARCOS, "compute_budget": 1, "decay": 0.95}
    run = run_row("figure-ablation", settings=settings, group="stress", label="CoCD, B 1")
    yield training(run, 70.5)
    random = (
        ("cocd", "CoCD", 26.0, "done"),
        ("spsa", "SPSA", 80.0, "done"),
        ("zosgd", "ZO-SGD", 60.0, "diverged"),
    )
    for method, label, final, end in random:
        run = run_row(
            "figure-random", method=method, label=label, settings={"lr": 1e-3}, epochs=epochs
        )
        yield training(run, final, done=epochs // 2 if end == "diverged" else None, end=end)
    for gamma in (0.0, 0.5, 0.9, 0.95):
        run = run_row("figure-resnet", "cifar10-resnet", "cocd" if gamma else "bccd",
                      "CoCD" if gamma else "BCCD", settings={"decay": gamma, "lr": 0.1},
                      vary="decay", epochs=10)  # fmt: skip
        yield training(run, 0.15 + 0.1 * gamma)
    run = run_row(
        "adaptive", method="auto", label="Automatic", settings={"eps": 0.3}, epochs=epochs
    )
    yield training(run, 9.7)


def _measures() -> Iterator[Run]:
    for i, budget in enumerate((16, 32, 64, 128, 256, 512, 1024, 2048)):
        run = run_row("figure-error-bound", "error-bound", settings={"compute_budget": budget},
                      vary="compute_budget", epochs=1)  # fmt: skip
        error = 400.0 * 0.6**i
        told = {"row": "measure", "compute_budget": budget, "error": error, "bound": 90 * error}
        yield [run, told, end_row(epoch_row(1, 1.0))]
    for network, n in (("sarcos", 12727), ("mnist", 19654)):
        for method, label, state in (("cocd", "CoCD, M 1", 4 * n), ("cocd", "CoCD, M 0.25", n),
                                     ("mezo", "MeZO", 0), ("adam", "Adam", 8 * n)):  # fmt: skip
            run = run_row("table-memory", network, method, label, settings={}, epochs=1)
            yield [run, {"row": "measure", "parameters": n, "state_bytes": state,
                         "peak_bytes": state + 90_000}, end_row(epoch_row(1, 1.0))]  # fmt: skip


def _tuning() -> Iterator[Run]:
    for lr in (0.01, 0.05, 0.1):
        for gamma in (0.0, 0.5, 0.9):
            run = run_row("tune", label="CoCD", settings={**SARCOS, "lr": lr, "decay": gamma},
                          split="validation", epochs=5)  # fmt: skip
            if lr * gamma > 0.08:
                yield training(run, 30.0, done=1, end="diverged")
            else:
                yield training(run, 40.0 - 100 * lr - 10 * gamma)
    for lr in (0.05, 0.1):
        run = run_row("tune", method="bccd", label="BCCD", settings={**SARCOS, "lr": lr},
                      split="validation", epochs=5)  # fmt: skip
        yield training(run, 40.0 - 100 * lr)
