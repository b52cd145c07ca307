"""Tuning: validation rows alone, small grids, and the best of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cocd_paper import best, plans, tasks
from cocd_paper.cli import main
from cocd_paper.plans import paper, tune
from cocd_paper.plans.tuned import TUNED
from cocd_paper.runs import Setting
from cocd_paper.store import Store


def test_tuning_never_asks_for_test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(name: str = "sarcos", *, split: str, seed: int, **_: Any) -> Any:
        asked.append((split, seed))
        return None

    monkeypatch.setattr(tasks.datasets, "load", load)
    monkeypatch.setattr(tasks.datasets, "sarcos", load)
    tasks._load.cache_clear()
    for run in plans.generate("tune", seeds=(0, 1, 2)):
        tasks.load(run, None)
    assert asked and set(asked) == {("validation", 0)}  # one split, whatever the seed
    asked.clear()
    for plan in plans.PLANS:
        for run in plans.generate(plan, seeds=(0, 1, 2)):
            if tasks.find(run.task).dataset:  # one network has none
                tasks.load(run, None)
                assert asked[-1] == (run.split, 0)
    tasks._load.cache_clear()


def test_grids_are_small() -> None:
    sizes = {
        (task, entry): len(grid)
        for task, grids in tune.GRIDS.items()
        for entry, grid in grids.items()
    }
    assert max(sizes.values()) <= 12
    assert {task for task, _ in sizes} == set(tune.TASKS)


def test_the_best_settings_are_those_of_the_validation_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def made(lr: float, seed: int, metric: float | None, **change: Any) -> None:
        own: dict[str, Setting] = {"lr": lr, "eps": 0.1}
        rest = {"seed": seed, "split": "validation", "group": "bccd", "epochs": 5, **change}
        run = paper.make("tune", change.pop("task", "sarcos"), "bccd", "BCCD", own, **rest)
        store = Store(tmp_path / "tune" / run.key, run)
        store.folder.mkdir(parents=True)
        store.append({"row": "run", "key": run.key, **run.to_row()})
        store.append({"row": "epoch", "epoch": 1, "metric": metric})
        store.append({"row": "end", "status": "diverged" if metric is None else "done"})

    made(0.05, 0, 30.0)
    made(0.05, 1, 30.0)
    made(0.1, 0, 20.0)
    made(0.1, 1, 50.0)  # a mean of 35
    made(0.2, 0, 10.0)
    made(0.2, 1, None)  # diverged with one of the seeds
    made(0.5, 0, 1.0, split="test")  # not what settings are chosen by
    made(0.1, 2, 1.0, epochs=1)  # nor runs of another length
    made(0.1, 3, 1.0, group="of another time")  # nor those of a grid that is no more
    assert main(["reproduce", "tune", "--best", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed.replace("'", '"')) == {"sarcos": {"bccd": {"eps": 0.1, "lr": 0.05}}}


def test_the_best_of_a_shorter_grid_is_found_among_equal_lengths(tmp_path: Path) -> None:
    # Equal accuracies: the loss decides; and the longer of two lengths.
    for eps, epochs, metric, loss in (
        (1e-6, 2, 0.2, 2.1), (1e-3, 2, 0.2, 2.0), (0.1, 2, 0.1, 1.0), (0.1, 1, 0.9, 0.1)
    ):  # fmt: skip
        own: dict[str, Setting] = {"dtype": "float64", "eps": eps}
        run = paper.make(
            *("tune", "cifar10", "bccd", "BCCD", own),
            **{"seed": 0, "split": "validation", "group": "bccd-float64", "epochs": epochs},
        )
        store = Store(tmp_path / "tune" / run.key, run)
        store.folder.mkdir(parents=True)
        store.append({"row": "run", "key": run.key, **run.to_row()})
        store.append({"row": "epoch", "epoch": epochs, "metric": metric, "loss": loss})
        store.append({"row": "end", "status": "done"})
    assert best.choose(tmp_path) == {"cifar10": {"bccd-float64": {"dtype": "float64", "eps": 1e-3}}}


def test_the_tuned_settings_are_those_of_the_committed_rows() -> None:
    folder = Path(__file__).parents[2] / "results" / "tune"
    if not folder.exists():
        pytest.skip("the rows are in the repository, not in the package")
    chosen = best.choose(folder)
    assert {task: chosen.get(task, {}) for task in TUNED} == TUNED


def test_without_rows_there_is_no_best(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "tune", "--smoke", "--only", "ZO-SGD", "--out", str(tmp_path)]) == 0
    assert main(["reproduce", "tune", "--best", "--out", str(tmp_path)]) == 2
    assert "--best: no run of tune has ended below" in capsys.readouterr().err


def test_best_is_for_tuning_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "table-main", "--best", "--out", str(tmp_path)]) == 2
    assert "--best is for the plan tune" in capsys.readouterr().err
