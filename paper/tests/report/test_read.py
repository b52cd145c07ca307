"""Rows that are read: what is compared, what cannot be read."""

import math

import pytest
from cocd_paper.report import charts, tables, text
from cocd_paper.report.page import page
from cocd_paper.report.read import read
from cocd_paper.report.sections import sections
from report_rows import (
    epoch_row,
    lines,
    run_row,
    section_of,
    series_of,
    three_seeds,
    training,
    write,
)


@pytest.fixture
def seeds(tmp_path):
    return three_seeds(tmp_path)


# --- reading -----------------------------------------------------------------------------


def test_both_layouts_give_the_same_results(tmp_path):
    rows = training(run_row(epochs=3), 25.0)
    write(tmp_path / "runs", rows)
    write(tmp_path / "results", rows, flat=True)
    (one,), (other,) = read(tmp_path / "runs").results, read(tmp_path / "results").results
    assert (one.run, one.epochs, one.end) == (other.run, other.epochs, other.end)
    assert [row["epoch"] for row in one.epochs] == [0, 1, 2, 3]
    assert one.status == "done"


def test_seeds_of_one_setting_are_one_series(seeds):
    bccd, cocd = sorted(series_of(seeds), key=lambda s: s.method)
    assert [r.run["seed"] for r in cocd.results] == [0, 1, 2]
    assert cocd.final.values == (25.0, 26.0, 30.0)
    assert cocd.final.mean == pytest.approx(27.0)
    assert (cocd.final.low, cocd.final.high) == (25.0, 30.0)
    assert cocd.final.deviation == pytest.approx(math.sqrt(7.0))  # of 25, 26, 30: (4 + 1 + 9) / 2
    assert not cocd.accuracy
    assert bccd.seconds_per_epoch.mean == 2.5


def test_settings_that_differ_are_not_mixed(tmp_path):
    for lr in (0.1, 0.2):
        write(tmp_path, training(run_row(settings={"lr": lr}, epochs=2), 25.0))
    write(tmp_path, training(run_row(settings={"lr": 0.1}, epochs=3), 25.0))
    assert len(series_of(tmp_path)) == 3


def test_one_seed_has_no_deviation(tmp_path):
    write(tmp_path, training(run_row(epochs=2), 25.0))
    (series,) = series_of(tmp_path)
    assert series.final.deviation is None
    assert text.spread(series.final) == "25.00"


def test_unfinished_runs_are_shown_as_such(tmp_path):
    write(tmp_path, training(run_row(), 25.0, done=12, end=""))
    (series,) = series_of(tmp_path)
    assert series.status == "unfinished"
    assert text.outcome(series).endswith("after 12 of 50 epochs")
    assert tables.finals("", [series]).best == ()


def test_equals_are_marked_together_and_gradients_not_at_all(tmp_path):
    for method, lr, final in (
        ("cocd", 1, 9.0),
        ("bccd", 1, 9.0),
        ("bccd", 2, 9.5),
        ("sgd", 1, 1.0),
    ):
        run = run_row(method=method, label=method, settings={"lr": lr}, epochs=2)
        write(tmp_path, training(run, final, wobble=0.0))
    table = tables.finals("", series_of(tmp_path))
    assert [table.rows[i][1] for i in table.best] == ["cocd", "bccd, lr 1"]


def test_a_run_that_has_only_begun(tmp_path):
    write(tmp_path, [run_row()])
    (series,) = series_of(tmp_path)
    assert text.outcome(series) == "no rows yet"
    assert section_of(tmp_path, "table-main").charts == ()


def test_curves_of_diverged_runs_end_where_the_runs_ended(tmp_path):
    good = training(run_row(settings={"lr": 0.1}, epochs=10), 25.0)
    bad = training(run_row(settings={"lr": 9.0}, epochs=10), 25.0, done=4, end="diverged")
    bad[-2]["loss"] = bad[-2]["metric"] = 1e30
    for rows in (good, bad):
        write(tmp_path, rows)
    series = series_of(tmp_path)
    panel = charts.panel("", series)
    steady, gone = panel.curves
    assert steady.steady and not gone.steady
    assert gone.points[-1].x == 4 and gone.ended == "diverged"
    assert panel.y_range[1] < 1000  # the run that exploded does not decide what is to be seen
    assert text.outcome(series[1]) == "diverged in epoch 4"


def test_a_null_loss_is_no_point(tmp_path):
    rows = lines(run_row(epochs=2), [epoch_row(0, 9.0), epoch_row(1, None), epoch_row(2, 7.0)])
    write(tmp_path, rows)
    (series,) = series_of(tmp_path)
    assert [p.x for p in series.curve("loss")] == [0, 2]


def test_a_metric_other_than_the_loss_is_an_accuracy(tmp_path):
    write(tmp_path, training(run_row(task="mnist", epochs=2), 0.9))
    (series,) = series_of(tmp_path)
    assert series.accuracy
    assert text.outcome(series) == "90.00 %"


# --- what cannot be read -----------------------------------------------------------------


def test_a_damaged_line_costs_that_line_and_a_sentence(tmp_path):
    file = write(tmp_path, training(run_row(epochs=3), 25.0))
    content = file.read_text().splitlines()
    content[2] = content[2][:20]
    file.write_text("\n".join(content))
    rows = read(tmp_path)
    (problem,) = rows.problems
    assert problem.startswith(f"{file.relative_to(tmp_path).as_posix()}, line 3: not a JSON object")
    assert [row["epoch"] for row in rows.results[0].epochs] == [0, 2, 3]
    assert "line 3" in page(rows, sections(rows.results))


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"row": "epoch", "loss": 1.0}, "without its epoch"),
        ({"row": "epoch", "epoch": 4, "loss": "low"}, "'loss' is 'low', not a number"),
        ({"row": "epoch", "epoch": 4, "loss": float("nan")}, "not a number"),
        ({"row": "end", "status": "fine"}, "status 'fine'"),
    ],
)
def test_a_row_of_the_wrong_form_is_left_out(tmp_path, row, word):
    write(tmp_path, [run_row(), epoch_row(0, 5.0), row])
    rows = read(tmp_path)
    (problem,) = rows.problems
    assert ", line 3: " in problem and word in problem
    assert len(rows.results[0].epochs) == 1 and rows.results[0].end is None


@pytest.mark.parametrize(
    ("change", "word"),
    [({"schema": 2}, "schema 2"), ({"seed": None}, "'seed'"), ({"settings": []}, "'settings'")],
)
def test_a_run_row_that_is_not_one_costs_the_file(tmp_path, change, word):
    write(tmp_path, [{**run_row(), **change}, epoch_row(0, 5.0)])
    rows = read(tmp_path)
    assert rows.results == ()
    assert word in rows.problems[0] and "line 1" in rows.problems[0]


def test_files_of_others_are_nobodys_business(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"event": "login"}\n')
    (tmp_path / "broken.jsonl").write_text("\x00\n")
    write(tmp_path, training(run_row(epochs=1), 25.0))
    rows = read(tmp_path)
    assert len(rows.results) == 1
    assert [problem.partition(",")[0] for problem in rows.problems] == ["broken.jsonl"]


def test_the_same_run_twice_counts_once_and_the_longer_one(tmp_path):
    run = run_row(epochs=5)
    write(tmp_path / "a", training(run, 25.0))
    write(tmp_path / "b", training(run, 25.0, done=2, end=""))
    rows = read(tmp_path)
    (result,) = rows.results
    assert result.status == "done"
    assert "are the same run" in rows.problems[0]
    write(tmp_path / "b", training(run, 25.0))
    assert read(tmp_path).problems == ()
