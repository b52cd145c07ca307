"""The report, from made-up rows: what is read, what is compared, what files are written."""

import json
import math
import re
import webbrowser
from pathlib import Path

import pytest
from cocd_paper import cli as _cli
from cocd_paper.report import charts, claims, errors, figures, tables, text
from cocd_paper.report.markdown import fill
from cocd_paper.report.page import page
from cocd_paper.report.read import read
from cocd_paper.report.sections import sections
from matplotlib.image import imread
from report_rows import (
    BCCD,
    MNIST,
    SARCOS,
    end_row,
    epoch_row,
    everything,
    lines,
    run_row,
    section_of,
    series_of,
    three_seeds,
    training,
    write,
)

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def seeds(tmp_path):
    return three_seeds(tmp_path)


@pytest.fixture(scope="module")
def committed():
    return read(RESULTS)


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


# --- files -------------------------------------------------------------------------------


# --- the committed rows ------------------------------------------------------------------


def test_every_committed_run_is_found_under_its_key(committed):
    assert committed.problems == ()
    keys = {
        (path.parent.name, path.stem)
        for path in RESULTS.rglob("*.jsonl")
        if '"row": "run"' in path.read_text(encoding="utf-8").partition("\n")[0]
    }
    assert {(r.run["plan"], r.run["key"]) for r in committed.results} == keys
    shown = {
        (section.name, row[0])
        for section in sections(committed.results)
        for row in section.runs.rows
    }
    assert shown == keys


def test_every_table_of_the_page_of_documentation_has_rows(committed):
    page = (RESULTS.parents[1] / "docs" / "reproduction.md").read_text(encoding="utf-8")
    filled = fill(page, sections(committed.results))
    assert filled.count("<!-- table ") > 10 and filled.count("No rows yet.") <= 1


# --- claims ------------------------------------------------------------------------------


def verdict_of(folder, start):
    (row,) = [r for r in section_of(folder, "claims").tables[0].rows if r[1].startswith(start)]
    return row[3:]


def test_a_claim_without_rows_is_inconclusive(seeds):
    word, here = verdict_of(seeds, "it needs less RAM")
    assert (word, here) == ("inconclusive", "nothing run tells")


def test_one_task_of_three_is_a_part(seeds):
    assert verdict_of(seeds, "CoCD is better than BCCD")[0] == "partly"


def test_the_three_numbers_of_table_2(tmp_path):
    cifar = {**MNIST, "compute_budget": 1024, "weight_decay": 5e-4}
    for task, settings, final in (
        ("sarcos", SARCOS, 33.0),  # within a tenth
        ("mnist", MNIST, 0.94),  # within two points
        ("cifar10", cifar, 0.6),  # better
    ):
        write(tmp_path, training(run_row(task=task, settings=settings), final))
    assert verdict_of(tmp_path, "CoCD reaches")[0] == "reproduced"
    write(tmp_path, training(run_row(settings=SARCOS, seed=1), 50.0))
    assert verdict_of(tmp_path, "CoCD reaches")[0] == "partly"


@pytest.mark.parametrize(
    ("tuned", "word"), [(100.0, "reproduced"), (30.0, "partly"), (20.0, "not reproduced")]
)
def test_reuse_is_judged_by_what_is_left_of_the_gap(tmp_path, tuned, word):
    for method, label, settings, final in (
        ("cocd", "CoCD (paper's settings)", SARCOS, 25.0),
        ("bccd", "BCCD (paper's settings)", BCCD, 250.0),
        ("cocd", "CoCD (tuned)", {**SARCOS, "lr": 0.1}, 25.0),
        ("bccd", "BCCD (tuned)", {**BCCD, "lr": 0.1}, tuned),
    ):
        run = run_row(method=method, label=label, settings=settings)
        write(tmp_path, training(run, final))
    assert verdict_of(tmp_path, "reusing stale slopes")[0] == word


def test_reuse_of_time_is_judged_by_interleaved_steps(tmp_path):
    for seed, ratio in enumerate((1.0, 1.06)):
        run = run_row("table-time", settings={"compute_budget": 64}, seed=seed, epochs=0)
        write(
            tmp_path, [run, {"row": "measure", "cocd_over_bccd": ratio}, end_row(epoch_row(0, 1))]
        )
    assert verdict_of(tmp_path, "reuse costs no time") == ("reproduced", "SARCOS 1.030 times")


