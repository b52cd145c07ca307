"""The report, from made-up rows: the paper's numbers and sentences."""

import re

import pytest
from cocd_paper.report import paper, tables, words
from report_rows import (
    BCCD,
    MNIST,
    SARCOS,
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
     ("mnist", 0.9501, 0.95, "level 0.0")],
)  # fmt: skip
def test_the_table_of_wins_says_by_how_much(tmp_path, task, ours, theirs, cell):
    for run, value in (
        (run_row(task=task, epochs=8), ours),
        (run_row(task=task, method="bccd", label="BCCD", epochs=8), theirs),
    ):
        # The first epochs do not count.
        values = [9.0, 9.0, 9.0, 9.0, *[value] * 5]
        loss = [2.0 * v if task == "mnist" else v for v in values]
        rows = [epoch_row(e, *pair) for e, pair in enumerate(zip(loss, values, strict=True))]
        write(tmp_path, lines(run, rows))
    table = tables.duels(series_of(tmp_path))
    assert table.rows == (("BCCD", cell),)
    assert table.note.startswith("Mean of the last five epochs. ×: the other's loss")


def test_a_lead_that_changed_lately_is_none(tmp_path):
    write(tmp_path, training(run_row(epochs=9), 25.0, wobble=0.0))
    rows = training(run_row(method="bccd", label="BCCD", epochs=9), 30.0, wobble=0.0)
    for epoch, expected in ((4, "better"), (5, "level")):  # the last five are 5 to 9
        changed = [{**row} for row in rows]
        changed[1 + epoch] |= {"loss": 1.0, "metric": 1.0}
        write(tmp_path, changed)
        cocd, bccd = sorted(series_of(tmp_path), key=lambda s: s.method, reverse=True)
        made = words.compare(cocd, bccd)
        assert made.verdict == expected and len(made.lately) == 5


def test_one_seed_within_the_range_of_ours_is_level(tmp_path):
    assert "not to be told apart from BCCD" in rivals(tmp_path, [20.0, 30.0], [26.0])[0]


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
