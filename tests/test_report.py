"""The report, from made-up rows: what is read, what is said, what is written."""

import json
import math
import re
import webbrowser

import pytest
from matplotlib.image import imread
from report_rows import (
    MNIST,
    SARCOS,
    end_row,
    epoch_row,
    everything,
    lines,
    run_row,
    training,
    write,
)

from cocd import _cli
from cocd._report import charts, claims, errors, figures, paper, tables, text, words
from cocd._report.markdown import markdown
from cocd._report.page import page
from cocd._report.read import read
from cocd._report.sections import sections
from cocd._report.series import group

BCCD = {**SARCOS, "eps": 1e-6, "decay": 0.0}


def series_of(folder):
    return group(read(folder).results)


def section_of(folder, name):
    return {section.name: section for section in sections(read(folder).results)}[name]


@pytest.fixture
def seeds(tmp_path):
    """CoCD and BCCD on SARCOS, three seeds each, of ten epochs."""
    for seed, (ours, theirs) in enumerate([(25.0, 300.0), (26.0, 350.0), (30.0, 310.0)]):
        write(tmp_path, training(run_row(settings=SARCOS, seed=seed, epochs=10), ours))
        rival = run_row(method="bccd", label="BCCD", settings=BCCD, seed=seed, epochs=10)
        write(tmp_path, training(rival, theirs))
    return tmp_path


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
    assert "One seed each" in words.caution([series])[0]


def test_unfinished_runs_are_shown_as_such(tmp_path):
    write(tmp_path, training(run_row(), 25.0, done=12, end=""))
    (series,) = series_of(tmp_path)
    assert series.status == "unfinished"
    assert charts.ended(series) == "unfinished: 12 of 50 epochs"
    assert tables.outcome(series).endswith("after 12 of 50 epochs")
    section = section_of(tmp_path, "table-main")
    assert "1 of 1 runs are not finished." in section.cautions
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
    assert tables.outcome(series) == "unfinished: 0 of 50 epochs"
    section = section_of(tmp_path, "table-main")
    assert section.charts == () and section.sentences == ()


def test_diverged_runs_are_drawn_to_where_they_ended(tmp_path):
    good = training(run_row(settings={"lr": 0.1}, epochs=10), 25.0)
    bad = training(run_row(settings={"lr": 9.0}, epochs=10), 25.0, done=4, end="diverged")
    bad[-2]["loss"] = bad[-2]["metric"] = 1e30
    for rows in (good, bad):
        write(tmp_path, rows)
    series = series_of(tmp_path)
    panel = charts.panel("", series)
    steady, gone = panel.curves
    assert steady.steady and not gone.steady
    assert gone.points[-1].x == 4 and gone.ended == "diverged in epoch 4"
    assert panel.y_range[1] < 1000  # the run that exploded does not decide what is to be seen
    assert tables.outcome(series[1]) == "diverged in epoch 4"


def test_a_null_loss_is_no_point(tmp_path):
    rows = lines(run_row(epochs=2), [epoch_row(0, 9.0), epoch_row(1, None), epoch_row(2, 7.0)])
    write(tmp_path, rows)
    (series,) = series_of(tmp_path)
    assert [p.x for p in series.curve("loss")] == [0, 2]


def test_a_metric_other_than_the_loss_is_an_accuracy(tmp_path):
    write(tmp_path, training(run_row(task="mnist", epochs=2), 0.9))
    (series,) = series_of(tmp_path)
    assert series.accuracy
    assert tables.outcome(series) == "90.00 %"


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
    assert problem in markdown(rows, sections(rows.results))
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


# --- the paper ---------------------------------------------------------------------------


def test_the_papers_number_goes_with_the_papers_settings_alone():
    assert paper.entry("sarcos", "cocd", SARCOS).metric == 31.18
    assert paper.entry("sarcos", "bccd", BCCD).metric == 188.73
    assert paper.entry("mnist", "cocd", MNIST).seconds == 44.56
    assert paper.entry("sarcos", "cocd", {**SARCOS, "memory_budget": 0.25}) is None
    assert paper.entry("sarcos", "bccd", {**BCCD, "dtype": "float64"}) is None
    assert paper.entry("sarcos", "spsa", {"lr": 1e-3}) is None
    assert paper.entry("sarcos", "cocd", {"lr": 1e-3}) is None


