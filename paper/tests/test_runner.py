"""Rows, divergence, failures, states: what a run does."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from cocd_paper import methods, reproduce, runner, tasks
from cocd_paper.plans import paper
from cocd_paper.runs import Run, Setting
from cocd_paper.store import Store, read_rows
from cocd_paper.training import Training


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small(method: str = "cocd", task: str = "sarcos", **own: Setting) -> Run:
    made = paper.make("table-main", task, method, method.upper(), own, epochs=2)
    return paper.shrink(made, epochs=2, steps_per_epoch=3)


class Quiet:
    """A watch that keeps the rows, and a wish that is never made."""

    asked = False

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def begin(self, run: Run, progress: runner.Progress) -> None:
        pass

    def step(self, run: Run, progress: runner.Progress, training: Training) -> None:
        pass

    def row(self, run: Run, row: dict[str, Any]) -> None:
        self.rows.append(row)


def perform(run: Run, folder: Path) -> list[dict[str, Any]]:
    store, quiet = Store(folder / run.key, run), Quiet()
    with store.held():
        runner.perform(run, store, data=None, header=reproduce.header(run), watch=quiet, stop=quiet)
    return read_rows(store.rows)


# --- rows ---------------------------------------------------------------------------------------


def test_the_rows_have_the_agreed_form(tmp_path: Path) -> None:
    first, *epochs, end = perform(small(), tmp_path)
    assert set(first) == {
        *("row", "schema", "plan", "key", "task", "method", "label", "group", "vary", "split"),
        *("smoke", "carry", "seed", "settings", "epochs", "steps_per_epoch", "parameters"),
        *("versions", "machine", "command", "started"),
    }
    assert (first["row"], first["schema"], first["parameters"]) == ("run", 1, 12727)
    assert set(first["versions"]) == {"cocd", "torch", "numpy", "python"}
    assert set(first["machine"]) == {"cpu", "cores", "threads", "platform"}
    assert [row["epoch"] for row in epochs] == [0, 1, 2]
    for row in epochs:
        assert set(row) == {
            *("row", "epoch", "step", "evaluations", "seconds", "train_loss", "loss", "metric")
        }
        assert row["metric"] == row["loss"]  # regression
    assert [row["step"] for row in epochs] == [0, 3, 6]
    assert [row["evaluations"] for row in epochs] == [0, 99, 198]  # B = 16: 33 a step
    assert epochs[0]["train_loss"] is None and epochs[0]["seconds"] == 0
    assert end["row"] == "end" and (end["status"], end["how"]) == ("done", "")
    assert (end["epoch"], end["step"], end["evaluations"]) == (2, 6, 198)
    assert end["best_metric"] == min(row["metric"] for row in epochs)


def test_a_budget_that_was_found_is_in_the_rows(tmp_path: Path) -> None:
    given = small("auto")
    own: dict[str, Setting] = {"compute_budget": "auto", "max_evaluations": 4000}
    run = Run.from_row({**given.to_row(), "settings": {**given.options, **own}})
    _, first, *epochs, end = perform(run, tmp_path)
    assert "compute_budget" not in first and end["evaluations"] >= 4000
    for row in epochs:  # n / 32 at first: it may have halved since
        assert row["compute_budget"] in (397, 198, 99, 64) and row["boldness"] == 1


def test_accuracy_is_the_metric_of_classification(tmp_path: Path) -> None:
    _, *epochs, end = perform(small("sgd", "mnist"), tmp_path)
    assert all(0 <= row["metric"] <= 1 for row in epochs)
    assert end["best_metric"] == max(row["metric"] for row in epochs)
    assert [row["evaluations"] for row in epochs] == [0, 3, 6]


def test_the_train_loss_is_the_mean_of_the_step_losses(tmp_path: Path) -> None:
    run = small("sgd")
    training = Training(run, tasks.load(run, None))
    losses = [training.step() for _ in range(6)]
    rows = perform(run, tmp_path)
    assert rows[2]["train_loss"] == sum(losses[:3]) / 3
    assert rows[3]["train_loss"] == sum(losses[3:]) / 3


def test_a_run_that_carries_tells_its_coherence(tmp_path: Path) -> None:
    run = replace(small(compute_budget=16), carry=True)
    plain, carried = perform(replace(run, carry=False), tmp_path), perform(run, tmp_path)
    assert "coherence" not in carried[1]  # before the first step there is nothing to tell
    for row, same in zip(carried[2:4], plain[2:4], strict=True):
        told = row.pop("coherence")
        assert told["steps"] == 3 and told["first"] + told["pairs"] == 48
        assert set(told["by_tensor"]["0.weight"]) == {"correlation", "relative_change"}
        assert {**row, "seconds": 0} == {**same, "seconds": 0}  # and the run stays the same


# --- divergence ---------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_is_a_result(tmp_path: Path) -> None:
    *_, end = perform(small("sgd", lr=1e30), tmp_path)
    assert end["status"] == "diverged" and end["how"].startswith("the loss of step 2 is")
    assert (end["epoch"], end["step"]) == (0, 2)


def test_a_step_that_cannot_be_taken_is_a_result(tmp_path: Path) -> None:
    *_, end = perform(small("cocd", lr=1e36), tmp_path)
    assert end["status"] == "diverged"
    assert end["how"].startswith(f"step {end['step'] + 1} could not be taken:")


def test_a_held_out_loss_out_of_all_bounds_is_a_result(tmp_path: Path) -> None:
    *_, last, end = perform(small("bccd", lr=1e6, eps=1.0), tmp_path)
    assert last["loss"] > 1e6 * 200
    assert end["status"] == "diverged" and "the held-out loss is" in end["how"]


# --- the plan goes on ---------------------------------------------------------------------------


def arguments(out: Path, **given: Any) -> argparse.Namespace:
    return argparse.Namespace(plan="table-main", out=out, data=None, **given)


def test_a_run_that_diverges_does_not_stop_the_plan(tmp_path: Path) -> None:
    chosen = [small("sgd", lr=1e30), small("sgd", lr=1e-3)]
    assert reproduce.perform_all(chosen, arguments(tmp_path)) == 0
    ends = [read_rows(tmp_path / "table-main" / run.key / "rows.jsonl")[-1] for run in chosen]
    assert [end["status"] for end in ends] == ["diverged", "done"]


def test_a_run_that_fails_does_not_stop_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = small("sgd", lr=1e-2), small("sgd", lr=1e-3)
    score = Training.score

    def failing(self: Training) -> tuple[float, float]:
        if self.run == bad:
            raise RuntimeError("out of order")
        return score(self)

    monkeypatch.setattr(Training, "score", failing)
    assert reproduce.perform_all([bad, good], arguments(tmp_path)) == 1
    told = capsys.readouterr()
    assert f"table-main/{bad.key} failed" in told.err and "out of order" in told.err
    assert "1 of 2 runs have ended" in told.out
    assert read_rows(tmp_path / "table-main" / good.key / "rows.jsonl")[-1]["status"] == "done"


def test_a_damaged_checkpoint_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small("sgd")
    folder = tmp_path / "table-main" / run.key
    folder.mkdir(parents=True)
    (folder / "checkpoint.pt").write_bytes(b"not one")
    assert reproduce.perform_all([run], arguments(tmp_path)) == 1
    told = capsys.readouterr().err
    assert "checkpoint.pt is damaged; delete" in told and "Traceback" not in told


@pytest.mark.parametrize(
    "state, said",
    [
        ({"progress": {"speed": 1.0}, "training": {}}, "unexpected keyword argument 'speed'"),
        ({"progress": {}, "training": {}}, "KeyError"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: dict[str, Any], said: str
) -> None:
    run = small("sgd")
    store = Store(tmp_path / "table-main" / run.key, run)
    store.folder.mkdir(parents=True)
    store.append({"row": "run"})
    store.save(state)
    assert reproduce.perform_all([run], arguments(tmp_path)) == 1
    told = capsys.readouterr().err
    assert said in told and "does not fit" in told and "to start this run again" in told
    assert "Traceback" not in told


def test_a_folder_in_the_place_of_rows_costs_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = small("sgd", lr=1e-3), small("sgd", lr=1e-2)
    (tmp_path / "table-main" / first.key / "rows.jsonl").mkdir(parents=True)
    assert reproduce.perform_all([first, second], arguments(tmp_path)) == 1
    told = capsys.readouterr()
    assert "rows.jsonl" in told.err and "Traceback" not in told.err
    assert "1 of 2 runs have ended" in told.out


def test_a_run_locked_by_another_process_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = small("sgd", lr=1e-3), small("sgd", lr=1e-2)
    store = Store(tmp_path / "table-main" / first.key, first)
    with store.held():
        assert reproduce.perform_all([first, second], arguments(tmp_path)) == 0
        assert "1 are being made by another process" in capsys.readouterr().out
        assert not store.finished()
    assert reproduce.perform_all([first, second], arguments(tmp_path)) == 0
    assert "2 of 2 runs have ended" in capsys.readouterr().out
    assert store.finished()


# --- a state covers everything ------------------------------------------------------------------


@pytest.mark.parametrize("method", list(methods.METHODS))
def test_a_state_continues_every_method_bit_for_bit(method: str) -> None:
    run = replace(small(method, schedule="cosine", weight_decay=1e-2), epochs=3)
    splits = tasks.load(run, None)
    whole = Training(run, splits)
    losses = [whole.step() for _ in range(8)]
    part = Training(run, splits)
    for _ in range(5):
        part.step()
    file = BytesIO()
    torch.save(part.state_dict(), file)
    other = Training(run, splits)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert [other.step() for _ in range(3)] == losses[5:]
    for mine, theirs in zip(other.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert other.evaluations == whole.evaluations


def test_engines_are_not_chosen_again() -> None:
    run = small()
    training = Training(run, tasks.load(run, None))
    training.step()
    assert training.objective is not None
    with pytest.warns(Warning, match="from now on"):
        training.objective._demote("2.weight", "disagrees")
    other = Training(run, tasks.load(run, None))
    other.load_state_dict(training.state_dict())
    assert other.objective is not None
    assert other.objective.engine_of("2.weight") == "batched"
    assert other.objective.engine_of("0.weight") == "incremental"
    assert other.objective._records["0.weight"].checked


def test_a_cosine_ends_at_zero() -> None:
    run = small("sgd", schedule="cosine")
    training = Training(run, tasks.load(run, None))
    rates = []
    for _ in range(6):
        rates.append(training.optimizer.param_groups[0]["lr"])
        training.step()
    lr = float(run.options["lr"])
    assert rates == pytest.approx([lr * (1 + math.cos(math.pi * k / 6)) / 2 for k in range(6)])
    assert training.optimizer.param_groups[0]["lr"] == pytest.approx(0)
