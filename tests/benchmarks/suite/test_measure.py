"""The suite: problems that can be made, rates that are found, a table made of rows alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.command import main
from benchmarks.suite.measure import row
from benchmarks.suite.options import ROWS, load, missing
from benchmarks.suite.problems import PROBLEMS
from benchmarks.suite.table import lines, markdown


def test_a_third_of_at_least_30_problems_is_held_out() -> None:
    held_out = sum(problem.held_out for problem in PROBLEMS.values())
    assert len(PROBLEMS) >= 30 and held_out >= len(PROBLEMS) / 3


@pytest.mark.parametrize(
    "name", ["far (1 weight)", "digits, transformer", "Friedman 2, MLP, all raw"]
)
def test_a_problem_has_a_loss_for_its_model_and_data(name: str) -> None:
    model, loss, x, y = PROBLEMS[name].make()
    with torch.no_grad():
        value = loss(model(x[:8]), y[:8])
    assert value.ndim == 0 and value.isfinite()


def test_a_row_has_both_losses_and_what_was_spent() -> None:
    found = row("diabetes, linear, scaled", "SPSA", 0.01, seed=0, evaluations=160)
    assert found["evaluations"] == 160 and found["train"] < found["start"]
    assert found["test"] != found["train"]
    assert row("diabetes, linear, scaled", "SPSA", 0.01, 0, 160)["train"] == found["train"]


def test_a_run_that_diverges_has_no_loss() -> None:
    found = row("Rosenbrock (10)", "CoCD", 100.0, seed=0, evaluations=2_000)
    assert found["train"] is None and found["test"] is None


def made(method: str, rate: float | None, seed: int, train: float | None) -> Any:
    common = {"problem": "p", "held_out_problem": False, "n": 3, "start": 10.0}
    return {**common, "method": method, "rate": rate, "seed": seed, "train": train, "test": train}


def test_the_peer_that_is_furthest_ahead_stands_beside_the_median_of_its_seeds() -> None:
    rows = [made("AutoCoCD", None, seed, loss) for seed, loss in enumerate((1.0, 2.0, 9.0))]
    rows += [made("SPSA", 0.1, seed, 2.5) for seed in range(3)]
    rows += [made("CoCD", 0.1, 0, None), made("CoCD", 0.01, 0, 3.0), made("SPSA", 1.0, 0, 2.6)]
    (line,) = lines(rows)
    assert (line.peer, line.rate, line.train, line.peer_train) == ("SPSA", 0.1, 2.0, 2.5)
    assert line.ratio == pytest.approx(2.01 / 2.51)
    assert "All: 1 of 1 within 1.2, 0 above 2" in markdown(rows)


def test_seeds_follow_when_the_rate_is_found() -> None:
    rows = [made("SPSA", rate, 0, loss) for rate, loss in ((0.01, 1.0), (0.001, 2.0), (0.1, 2.0))]
    assert next(missing(rows, "p", "SPSA")).rate == 0.00333
    rows += [made("SPSA", 0.00333, 0, 1.5), made("SPSA", 0.03, 0, 1.5)]
    assert [(run.rate, run.seed) for run in missing(rows, "p", "SPSA")] == [(0.01, 1), (0.01, 2)]


def test_the_committed_rows_are_of_problems_that_are_there() -> None:
    rows = load(ROWS)
    assert rows and {each["problem"] for each in rows} <= PROBLEMS.keys()


def test_the_command_runs_in_a_small_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.json"
    assert (
        main(["suite", "--quick", "--quiet", "--rows", str(tmp_path / "no"), "--json", str(file)])
        == 0
    )
    assert "far (1 weight)" in capsys.readouterr().out
    assert {each["method"] for each in json.loads(file.read_text())} == {"AutoCoCD", "CoCD"}