def test_ours_beside_the_papers(seeds):
    section = section_of(seeds, "table-main")
    assert section.against_paper[0] == (
        "SARCOS, CoCD: paper 31.18 after 50 epochs, ours 27.00 (25.00 to 30.00) after 10 epochs; "
        "13 % less loss (better)."
    )
    (table,) = section.tables
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (
        row["paper"] == "31.18 after 50 epochs"
        and row["paper's s"] == "6.12"
        and row["seeds"] == "3"
    )
    (panel,) = section.charts[0].panels
    assert [line.value for line in panel.lines] == [31.18, 188.73]


def test_what_is_within_noise_of_the_paper_is_level(tmp_path):
    for seed, ours in enumerate((25.0, 26.0, 45.0)):
        write(tmp_path, training(run_row(settings=SARCOS, seed=seed), ours))
    write(tmp_path, training(run_row(task="mnist", settings=MNIST), 0.953))
    sarcos, mnist = section_of(tmp_path, "table-main").against_paper
    assert sarcos.endswith("3 % more loss (level: within our range).")
    assert mnist.endswith("0.18 points less (level: the choice of test rows makes as much).")


# --- sentences ---------------------------------------------------------------------------


def rivals(folder, ours, theirs, *, task="sarcos", **rest):
    for seed, value in enumerate(ours):
        write(folder, training(run_row(task=task, seed=seed, epochs=4), value))
    for seed, value in enumerate(theirs):
        run = run_row(task=task, method="bccd", label="BCCD", seed=seed, epochs=4)
        write(folder, training(run, value, **rest))
    return words.standings(series_of(folder))


def test_some_seeds_that_diverge_give_no_verdict(tmp_path):
    for seed, (ours, theirs) in enumerate(((30.0, 17.0), (31.0, 18.0), (32.0, 9e9))):
        end = "diverged" if theirs > 1e9 else "done"
        write(tmp_path, training(run_row(seed=seed, epochs=4), ours))
        run = run_row(method="bccd", label="BCCD", seed=seed, epochs=4)
        write(tmp_path, training(run, theirs, end=end))
    series = series_of(tmp_path)
    assert words.standings(series)[0].endswith("no verdict against BCCD (diverged, 1 of 3 seeds).")
    assert tables.duels(series).rows == ()


def test_a_win_half_way_is_said_to_be_one(tmp_path):
    write(tmp_path, training(run_row(epochs=50), 30.0, done=14, end=""))
    run = run_row(method="bccd", label="BCCD", epochs=50)
    write(tmp_path, training(run, 300.0, done=11, end=""))
    series = series_of(tmp_path)
    third = run_row(method="random", label="Random coordinates", epochs=50)
    write(tmp_path, training(third, 20.0, done=5, end=""))
    (sentence,) = words.standings(series_of(tmp_path))
    assert re.search(r"Random coordinates \(.*; after 5 epochs, where ours is [\d.]+\)", sentence)
    table = tables.duels(series)
    assert table.columns == ("against", "SARCOS: CoCD")
    ((name, cell),) = table.rows
    assert name == "BCCD" and re.fullmatch(r"wins [\d.]+× \(11 of 50 epochs\)", cell)
    assert words.standings(series)[0].endswith(
        "Runs of which fewer epochs are done are compared there."
    )


def test_a_row_without_a_metric_does_not_make_an_accuracy_of_a_loss(tmp_path):
    *rows, end = training(run_row(epochs=4), 30.0)
    del rows[2]["metric"]
    write(tmp_path, [*rows, end])
    (series,) = series_of(tmp_path)
    assert not series.accuracy


@pytest.mark.parametrize(
    ("task", "ours", "theirs", "cell"),
    [("sarcos", 25.0, 100.0, "wins 4×"), ("sarcos", 25.0, 12.5, "loses 0.5×"),
     ("mnist", 0.95, 0.25, "wins +70.0"), ("mnist", 0.25, 0.95, "loses −70.0"),
     ("mnist", 0.9501, 0.95, "level +0.0")],
)  # fmt: skip
def test_the_table_of_wins_says_by_how_much(tmp_path, task, ours, theirs, cell):
    rivals(tmp_path, [ours], [theirs], task=task)
    table = tables.duels(series_of(tmp_path))
    assert table.rows == (("BCCD", cell),) and table.note.startswith("×: the other's loss")


