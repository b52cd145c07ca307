"""Identity of runs, rows and checkpoints on disk."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cocd_paper import plans
from cocd_paper.runs import Run
from cocd_paper.store import Held, Store, StoreError, encode, read_rows

RUN = Run("table-main", "sarcos", "cocd", "CoCD", {"lr": 1e-3, "eps": 1.0}, epochs=2)


def store(folder: Path, run: Run = RUN) -> Store:
    made = Store(folder / run.key, run)
    made.folder.mkdir(parents=True)
    return made


# --- identity -----------------------------------------------------------------------------------


def test_a_key_does_not_change_from_release_to_release() -> None:
    assert RUN.key == "cocd-s0-d71bc4fc"
    varied = replace(RUN, vary="eps", group="eps", seed=3)
    assert varied.key == "cocd-eps=1.0-s3-5d41d9dd"


@pytest.mark.parametrize(
    "change",
    [
        {"plan": "tune"},
        {"task": "mnist"},
        {"method": "bccd"},
        {"label": "other"},
        {"settings": {"lr": 1e-3, "eps": 0.5}},
        {"seed": 1},
        {"epochs": 3},
        {"steps_per_epoch": 2},
        {"group": "B"},
        {"vary": "eps"},
        {"split": "validation"},
        {"smoke": True},
        {"carry": True},
    ],
)
def test_everything_is_in_the_identity(change: dict[str, object]) -> None:
    assert replace(RUN, **change).digest != RUN.digest  # type: ignore[arg-type]


def test_the_order_of_the_settings_is_not() -> None:
    assert replace(RUN, settings={"eps": 1.0, "lr": 1e-3}) == RUN


def test_a_run_comes_back_from_its_row() -> None:
    row = json.loads(encode({"row": "run", "key": RUN.key, **RUN.to_row()}))
    assert Run.from_row(row) == RUN


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"split": "train"}, "split must be one of"),
        ({"vary": "decay"}, "vary='decay'"),
        ({"settings": {"lr": [1.0]}}, "lr="),
        ({"settings": {"nesterov": True}}, "nesterov=True"),
    ],
)
def test_a_run_that_is_none_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(RUN, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("smoke", [False, True])
@pytest.mark.parametrize("plan", list(plans.PLANS))
def test_no_two_runs_of_a_plan_share_a_key(plan: str, smoke: bool) -> None:
    module = plans.find(plan)
    tasks = (*module.TASKS, *getattr(module, "OPTIONAL", ()))
    keys = [r.key for r in plans.generate(plan, tasks=tasks, seeds=(0, 1), smoke=smoke)]
    assert len(keys) == len(set(keys)) > 0
    assert all(not set(key) & set('/\\:*?"<>| ') for key in keys)


# --- rows ---------------------------------------------------------------------------------------


def test_rows_are_whole_lines_with_sorted_keys(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.append({"row": "epoch", "loss": math.inf, "epoch": 1})
    made.append({"row": "end", "status": "done"})
    lines = made.rows.read_bytes().splitlines(keepends=True)
    assert lines[0] == b'{"epoch": 1, "loss": null, "row": "epoch"}\n'
    assert read_rows(made.rows)[1] == {"row": "end", "status": "done"}


def test_an_end_that_was_torn_is_no_end(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    assert not made.finished()
    whole = encode({"row": "end", "status": "done"})
    with made.rows.open("ab") as file:
        file.write(whole[:-1])
    assert not made.finished()
    with made.rows.open("ab") as file:
        file.write(whole[-1:])
    assert made.finished()


# --- checkpoints --------------------------------------------------------------------------------


def test_rows_behind_the_checkpoint_are_cut_off(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    made.save({"x": torch.arange(3), "step": 7})
    made.append({"row": "epoch"})
    state = made.resume()
    assert state is not None and state["step"] == 7 and state["x"].tolist() == [0, 1, 2]
    assert read_rows(made.rows) == [{"row": "run"}]


def test_without_a_checkpoint_the_run_begins_anew(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    assert made.resume() is None
    assert made.rows.read_bytes() == b""


@pytest.mark.parametrize("damaged", [False, True])
def test_rows_without_a_checkpoint_are_not_thrown_away(tmp_path: Path, damaged: bool) -> None:
    made = store(tmp_path)
    for row in ("run", "epoch", "epoch", "epoch"):
        made.append({"row": row})
    if damaged:
        made.rows.write_bytes(made.rows.read_bytes().replace(b"run", b'r"n'))
    before = made.rows.read_bytes()
    with pytest.raises(StoreError, match=r"has rows .* no checkpoint .*; delete .* to start"):
        made.resume()
    assert made.rows.read_bytes() == before


@pytest.mark.parametrize("line", [b"{x", b"123", b"\xff"])
def test_a_damaged_line_does_not_undo_the_end(tmp_path: Path, line: bytes) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    made.rows.write_bytes(made.rows.read_bytes() + line + b"\n")
    assert not made.finished()
    assert read_rows(made.rows) == [{"row": "run"}]
    made.append({"row": "end"})
    assert made.finished()


def test_a_checkpoint_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    made.save({"step": 1})
    monkeypatch.setattr("cocd_paper.store.__version__", "99.0")
    with pytest.raises(StoreError, match=r"was written by cocd .*, this is 99.0.*delete"):
        made.resume()


def test_a_half_written_checkpoint_leaves_the_last_one(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    made.save({"step": 1})
    (made.folder / "checkpoint.tmp").write_bytes(b"half")
    assert made.resume() == {"step": 1}


@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "other contents"])
def test_a_damaged_checkpoint_is_named_with_the_remedy(tmp_path: Path, damage: str) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    made.save({"step": 1})
    whole = made.checkpoint.read_bytes()
    if damage == "other contents":
        torch.save([1, 2], made.checkpoint)
    else:
        broken = {"cut": whole[: len(whole) // 2], "noise": b"\x80\x02noise", "empty": b""}
        made.checkpoint.write_bytes(broken[damage])
    with pytest.raises(StoreError, match=r"checkpoint\.pt is damaged; delete .* to start"):
        made.resume()
    assert read_rows(made.rows) == [{"row": "run"}]  # nothing was touched


class Trap:
    """What an unpickler would call if it were allowed to."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("loaded code",)