def test_runs_that_diverged_count_as_worse(tmp_path):
    write(tmp_path, training(run_row(settings=SARCOS), 25.0, done=3, end="diverged"))
    write(tmp_path, training(run_row(method="bccd", label="BCCD", settings=BCCD), 250.0))
    word, here = verdict_of(tmp_path, "CoCD is better than BCCD")
    assert word == "not reproduced" and here == "SARCOS diverged against 250.00"


def test_seeds_that_overlap_decide_nothing(tmp_path):
    for seed in (0, 1):
        write(tmp_path, training(run_row(settings=SARCOS, seed=seed), 20.0 + 10 * seed))
        rival = run_row(method="bccd", label="BCCD", settings=BCCD, seed=seed)
        write(tmp_path, training(rival, 25.0 + 10 * seed))
    assert verdict_of(tmp_path, "CoCD is better than BCCD")[0] == "not reproduced"


def test_every_rule_speaks_of_rows_in_the_shape_of_the_plans(tmp_path):
    everything(tmp_path)
    words = [row[3] for row in section_of(tmp_path, "claims").tables[0].rows]
    assert len(words) == len(claims.CLAIMS) and words.count("inconclusive") < 10


@pytest.mark.parametrize(
    ("held", "word"),
    [
        ([True, True], "reproduced"),
        ([True, False], "partly"),
        ([False, False], "not reproduced"),
        ([True, None], "inconclusive"),
    ],
)
def test_a_verdict_follows_from_pieces_of_evidence(held, word):
    assert claims.verdict(held) == word


def test_a_bound_that_an_error_exceeds_is_seen(tmp_path):
    for budget, error in ((16, 5.0), (32, 2.0)):
        run = run_row("figure-error-bound", "error-bound", settings={"compute_budget": budget})
        told = {"row": "measure", "compute_budget": budget, "error": error, "bound": 4.0}
        write(tmp_path, [run, told, end_row(epoch_row(1, 1.0))])
    (one,) = errors.measured(series_of(tmp_path))
    assert one.falls and one.exceeded and one.ratios == [0.8, 2.0]
    assert one.power.slope == pytest.approx(math.log(2 / 5) / math.log(2))


# --- files -------------------------------------------------------------------------------