def test_cocd_wins(tmp_path):
    sentence, best = rivals(tmp_path, [25.0], [100.0])
    assert sentence == (
        "SARCOS, CoCD: 25.00 after 4 epochs, one seed; better than BCCD (100.00, 4 times the loss)."
    )
    assert best == "SARCOS, best without gradients: CoCD, 25.00."


def test_cocd_loses(tmp_path):
    sentence, best = rivals(tmp_path, [25.0], [20.0])
    assert "worse than BCCD (20.00, 20 % less loss)" in sentence
    assert best == "SARCOS, best without gradients: BCCD, 20.00."


def test_more_accuracy_is_better(tmp_path):
    sentence, _ = rivals(tmp_path, [0.9], [0.95], task="mnist")
    assert "worse than BCCD (95.00 %, 5.00 points more)" in sentence


def test_ranges_that_overlap_are_not_told_apart(tmp_path):
    sentence, _ = rivals(tmp_path, [25.0, 27.0], [26.0, 30.0])
    assert "not to be told apart" in sentence and "better" not in sentence


def test_a_rival_that_diverged_has_lost(tmp_path):
    (sentence,) = rivals(tmp_path, [25.0], [20.0], done=2, end="diverged")
    assert "better than BCCD (diverged)" in sentence


def test_unfinished_rivals_are_compared_where_both_are(tmp_path):
    (sentence,) = rivals(tmp_path, [25.0], [20.0], done=2, end="")
    assert "after 2 of 4 epochs" in sentence


def test_unequal_evaluations_are_named(tmp_path):
    write(tmp_path, training(run_row(epochs=4), 25.0))
    rival = run_row(method="spsa", label="SPSA", epochs=4, steps_per_epoch=1390)
    write(tmp_path, training(rival, 50.0))
    assert "with 2 times the evaluations" in words.standings(series_of(tmp_path))[0]


def test_nothing_is_said_where_rows_are_missing(tmp_path):
    write(tmp_path, training(run_row(method="bccd", label="BCCD", epochs=2), 25.0))
    section = section_of(tmp_path, "table-main")
    assert section.sentences == () and section.against_paper == ()


def test_generated_data_say_nothing_about_methods(tmp_path):
    for method in ("cocd", "bccd"):
        run = run_row(method=method, label=method, settings=SARCOS, epochs=2, smoke=True)
        write(tmp_path, training(run, 25.0))
    section = section_of(tmp_path, "table-main-smoke")
    assert section.sentences == () and section.against_paper == ()
    assert section.cautions[0].startswith("Small form on generated data")
    assert "paper" not in section.tables[0].columns
    assert all(panel.lines == () for panel in section.charts[0].panels)


def test_the_leaking_split_is_named(tmp_path):
    write(tmp_path, training(run_row(split="published", epochs=2), 25.0))
    assert "also among the training rows" in section_of(tmp_path, "table-main").cautions[-1]


def test_commands_name_no_folder_of_a_machine(seeds):
    made = section_of(seeds, "table-main").commands
    assert made == ("cocd reproduce table-main --seeds 0,1,2",)


# --- plans -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Sections of rows of every plan, by name."""
    folder = tmp_path_factory.mktemp("rows")
    everything(folder, epochs=12)
    rows = read(folder)
    assert rows.problems == ()
    return {section.name: section for section in sections(rows.results)}


def test_sections_stand_in_the_papers_order(made):
    assert list(made) == [
        *(
            "overview",
            "claims",
            "table-main",
            "figure-smoothing",
            "figure-ablation",
            "figure-random",
            "table-memory",
        ),
        *("figure-resnet", "figure-error-bound", "tune", "adaptive"),
    ]


