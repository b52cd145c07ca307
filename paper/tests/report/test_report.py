"""The report, from made-up rows: sections, and the files that are written."""

import json
import re
import webbrowser
from pathlib import Path

import pytest
from cocd_paper import cli as _cli
from cocd_paper.report import figures
from cocd_paper.report.markdown import fill
from cocd_paper.report.page import page
from cocd_paper.report.read import read
from cocd_paper.report.sections import sections
from matplotlib.image import imread
from report_rows import (
    SARCOS,
    everything,
    run_row,
    section_of,
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