def test_a_checkpoint_cannot_bring_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    torch.save({"state": Trap()}, made.checkpoint)
    with pytest.raises(StoreError, match="damaged"):
        made.resume()
    assert "loaded code" not in capsys.readouterr().out


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    made.save({"step": 1})
    other = Store(made.folder, replace(RUN, seed=5))
    with pytest.raises(StoreError, match="belongs to another run; delete"):
        other.resume()


def test_lost_rows_are_noticed(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    made.save({"step": 1})
    made.rows.write_bytes(b"")
    with pytest.raises(StoreError, match="lacks rows that the checkpoint covers; delete"):
        made.resume()


def test_the_end_leaves_nothing_to_resume(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    made.save({"step": 1})
    made.end({"row": "end", "status": "done"})
    assert made.finished() and not made.checkpoint.exists()


# --- the lock -----------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from cocd_paper.runs import Run
from cocd_paper.store import Store
import json
run = Run.from_row(json.loads(sys.argv[2]))
with Store(Path(sys.argv[1]), run).held():
    print("in", flush=True)
    sys.stdin.read()
"""


def test_one_process_at_a_time_and_a_dead_one_lets_go(tmp_path: Path) -> None:
    made = store(tmp_path)
    command = [sys.executable, "-c", HOLD, str(made.folder), json.dumps(RUN.to_row())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"in\n"
        with pytest.raises(Held), made.held():
            pass
        other.kill()
        other.wait()
        with made.held():
            pass


def test_a_first_row_that_is_damaged_is_said_with_the_remedy(tmp_path: Path) -> None:
    """Who goes on all the same makes rows that no report can read."""
    made = store(tmp_path)
    made.append({"row": "run"})
    made.append({"row": "epoch", "epoch": 0})
    made.save({})
    whole = made.rows.read_bytes()
    made.rows.write_bytes(b"#" + whole[1:])
    with pytest.raises(StoreError, match=r"line 1 is damaged.*; delete .* to start"):
        made.resume()
    assert made.rows.read_bytes() == b"#" + whole[1:]
    made.end({"row": "end", "status": "done"})
    assert not made.finished()
    made.rows.write_bytes(whole + encode({"row": "end", "status": "done"}))
    assert made.finished()


def test_a_disk_that_is_full_is_one_sentence_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = store(tmp_path)
    made.append({"row": "run"})
    made.save({"step": 1})
    before = made.checkpoint.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("cocd_paper.store.os.fsync", full)
        with pytest.raises(StoreError, match=r"checkpoint.tmp cannot be written \(No space left"):
            made.save({"step": 2})
        with pytest.raises(StoreError, match=r"rows.jsonl cannot be written .* make room"):
            made.append({"row": "epoch", "epoch": 0})
    assert made.checkpoint.read_bytes() == before
    assert not list(made.folder.glob("*.tmp"))
    assert made.resume() == {"step": 1} and read_rows(made.rows) == [{"row": "run"}]