def test_smoothing_has_a_curve_for_each_radius(made):
    (panel,) = made["figure-smoothing"].charts[0].panels
    assert len(panel.curves) == 8 and panel.y == "loss"
    assert {c.name for c in panel.curves} >= {"CoCD, ε 1e-6", "BCCD, ε 1"}
    assert len({(c.colour, c.dash) for c in panel.curves}) == 8
    assert "each larger value does better" in made["figure-smoothing"].against_paper[0]
    assert "each larger value does worse" in made["figure-smoothing"].against_paper[1]


def test_what_the_paper_says_goes_with_its_precision_and_rate(tmp_path):
    for label, own in (("BCCD", {}), ("BCCD (float64)", {"dtype": "float64"})):
        for eps, final in ((1e-6, 100.0), (1.0, 90.0)):
            run = run_row("figure-smoothing", method="bccd", label=label, vary="eps", epochs=2,
                          settings={**SARCOS, "eps": eps, "dtype": "float32", **own})  # fmt: skip
            write(tmp_path, training(run, final))
    first, second = section_of(tmp_path, "figure-smoothing").against_paper
    assert first == (
        "BCCD: paper, larger ε ends higher; here, each larger value does better "
        "(100.00 at 1e-6, 90.00 at 1)."
    )
    assert second.startswith("BCCD (float64): here, each larger value does better")


def test_ablation_is_a_grid_and_the_defaults_are_in_every_panel(made):
    grid, stress = made["figure-ablation"].charts
    assert grid.columns == 4
    assert [p.title for p in grid.panels] == [
        f"{task}, effect of {what}" for task in ("SARCOS", "MNIST") for what in "εγBM"
    ]
    names = [[c.name for c in p.curves] for p in grid.panels[:4]]
    assert names[1] == ["γ 0", "γ 0.5", "γ 0.9", "γ 0.95", "γ 0.99", "γ 1"]
    assert names[2] == ["B 1", "B 16", "B 64", "B 256", "B 1,024"]
    assert names[3] == ["M 0.25", "M 0.5", "M 0.75", "M 1"]
    for panel in grid.panels:
        assert len({c.colour for c in panel.curves}) == len(panel.curves)
    assert [line.value for line in stress.panels[0].lines] == [paper.STRESS_LOSS]
    assert (
        made["figure-ablation"]
        .against_paper[-1]
        .endswith("paper 68.64, ours 70.50 after 50 epochs.")
    )


def test_random_directions_are_drawn_over_evaluations_and_seconds(made):
    section = made["figure-random"]
    assert [p.x for p in section.charts[0].panels] == [
        "evaluations of the loss",
        "seconds of training",
    ]
    assert any("here, ZO-SGD diverged" in sentence for sentence in section.against_paper)
    assert any("paper 1.9, here 1." in sentence for sentence in section.against_paper)


def test_resnet_compares_with_no_memory(made):
    (sentence,) = made["figure-resnet"].against_paper
    assert "against γ = 0 (15.00 %)" in sentence and "γ 0.5 better (20.00 %)" in sentence


@pytest.mark.parametrize(("finals", "words"), [
    ((0.1013, 0.1019), ("γ 0.9 level (10.19 %)", "All of them guess")),
    ((0.30, 0.31), ("γ 0.9 level (31.00 %).",)),
    ((0.30, 0.33), ("γ 0.9 better (33.00 %).",)),
])  # fmt: skip
def test_resnet_says_what_chance_may_have_done(tmp_path, finals, words):
    for gamma, final in zip((0.0, 0.9), finals, strict=True):
        run = run_row("figure-resnet", "cifar10-resnet", settings={"decay": gamma, "lr": 0.1},
                      vary="decay", epochs=2)  # fmt: skip
        write(tmp_path, training(run, final))
    (sentence,) = claims.resnet("here", series_of(tmp_path))
    assert all(word in sentence for word in words)


def test_error_bound_has_error_bound_and_line_on_logarithmic_axes(made):
    section = made["figure-error-bound"]
    (panel,) = section.charts[0].panels
    assert panel.log_x and panel.log_y
    measured, bound, fitted = panel.curves
    assert [p.x for p in measured.points] == [16 * 2**i for i in range(8)]
    # The generator's error falls by 0.6 with each doubling.
    assert fitted.name == f"fitted: error ∝ B^{math.log2(0.6):.2f}"
    assert bound.points[0].y.mean == 90 * measured.points[0].y.mean
    assert "no error at any B exceeds it" in section.sentences[0]


