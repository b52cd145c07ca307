"""Every plan in its small form, killed in the middle and resumed: the same rows, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cocd_paper import plans
from cocd_paper.store import read_rows

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks its children")

DRIVER = Path(__file__).parents[1] / "experiment_driver.py"
KILLED = -9
# Moments at which a run of twelve steps, three epochs of four, is killed.
MOMENTS: list[tuple[str, int]] = [
    ("step", 1),
    ("step", 6),
    ("row", 1),
    ("row", 3),
    ("after row", 2),
    ("after row", 4),
    ("checkpoint", 2),
    ("interrupt", 5),
    ("terminate", 5),
]
SHORT = ["reproduce", "table-main", "--smoke", "--task", "sarcos", "--only", "CoCD (paper"]


def job(name: str, *args: str, kill: tuple[str, int] | None = None) -> dict[str, Any]:
    return {"name": name, "args": list(args), "kill": kill}


def name_of(moment: tuple[str, int]) -> str:
    return f"{moment[0]}-{moment[1]}".replace(" ", "-")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it in one process and its children: importing torch costs more than the runs."""
    base = tmp_path_factory.mktemp("driven")
    jobs: list[Any] = []
    for plan in plans.PLANS:
        smoke = ["reproduce", plan, "--smoke", "--out"]
        jobs += [
            job(f"{plan}-whole", *smoke, str(base / plan / "whole")),
            job(f"{plan}-killed", *smoke, str(base / plan / "again"), kill=("row", 8)),
            job(f"{plan}-resumed", *smoke, str(base / plan / "again")),
        ]
    jobs.append(job("short-whole", *SHORT, "--out", str(base / "short" / "whole")))
    for moment in MOMENTS:
        out = str(base / "short" / name_of(moment))
        jobs += [
            job(f"{name_of(moment)}-killed", *SHORT, "--out", out, kill=moment),
            job(f"{name_of(moment)}-resumed", *SHORT, "--out", out),
        ]
    shared = ["reproduce", "figure-smoothing", "--smoke", "--out", str(base / "shared")]
    jobs.append([job("shared-a", *shared), job("shared-b", *shared)])
    path = base / "jobs.json"
    path.write_text(json.dumps(jobs))
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)  # what each job cost
    return base


def code(folder: Path, name: str) -> int:
    codes: dict[str, int] = json.loads((folder / "codes.json").read_text())
    return codes[name]


def said(folder: Path, name: str) -> str:
    return (folder / f"{name}.out").read_text()


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """By file, without what no two runs have in common."""
    peaks = ("peak_bytes", "least_peak_bytes", "most_peak_bytes")
    passing = ("seconds", "started", "command", *peaks)
    return {
        path.parent.name: [
            {name: value for name, value in row.items() if name not in passing}
            for row in read_rows(path)
        ]
        for path in sorted(folder.glob("*/*/rows.jsonl"))
    }


@pytest.mark.parametrize("plan", list(plans.PLANS))
def test_the_small_form_of_every_plan_runs(folder: Path, plan: str) -> None:
    assert code(folder, f"{plan}-whole") == 0, said(folder, f"{plan}-whole")
    found = rows(folder / plan / "whole")
    assert set(found) == {run.key for run in plans.generate(plan, smoke=True)}
    for made in found.values():
        assert made[0]["row"] == "run" and made[-1]["row"] == "end"
        assert made[-1]["status"] == "done"


# Seconds differ from run to run, so table-time has no rows that could be the same.
@pytest.mark.parametrize("plan", [plan for plan in plans.PLANS if plan != "table-time"])
def test_a_killed_and_resumed_plan_gives_the_same_rows(folder: Path, plan: str) -> None:
    assert code(folder, f"{plan}-killed") == KILLED
    assert code(folder, f"{plan}-resumed") == 0, said(folder, f"{plan}-resumed")
    assert rows(folder / plan / "again") == rows(folder / plan / "whole")


@pytest.mark.parametrize("moment", MOMENTS, ids=name_of)
def test_the_moment_does_not_matter(folder: Path, moment: tuple[str, int]) -> None:
    name = name_of(moment)
    expected = {"interrupt": 130, "terminate": 143}.get(moment[0], KILLED)
    assert code(folder, f"{name}-killed") == expected
    assert code(folder, f"{name}-resumed") == 0, said(folder, f"{name}-resumed")
    assert rows(folder / "short" / name) == rows(folder / "short" / "whole")


def test_a_run_that_was_stopped_goes_on_from_its_last_step(folder: Path) -> None:
    told = said(folder, "interrupt-5-killed")
    assert "stopped, 0 of 1 runs have ended; the same command resumes from here" in told
    assert "from epoch 1 on" in said(folder, "interrupt-5-resumed")


def test_two_processes_share_a_plan(folder: Path) -> None:
    assert code(folder, "shared-a") == code(folder, "shared-b") == 0
    assert rows(folder / "shared") == rows(folder / "figure-smoothing" / "whole")
    # Nothing was made twice: every end was told by one of the two.
    ends = said(folder, "shared-a").count("  done after") + said(folder, "shared-b").count(
        "  done after"
    )
    assert ends == len(rows(folder / "shared"))


def test_the_first_rows_of_a_resumed_run_are_those_of_its_beginning(folder: Path) -> None:
    (path,) = (folder / "short" / "step-6").glob("*/*/rows.jsonl")
    first = read_rows(path)[0]
    assert first["command"].startswith("cocd-paper reproduce table-main --smoke --task sarcos")
    assert first["machine"]["threads"] == 1
