"""Tasks, methods, steps, rows, divergence: what a run does."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch

from cocd import data
from cocd._experiments import methods, plans, reproduce, runner, tasks
from cocd._experiments.plans import paper, tune
from cocd._experiments.runs import Run, Setting
from cocd._experiments.store import Store, read_rows
from cocd._experiments.training import Training


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small(method: str = "cocd", task: str = "sarcos", **own: Setting) -> Run:
    made = paper.make("table-main", task, method, method.upper(), own)
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
        runner.perform(
            run, store, data=None, header=reproduce.header(run), watch=quiet, stop=quiet
        )
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


def test_a_run_that_another_process_holds_is_left_to_it(
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


# --- batches and scores -------------------------------------------------------------------------


def test_every_pass_is_a_new_permutation() -> None:
    x = torch.arange(10.0)[:, None]
    batches = tasks.Batches(x, x, 3, seed=0, dtype=torch.float64)
    passes = [torch.cat([batches.next()[0] for _ in range(3)]).flatten().tolist() for _ in range(3)]
    assert all(len(set(one)) == 9 for one in passes)
    assert passes[0] != passes[1] != passes[2]
    assert batches.next()[0].dtype == torch.float64


def test_batches_go_on_from_any_position() -> None:
    x = torch.arange(10.0)[:, None]
    for taken in range(8):
        batches = tasks.Batches(x, x, 3, seed=1, dtype=torch.float32)
        for _ in range(taken):
            batches.next()
        state = batches.state_dict()
        rest = [batches.next()[1].tolist() for _ in range(5)]
        other = tasks.Batches(x, x, 3, seed=1, dtype=torch.float32)
        other.load_state_dict(state)
        assert [other.next()[1].tolist() for _ in range(5)] == rest


def test_a_batch_cannot_be_larger_than_the_data() -> None:
    x = torch.zeros(10, 1)
    with pytest.raises(ValueError, match="batch_size must be from 1 to the 10 training rows"):
        tasks.Batches(x, x, 11, seed=0, dtype=torch.float32)


def test_a_score_in_chunks_is_the_score_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(small("sgd", "mnist"), task="cifar10-resnet")
    task, model = tasks.find(run.task), tasks.network(run)
    rows = data.generated("cifar10", rows=64)
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    whole = tasks.score(task, model, rows.train_x, rows.train_y)
    monkeypatch.setattr(tasks, "CHUNK", 10)
    assert tasks.score(task, model, rows.train_x, rows.train_y) == pytest.approx(whole)
    assert model.training
    assert all(torch.equal(buffers[name], value) for name, value in model.named_buffers())


def test_seeds_give_weights_and_batches_of_their_own() -> None:
    runs = [small(), replace(small(), seed=1)]
    a, b = (tasks.network(run)[0].weight for run in runs)  # type: ignore[index]
    assert not torch.equal(a, b) and torch.equal(a, tasks.network(runs[0])[0].weight)  # type: ignore[index]


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"activation": "sine"}, "activation must be one of tanh"),
        ({"dtype": "float16"}, "dtype must be one of float32"),
        ({"schedule": "linear"}, "schedule must be 'none' or 'cosine'"),
        ({"momentum": 0.9}, "cocd has no setting 'momentum'"),
    ],
)
def test_unknown_settings_are_refused(own: dict[str, Setting], said: str) -> None:
    run = small(**own)
    with pytest.raises(ValueError, match=said):
        Training(run, tasks.load(run, None))


def test_memory_is_a_share_of_the_coordinates() -> None:
    run = small(memory_budget=0.25)
    assert Training(run, tasks.load(run, None)).optimizer.memory_budget == round(12727 / 4)


@pytest.mark.parametrize("task", list(paper.STEPS))
@pytest.mark.parametrize("method", ["cocd", "bccd", "random", "spsa", "zosgd"])
def test_an_epoch_costs_equal_evaluations(task: str, method: str) -> None:
    run = paper.make("table-main", task, method, "", {})
    made = run.steps_per_epoch * methods.cost(method, run.options)
    expected = paper.STEPS[task] * methods.cost("cocd", paper.COCD[task])
    assert made == pytest.approx(expected, rel=1e-3)


# --- tuning and test rows -----------------------------------------------------------------------


def test_tuning_never_asks_for_test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(name: str, *, data: Any, split: str, seed: int) -> Any:
        asked.append((split, seed))
        return None

    monkeypatch.setattr(tasks.datasets, "load", load)
    tasks._load.cache_clear()
    for run in plans.generate("tune", seeds=(0, 1, 2)):
        tasks.load(run, None)
    assert asked and set(asked) == {("validation", 0)}  # one split, whatever the seed
    asked.clear()
    for plan in plans.PLANS:
        if plan not in ("tune", "table-memory"):
            for run in plans.generate(plan, seeds=(0, 1, 2)):
                tasks.load(run, None)
    assert set(asked) == {("test", 0)}
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
    from cocd._cli import main

    def made(lr: float, seed: int, metric: float | None, **change: Any) -> None:
        own: dict[str, Setting] = {"lr": lr, "eps": 0.1}
        rest = {"seed": seed, "split": "validation", "group": "bccd", **change}
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
    assert main(["reproduce", "tune", "--best", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed.replace("'", '"')) == {"sarcos": {"bccd": {"eps": 0.1, "lr": 0.05}}}


def test_best_is_for_tuning_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from cocd._cli import main

    assert main(["reproduce", "table-main", "--best", "--out", str(tmp_path)]) == 2
    assert "--best is for the plan tune" in capsys.readouterr().err