def test_a_broken_bound_is_said_to_be_broken(tmp_path):
    for budget, bound in ((16, 5.0), (32, 90.0)):
        run = run_row("figure-error-bound", "error-bound", settings={"compute_budget": budget})
        told = {"row": "measure", "error": 10.0, "bound": bound}
        write(tmp_path, [run, told, end_row(epoch_row(1, 1.0))])
    (made,) = errors.bounds(series_of(tmp_path))
    assert made.sentences[0] == "Bound: the measured error exceeds it at B = 16."


def test_the_error_of_one_seed_is_not_held_against_the_bound_of_another(tmp_path):
    for seed, error, bound in ((0, 1.0, 2.0), (1, 3.0, 6.0)):
        own = {"compute_budget": 16}
        run = run_row("figure-error-bound", "error-bound", settings=own, seed=seed)
        told = {"row": "measure", "error": error, "bound": bound}
        write(tmp_path, [run, told, end_row(epoch_row(1, 1.0))])
    (made,) = errors.bounds(series_of(tmp_path))
    assert made.sentences[0].endswith("exceeds it, and it is 2.00 times the measured error.")


def test_memory_is_a_table_with_units(made):
    (table,) = made["table-memory"].tables
    columns = ("task", "method", "parameters", "state, kB", "peak of the process, kB")
    assert table.columns == columns
    assert ("SARCOS", "Adam", "12,727", "101.8", "191.8") in table.rows


def test_memory_is_set_beside_backpropagation(tmp_path):
    measured = (
        ("cocd", {"memory_budget": 1.0, "engine": "closure"}, 50),
        ("cocd", {"memory_budget": 1.0}, 300),
        ("sgd", {}, 100),
    )
    for method, settings, peak in measured:
        run = run_row("table-memory", "sarcos", method, str(peak), settings=settings)
        told = {"row": "measure", "state_bytes": 1, "peak_bytes": peak}
        write(tmp_path, [run, told, end_row(epoch_row(1, 1.0))])
    assert words.memory(series_of(tmp_path)) == [
        "SARCOS: in a step the process peaks at this many times the memory of backpropagation with "
        "SGD: one evaluation a probe, M = 1 0.5; many probes at once, for speed 3."
    ]


def test_tuning_is_a_grid_with_the_winner_marked(made):
    grid, rest = made["tune"].tables
    assert grid.columns == ("γ", "lr 0.01", "lr 0.05", "lr 0.1")
    assert grid.rows[1][3] == "25.00 ★"
    assert grid.rows[2][3] == "diverged in epoch 1"
    assert sum("★" in cell for row in grid.rows for cell in row) == 1
    assert [row[-1] for row in rest.rows] == ["35.00", "30.00 ★"]


def test_a_plan_that_nobody_knows_has_curves_and_a_table(made):
    section = made["adaptive"]
    assert section.title == "Adaptive"
    assert [c.name for c in section.charts[0].panels[0].curves] == ["Automatic"]
    assert section.tables[0].rows[0][:3] == ("SARCOS", "Automatic", "9.70")


def test_coherence_is_drawn_for_runs_that_carried_it(made):
    (totals,), (more, tensors) = made["table-main"].coherence
    assert [p.title for p in totals.panels] == ["SARCOS: correlation", "SARCOS: relative change"]
    assert [p.title for p in more.panels] == ["SARCOS: age mean"]
    (curve,) = totals.panels[0].curves
    assert curve.name == "CoCD (paper's settings)" and len(curve.points) == 12
    assert [c.name for c in tensors.panels[0].curves] == ["0.weight", "1.weight", "2.weight"]
    assert made["figure-smoothing"].coherence == ((), ())


def test_every_run_is_listed_with_every_setting(made):
    table = made["table-main"].runs
    assert len(table.rows) == 27
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["ε"], row["γ"], row["B"], row["status"]) == ("1", "1", "64", "done")


# --- files -------------------------------------------------------------------------------


