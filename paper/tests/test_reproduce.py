"""`cocd-paper reproduce` and `cocd-paper list`: what they print, and what they say to bad input."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cocd_paper import costs, display, listing, networks, plans, tasks
from cocd_paper.cli import main
from cocd_paper.plans import paper
from cocd_paper.runner import Progress
from cocd_paper.store import read_rows
from rich.console import Console


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


ONE = ["reproduce", "table-main", "--smoke", "--task", "sarcos", "--only", "oracle"]


def test_a_plan_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ONE, "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[1/1] sarcos  SGD (oracle)  seed 0"
    assert [line.split("  loss")[0] for line in lines[1:4]] == [f"  epoch {k}/2" for k in range(3)]
    assert lines[4].startswith("  done after")
    assert lines[5] == f"1 of 1 runs have ended: {tmp_path / 'table-main'}"
    (path,) = tmp_path.glob("*/*/rows.jsonl")
    before = path.read_bytes()
    assert main([*ONE, "--out", str(tmp_path)]) == 0  # nothing is left to do
    assert capsys.readouterr().out.splitlines() == lines[5:]
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["lock", "rows.jsonl"]


def test_seeds_and_epochs(tmp_path: Path) -> None:
    assert main([*ONE, "--seeds", "3,1,3", "--out", str(tmp_path)]) == 0
    rows = [read_rows(path) for path in tmp_path.glob("*/*/rows.jsonl")]
    assert sorted(one[0]["seed"] for one in rows) == [1, 3]
    assert rows[0][-1] != rows[1][-1]
    made = list(plans.generate("table-main", epochs=7))
    assert {run.epochs for run in made} == {7}


def test_another_activation_is_another_network(tmp_path: Path) -> None:
    args = ["reproduce", "table-main", "--task", "sarcos", "--smoke", "--only", "CoCD (tuned"]
    assert main([*args, "--activation", "relu", "--out", str(tmp_path)]) == 0
    found = {path.parent.name: read_rows(path)[0] for path in tmp_path.glob("*/*/rows.jsonl")}
    assert found and all(row["settings"]["activation"] == "relu" for row in found.values())
    # What was tuned on another network does not call itself tuned.
    assert {row["label"] for row in found.values()} == {"CoCD (tuned, other B; on tanh)"}
    usual = {run.key for run in plans.generate("table-main", smoke=True)}
    assert not usual & set(found)


def test_the_usual_activation_changes_nothing() -> None:
    for plan, name in (("table-main", "tanh"), ("figure-resnet", "relu")):
        assert list(plans.generate(plan, activation=name)) == list(plans.generate(plan))


def test_labels_say_where_settings_were_chosen() -> None:
    made = plans.generate("table-main", tasks=["sarcos"], activation="relu", published=True)
    labels = [run.label for run in made]
    assert "CoCD (paper's settings)" in labels and "SGD (oracle)" in labels
    assert "BCCD (float64, best eps; on tanh and other rows)" in labels
    assert "SPSA (tuned; on tanh and other rows)" in labels


def test_the_published_split_is_of_sarcos_alone() -> None:
    made = list(plans.generate("table-main", published=True))
    assert {(run.task, run.split) for run in made} == {("sarcos", "published")}
    made = list(plans.generate("figure-error-bound", published=True))  # SARCOS by another name
    assert {(run.task, run.split) for run in made} == {("error-bound", "published")}


def test_threads_are_set_and_recorded(tmp_path: Path) -> None:
    assert main([*ONE, "--threads", "2", "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/*/rows.jsonl")
    assert read_rows(path)[0]["machine"]["threads"] == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["reproduce", "table-main", "--task", "iris"], "task must be one of sarcos, mnist"),
        (["reproduce", "table-main", "--only", "Adam"], "--only 'Adam' fits none of the"),
        (["reproduce", "table-main", "--only", "Adam"], "; SGD (oracle)"),
        (["reproduce", "table-main", "--smoke", "--epochs", "7"], "--epochs 7 is not for --smoke"),
        (["reproduce", "tune", "--activation", "relu"], "tune has networks and rows of its own"),
        (["reproduce", "adaptive", "--published"], "another activation or split is for table-main"),
        (
            ["reproduce", "table-main", "--published", "--task", "sarcos", "mnist"],
            "the published split is of sarcos alone, not of mnist",
        ),
        (["reproduce", "figure-resnet", "--published"], "of sarcos alone, not of cifar10-resnet"),
        (
            ["reproduce", "figure-resnet", "--task", "cifar10-resnet-full", "--published"],
            "of sarcos alone, not of cifar10-resnet",
        ),
        (["reproduce", "tune", "--best", "--published"], "--best reads rows of the plan as it is"),
    ],
)
def test_bad_input_is_one_sentence(
    args: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*args, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert said in told and len(told.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "args",
    [
        ["reproduce"],
        ["reproduce", "table-none"],
        ["reproduce", "table-main", "--epochs", "0"],
        ["reproduce", "table-main", "--seeds", "1,,2"],
        ["reproduce", "table-main", "--threads", "none"],
        ["reproduce", "table-main", "--activation", "softsign"],
    ],
)
def test_bad_arguments_are_refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(args)
    assert "usage: cocd-paper reproduce" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main([*ONE, "--out", str(tmp_path / "file")]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1 and told.endswith("file is a file; give a folder\n")
    assert main([*ONE, "--out", str(tmp_path / "file" / "below")]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1 and told.startswith("cocd-paper reproduce: --out ")
    assert told.endswith("below cannot be written (Not a directory); give another place\n")


def test_a_task_that_is_named_twice_is_made_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ONE, "--task", "sarcos", "sarcos", "--out", str(tmp_path)]) == 0
    assert "1 of 1 runs have ended" in capsys.readouterr().out


def test_missing_data_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["reproduce", "table-main", "--task", "sarcos", "--data", str(tmp_path)]
    assert main([*args, "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and "sarcos" in told[0] and "cocd-paper data get sarcos" in told[0]
    count = len(list(plans.generate("table-main", tasks=["sarcos"])))
    assert told[1] == f"cocd-paper reproduce: {count} runs failed"


# --- the terminal -------------------------------------------------------------------------------


def test_the_live_display_shows_where_a_run_is() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=160)
    run = paper.make("table-main", "mnist", "cocd", "CoCD", {}, epochs=50)

    class Training:
        evaluations, steps = 1000, 100

    with display.watching("table-main", 3, 1, console) as watch:
        watch.begin(run, Progress())
        progress = Progress(epoch=2, in_epoch=10, total=5.0, seconds=2.0, loss=1.5, metric=0.25)
        watch.step(run, progress, Training())  # type: ignore[arg-type]
        end: dict[str, Any] = {"row": "end", "step": 100, "status": "done"}
        assert isinstance(watch, display.Live)
        shown = [task.fields["status"] for task in watch.bars.tasks]
        assert shown[1] == "epoch 3/50  train 0.5  loss 1.5  accuracy 25.00%  500 evaluations/s"
        watch.row(run, end)
        assert [task.completed for task in watch.bars.tasks] == [2, 100]
    assert "table-main" in file.getvalue() and "mnist  CoCD  seed 0" in file.getvalue()


def test_a_run_of_a_grid_is_named_by_its_settings() -> None:
    run = next(r for r in plans.generate("tune", tasks=["sarcos"]) if r.method == "bccd")
    assert display.describe(run) == "sarcos  BCCD  eps 0.1, lr 0.05  seed 0"


@pytest.mark.skipif(os.name != "posix", reason="pipes are those of a shell")
def test_a_reader_that_goes_away_does_not_end_a_run(tmp_path: Path) -> None:
    """The pipe is closed before the first line is printed."""
    code = "import sys; from cocd_paper.cli import main; sys.exit(main(sys.argv[1:]))"
    line = shlex.join([sys.executable, "-c", code, *ONE, "--out", str(tmp_path)])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line} | true"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = tmp_path.glob("*/*/rows.jsonl")
    assert read_rows(path)[-1]["status"] == "done"


@pytest.mark.skipif(os.name != "posix", reason="pipes are those of a shell")
def test_a_reader_that_has_seen_enough_ends_a_command_quietly() -> None:
    line = shlex.join([sys.executable, "-m", "cocd_paper", "data", "status"])
    done = subprocess.run(
        ["bash", "-c", f"{line} | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (141, "")


# --- the list -----------------------------------------------------------------------------------


def test_the_list_has_every_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--quick"]) == 0
    told = capsys.readouterr().out
    for name in plans.PLANS:
        assert name in told
    assert "Times are stored ones, of another machine" in " ".join(told.split())


def test_a_slower_machine_takes_longer() -> None:
    run = paper.make("table-main", "sarcos", "cocd", "CoCD", {}, epochs=50)
    assert costs.seconds(run, 0.5) == pytest.approx(2 * costs.seconds(run))
    assert "scaled by 2.00" in listing.caption(0.5, quick=False)


def test_every_run_has_a_cost() -> None:
    for plan, module in plans.PLANS.items():
        tasks = (*module.TASKS, *getattr(module, "OPTIONAL", ()))
        assert all(costs.seconds(run) > 0 for run in plans.generate(plan, tasks=tasks))


def test_the_speed_of_this_machine_is_measured() -> None:
    assert costs.measure_speed(0.01) > 0


# --- what the plans are -------------------------------------------------------------------------


def values(plan: str, task: str, vary: str, method: str = "cocd", group: str = "") -> list[Any]:
    return [
        run.options[vary]
        for run in plans.generate(plan, tasks=[task])
        if (run.method, run.group, run.vary) == (method, group, vary)
    ]


def test_the_plans_are_the_papers() -> None:
    # The paper's curves, then those with tuned settings.
    assert values("figure-smoothing", "sarcos", "eps") == 2 * [1e-6, 1e-3, 1e-1, 1.0]
    for task in ("sarcos", "mnist"):
        # The run at the defaults is the last of the first panel and made once.
        assert values("figure-ablation", task, "eps", group="eps") == [1e-3, 1e-2, 1e-1, 1.0]
        assert values("figure-ablation", task, "decay", group="gamma") == [0, 0.5, 0.9, 0.95, 0.99]
        assert values("figure-ablation", task, "memory_budget", group="M") == [0.25, 0.5, 0.75]
    assert values("figure-ablation", "sarcos", "compute_budget", group="B") == [1, 16, 256, 1024]
    assert values("figure-ablation", "mnist", "compute_budget", group="B") == [1, 16, 64, 1024]
    assert values("figure-error-bound", "error-bound", "compute_budget", group="fixed batch") == [
        2**k for k in range(4, 12)
    ]
    resnet = list(plans.generate("figure-resnet"))
    assert [run.options["decay"] for run in resnet] == [0.0, 0.5, 0.9, 0.95]
    assert all("reduced" in run.label for run in resnet)
    full = next(plans.generate("figure-resnet", tasks=["cifar10-resnet-full"]))
    assert (full.options["compute_budget"], full.options["batch_size"]) == (2048, 128)
    assert (full.steps_per_epoch, full.epochs) == (391, 10)
    narrow = next(plans.generate("figure-resnet", tasks=["cifar10-resnet-narrow"]))
    share = 2048 / networks.parameters(tasks.network(full))
    assert narrow.options["compute_budget"] == round(
        share * networks.parameters(tasks.network(narrow))
    )


def test_plans_run_tuned_settings_once_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    from cocd_paper.plans import figure_random, figure_smoothing, table_main

    own = {"lr": 0.1, "eps": 0.1}
    cocd = {**own, "decay": 0.9}
    found = {"bccd": own, "spsa": own, "cocd": cocd, "bccd-wide": own, "cocd-wide": cocd}
    for module in (table_main, figure_random, figure_smoothing):
        monkeypatch.setattr(module, "TUNED", {task: found for task in paper.STEPS})
    labels = [run.label for run in plans.generate("table-main", tasks=["sarcos"])]
    assert labels[4:] == ["CoCD (tuned)", "BCCD (tuned)", "SPSA (tuned)"]
    labels = [run.label for run in plans.generate("figure-random", tasks=["mnist"])]
    assert labels[3:] == ["CoCD (tuned)", "BCCD (tuned)", "SPSA (tuned)"]
    as_cocd = {"spsa": {"lr": paper.COCD["mnist"]["lr"], "eps": figure_random.EPS}}
    monkeypatch.setattr(figure_random, "TUNED", {"mnist": as_cocd})
    labels = [run.label for run in plans.generate("figure-random", tasks=["mnist"])]
    assert labels[1:] == ["SPSA (tuned: CoCD's lr)", "ZO-SGD (CoCD's lr)"]
    labels = [run.label for run in plans.generate("figure-smoothing")]
    assert labels[12:] == 4 * ["BCCD (tuned lr)"] + 4 * ["CoCD (tuned γ and lr)"]


def test_rows_are_json_that_others_can_read(tmp_path: Path) -> None:
    assert main([*ONE, "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/*/rows.jsonl")
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        assert list(row) == sorted(row)