def test_figures_are_images_and_the_same_each_time(seeds, tmp_path):
    (chart,) = section_of(seeds, "table-main").charts
    png, svg = figures.write(chart, tmp_path / "one")
    assert imread(png).shape[2] == 4
    assert svg.read_text().startswith("<?xml")
    for first, second in zip((png, svg), figures.write(chart, tmp_path / "two"), strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_the_command_writes_page_figures_and_tables(seeds, capsys):
    document = seeds / "docs" / "reproduction.md"
    document.parent.mkdir()
    document.write_text("before\n<!-- table table-main -->\nold\n<!-- end -->\nafter\n")
    out = seeds / "elsewhere" / "report"
    code = _cli.main(["report", str(seeds), "--out", str(out), "--markdown", str(document)])
    assert code == 0
    assert capsys.readouterr().out.split() == [str(out / "index.html"), str(document)]
    assert {f.name for f in (out / "figures").iterdir()} == {"table-main.png", "table-main.svg"}
    content = document.read_text()
    assert "| SARCOS | CoCD | **27.00 (25.00 to 30.00)** | 3 | 31.18 |" in content
    assert content.startswith("before\n") and content.endswith("after\n") and "old" not in content
    assert (document.parent / "figures" / "table-main.svg").is_file()


def test_a_table_is_found_by_its_title(seeds):
    made = sections(read(seeds).results)
    text = fill("<!-- table table-main: Settings -->\n<!-- end -->", made)
    assert "| task | label | epochs | activation |" in text
    assert "No rows yet." in fill("<!-- table table-main: Nothing -->\n<!-- end -->", made)


def test_open_shows_the_page(seeds, monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(webbrowser, "open", lambda url: not shown.append(url))
    assert _cli.main(["report", str(seeds), "--open"]) == 0
    assert shown == [(seeds / "report" / "index.html").resolve().as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert _cli.main(["report", str(seeds), "--open"]) == 0
    assert "by hand" in capsys.readouterr().err


@pytest.mark.parametrize("case", ["empty", "missing", "file"])
def test_a_report_without_rows_is_refused_in_one_sentence(tmp_path, capsys, case):
    folder = tmp_path / "rows"
    if case == "empty":
        folder.mkdir()
    if case == "file":
        folder.write_text("")
    assert _cli.main(["report", str(folder)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("cocd-paper report: ") and told.count("\n") == 1 and str(folder) in told
    assert not (folder / "report").exists()


def test_the_page_of_documentation_must_be_there(seeds, capsys):
    assert _cli.main(["report", str(seeds), "--markdown", str(seeds / "none.md")]) == 2
    assert "none.md is not a file" in capsys.readouterr().err


def test_the_page_needs_no_network(seeds):
    rows = read(seeds)
    whole = page(rows, sections(rows.results))
    content = re.sub(r"(?s)<script>/\*\*.*?</script>", "", whole, count=1)
    assert len(content) < len(whole) / 10  # what is left out is Plotly
    for outside in ("<img", "<iframe", "src=", "@import", "url(h", "cdn."):
        assert outside not in content


def test_words_from_rows_are_not_markup(tmp_path):
    label = "</script><b>x & y</b>{{ data }}"
    write(tmp_path, training(run_row(label=label, epochs=2), 25.0))
    rows = read(tmp_path)
    content = page(rows, sections(rows.results))
    assert label not in content
    assert "&lt;/script&gt;&lt;b&gt;x &amp; y" in content


@pytest.mark.parametrize(
    "own", [{"group": None}, {"split": 7}, {"vary": []}, {"plan": "../../elsewhere"}]
)
def test_a_run_row_of_the_wrong_kind_is_left_out_and_said(tmp_path, own):
    first, *rest = training(run_row(), 5.0)
    file = write(tmp_path, [first, *rest])
    file.write_text("".join(json.dumps(row) + "\n" for row in ({**first, **own}, *rest)))
    found = read(tmp_path)
    (problem,) = found.problems
    assert not found.results and f"{next(iter(own))!r} is " in problem


# --- plans -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def all_plans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    everything(folder)
    return {s.name: s for s in sections(read(folder).results)}


def test_every_plan_has_a_section(all_plans):
    assert list(all_plans) == [
        *("overview", "claims", "table-main", "figure-smoothing", "figure-ablation"),
        *("figure-random", "table-memory", "figure-resnet", "figure-error-bound", "tune"),
        "adaptive",
    ]


def test_a_run_at_the_defaults_is_in_every_panel_of_the_ablation(all_plans):
    chart = all_plans["figure-ablation"].charts[0]
    panel = next(p for p in chart.panels if p.title == "SARCOS, effect of γ")
    assert [c.name for c in panel.curves] == [f"CoCD, γ {g}" for g in (0, 0.5, 0.9, 0.95, 0.99, 1)]


def test_the_error_is_drawn_beside_the_bound(all_plans):
    (panel,) = all_plans["figure-error-bound"].charts[0].panels
    names = [curve.name for curve in panel.curves]
    assert names[:2] == ["measured error", "theorem's bound, L_ε as seen"]
    assert names[2].startswith("fitted: error ∝ B^-")
    assert panel.log_x and panel.log_y


def test_tuning_marks_the_winner_of_each_grid(all_plans):
    by_title = {table.title: table for table in all_plans["tune"].tables}
    grid = by_title["SARCOS, CoCD"]
    (best,) = grid.best
    assert grid.columns == ("method", "γ", "lr", "final metric")
    assert grid.rows[best][1:3] == ("0.5", "0.1")
    assert sum("diverged" in row[-1] for row in grid.rows) == 1


def test_a_plan_that_the_report_does_not_know_has_curves_and_a_table(tmp_path):
    write(tmp_path, training(run_row("something-new", epochs=3), 25.0))
    section = section_of(tmp_path, "something-new")
    assert section.title == "Something new"
    assert section.charts[0].panels[0].curves and section.tables[0].rows


def test_small_forms_have_a_section_of_their_own_and_no_claims(tmp_path):
    write(tmp_path, training(run_row(settings=SARCOS, smoke=True, epochs=2), 25.0))
    section = section_of(tmp_path, "table-main-smoke")
    assert "small form" in section.title
    assert "paper" not in section.tables[0].columns