def test_figures_are_images_and_the_same_each_time(seeds, tmp_path):
    (chart,) = section_of(seeds, "table-main").charts
    png, svg = figures.write(chart, tmp_path / "one")
    assert imread(png).shape[2] == 4
    assert svg.read_text().startswith("<?xml")
    for first, second in zip((png, svg), figures.write(chart, tmp_path / "two"), strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_command_writes_page_figures_and_markdown(seeds, capsys):
    document = seeds / "docs" / "reproduction.md"
    out = seeds / "elsewhere" / "report"
    code = _cli.main(["report", str(seeds), "--out", str(out), "--markdown", str(document)])
    assert code == 0
    assert capsys.readouterr().out.split() == [str(out / "index.html"), str(document)]
    names = {f"{name}.{kind}" for name in ("overview", "table-main") for kind in ("png", "svg")}
    assert {f.name for f in (out / "figures").iterdir()} == names
    content = document.read_text()
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", content):
        assert (document.parent / picture).is_file()
    assert "| SARCOS | CoCD | **27.00 (25.00 to 30.00)** | 2.65 | 3 | 31.18 after" in content
    assert "cocd reproduce table-main --seeds 0,1,2" in content
    assert "/home/" not in content


def test_markdown_depends_on_the_rows_alone(tmp_path):
    rows = [training(run_row(settings=SARCOS, seed=seed, epochs=3), 25.0 + seed) for seed in (0, 1)]
    for flat, order in ((False, 1), (True, -1)):
        for one in rows[::order]:
            write(tmp_path / str(flat), one, flat=flat)
    made = [read(tmp_path / str(flat)) for flat in (False, True)]
    first, second = (markdown(r, sections(r.results)) for r in made)
    assert first == second


def test_open_shows_the_page(seeds, monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(webbrowser, "open", lambda url: not shown.append(url))
    assert _cli.main(["report", str(seeds), "--open"]) == 0
    assert shown == [(seeds / "report" / "index.html").resolve().as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert _cli.main(["report", str(seeds), "--open"]) == 0
    assert "by hand" in capsys.readouterr().err


@pytest.mark.parametrize("case", ["empty", "missing", "file"])
def test_where_there_are_no_rows_it_says_so_in_one_sentence(tmp_path, capsys, case):
    folder = tmp_path / "rows"
    if case == "empty":
        folder.mkdir()
    if case == "file":
        folder.write_text("")
    assert _cli.main(["report", str(folder)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("cocd report: ") and told.count("\n") == 1 and str(folder) in told
    assert not (folder / "report").exists()


def test_page_is_self_contained_and_holds_the_rows(seeds):
    rows = read(seeds)
    content = page(rows, sections(rows.results))
    assert set(re.findall(r"https?://[^\"'\s]*", content)) == {"http://www.w3.org/2000/svg"}
    for outside in ("<link", "<img", "<iframe", "src=", "@import", "fetch(", "url(h"):
        assert outside not in content
    data = json.loads(re.search(r'id="data">(.*?)</script>', content).group(1))
    curve = data["table-main"]["panels"][0]["curves"][0]
    assert curve["points"][-1] == [10.0, 27.0, 25.0, 30.0, 3]


def test_words_from_rows_are_not_markup(tmp_path):
    label = "</script><b>x & y</b>{data}"
    write(tmp_path, training(run_row(label=label, epochs=2), 25.0))
    rows = read(tmp_path)
    content = page(rows, sections(rows.results))
    assert label not in content
    assert "&lt;/script&gt;&lt;b&gt;x &amp; y" in content
    assert content.count("</script>") == 2


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


def test_a_page_of_documentation_needs_a_file(tmp_path, capsys):
    write(tmp_path, training(run_row(), 5.0))
    (tmp_path / "taken").write_text("")
    for name, why in ((".", "is a folder; name a file"), ("taken/page.md", "cannot be written")):
        assert _cli.main(["report", str(tmp_path), "--markdown", str(tmp_path / name)]) == 2
        told = capsys.readouterr().err
        assert told.startswith("cocd report: --markdown ") and why in told
    assert not (tmp_path / "figures").exists()
