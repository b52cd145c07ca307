"""The report's section on AutoCoCD: made of rows alone, and it says what they say."""

import pytest
from cocd_paper.report.read import read
from cocd_paper.report.sections import sections
from cocd_paper.report.series import group
from report_rows import run_row, training, write

NETWORKS = (("tanh", "raw", 60), ("relu", "raw", 60))


def section_of(folder):
    (section,) = sections(read(folder).results)
    return section


def auto(label, final, task="sarcos", *, group="", settings=None, epochs=4, seed=0, **rest):
    own = {"max_evaluations": 4_482_750, "compute_budget": 16, **(settings or {})}
    what = {"group": group, "settings": own, "epochs": epochs, "seed": seed}
    return training(run_row("adaptive", task, "auto", label, **what), final, **rest)


def table_of(section, title):
    (found,) = [table for table in section.tables if table.title == title]
    return found


def test_how_soon_it_is_where_the_paper_ends(tmp_path):
    write(tmp_path, auto("AutoCoCD (tanh)", 7.0, group="queries", wobble=0))
    write(tmp_path, auto("AutoCoCD (slow)", 90.0, group="queries"))
    section = section_of(tmp_path)
    slow, fast = section.sentences
    series = next(s for s in group(read(tmp_path).results) if s.label == "AutoCoCD (tanh)")
    first = next(p for p in series.curve("metric", "evaluations") if p.y.mean <= 31.18)
    assert f"after {first.x:,.0f} evaluations, {first.x / 4_482_750:.1%}" in fast
    assert slow.endswith("has not come to the paper's final 31.18.")
    (panel,) = section.charts[0].panels
    assert panel.x == "evaluations of the loss"
    assert [line.name for line in panel.lines] == ["paper's CoCD 31.18"]


def test_a_shorter_run_is_measured_by_the_papers_number_too(tmp_path):
    """Not by its own, of which the same evaluations are a larger part."""
    own = {"max_evaluations": 1_793_100}
    write(tmp_path, auto("AutoCoCD (x)", 7.0, group="defaults", settings=own, wobble=0))
    section = section_of(tmp_path)
    (said,) = section.sentences
    series = group(read(tmp_path).results)[0]
    first = next(p for p in series.curve("metric", "evaluations") if p.y.mean <= 31.18)
    assert said.endswith(f"{first.x / (34_750 * 129):.1%} of the paper's number.")
    assert [table.title for table in section.tables] == [
        "The paper's number of evaluations, or a part of it"
    ]


def test_what_was_found_is_said(tmp_path):
    rows = auto("AutoCoCD (x)", 7.0, group="defaults", settings={"compute_budget": "auto"})
    own = {"compute_budget": 128, "boldness": 0.918}
    write(tmp_path, [{**row, **own} if row["row"] == "epoch" else row for row in rows])
    said = section_of(tmp_path).sentences
    assert said[-1] == "SARCOS, AutoCoCD (x): found B = 128 and 0.92 of each step."


def test_tensors_with_longer_steps_are_named(tmp_path):
    for seed, scales in enumerate(({"8.weight": 7.59375}, {}, {"8.weight": 5.0625, "0.bias": 1.5})):
        own = {"compute_budget": 64, "boldness": 1.0, "scales": scales}
        settings = {"compute_budget": "auto"}
        rows = auto("AutoCoCD (x)", 7.0, group="defaults", settings=settings, seed=seed)
        write(tmp_path, [{**row, **own} if row["row"] == "epoch" else row for row in rows])
    assert section_of(tmp_path).sentences[-1] == (
        "SARCOS, AutoCoCD (x): found B = 64 and 1, B = 64 and 1 and B = 64 and 1 of each step; "
        "longer ones: 8.weight × 7.6 and 0.bias × 1.5, 8.weight × 5.1."
    )


def test_larger_batches_lie_on_a_line_over_one_by_their_rows(tmp_path):
    finals = {64: 2 + 128 / 64, 128: 2 + 128 / 128, 256: 2 + 128 / 256}
    for rows, final in finals.items():
        where = "defaults" if rows == 64 else "batches"
        own = {"batch_size": rows}
        made = auto(f"AutoCoCD ({rows})", final, group=where, settings=own, epochs=50, wobble=0)
        write(tmp_path, made)
    section = section_of(tmp_path)
    assert section.sentences[-1] == (
        "SARCOS: over batches of 64, 128 and 256 rows the loss at the end is 2.00 + 128 / rows, to "
        "within 0.00."
    )
    table = table_of(section, "Larger batches at as many evaluations, SARCOS")
    assert [row[:2] for row in table.rows] == [("64", "4.00"), ("128", "3.00"), ("256", "2.50")]


def robust(folder, finals):
    for cell, ours, (plain, end) in zip(NETWORKS, finals[0], finals[1], strict=True):
        own = dict(zip(("activation", "inputs", "width"), cell, strict=True))
        write(folder, auto(f"AutoCoCD {cell}", ours, group="robust", settings=own))
        label = f"CoCD {cell}"
        run = run_row("adaptive", label=label, group="robust", settings=own, epochs=4)
        write(folder, training(run, plain, end=end))


def test_networks_are_set_beside_each_other(tmp_path):
    robust(tmp_path, ((9.0, 40.0), ((30.0, "done"), (400.0, "diverged"))))
    section = section_of(tmp_path)
    assert section.sentences == (
        "AutoCoCD with the same settings on 2 networks: none of 2 runs ended above where it "
        "started.",
        "Its median is the better one on 1 of the 1 networks on which most runs of CoCD with the "
        "paper's settings do not diverge.",
    )
    table = table_of(section, "One set of defaults")
    relu, tanh = table.rows
    assert relu[:4] == ("SARCOS", "relu", "raw", "60") and "diverged" in relu[5]
    assert tanh[4:] == ("9.00", "30.00", "500.00") and table.best == (0, 1)


@pytest.mark.parametrize("end", ["done", "diverged"])
def test_a_run_that_ends_higher_is_counted(tmp_path, end):
    robust(tmp_path, ((600.0, 9.0), ((30.0, "done"), (30.0, "done"))))
    if end == "diverged":
        run = run_row(
            "adaptive", method="auto", label="x", group="robust", settings={"width": 1}, epochs=4
        )
        write(tmp_path, training(run, 5.0, end="diverged"))
    said = section_of(tmp_path).sentences
    risen, runs = (2, 3) if end == "diverged" else (1, 2)
    assert f": {risen} of {runs} runs ended above" in said[0]
    assert "better one on 1 of the 2 networks" in said[1]


def test_a_wrong_first_length_that_costs_nothing(tmp_path):
    for lr, final in ((0.1, 9.0), (1.0, 10.0), (10.0, 9.5)):
        write(tmp_path, auto(f"AutoCoCD (lr {lr:g})", final, group="lr", settings={"lr": lr}))
    (said,) = section_of(tmp_path).sentences
    assert said == "SARCOS: a first length that is wrong by ten in either direction ends no higher."


def test_a_wrong_first_length_and_missing_parts(tmp_path):
    for lr, final in ((0.1, 11.0), (1.0, 10.0), (10.0, 10.5)):
        write(tmp_path, auto(f"AutoCoCD (lr {lr:g})", final, group="lr", settings={"lr": lr}))
    for label, final in (("AutoCoCD", 8.0), ("without scale", 12.0)):
        write(tmp_path, auto(label, final, group="ablation", settings={"without": label}))
    section = section_of(tmp_path)
    (said,) = section.sentences
    assert said == (
        "SARCOS: a first length that is wrong by ten in either direction ends with at most 10% "
        "more of the loss."
    )
    lengths = table_of(section, "A first length that is wrong, SARCOS")
    assert [row[2] for row in lengths.rows] == ["1.00", "1.10", "1.05"]
    parts = table_of(section, "What each part is worth, SARCOS")
    assert parts.rows == (("AutoCoCD", "8.00", "1.00"), ("without scale", "12.00", "1.50"))


def test_a_wrong_first_length_that_diverges_is_named(tmp_path):
    for lr, final in ((0.1, 9.0), (1.0, 10.0)):
        write(tmp_path, auto(f"AutoCoCD (lr {lr:g})", final, group="lr", settings={"lr": lr}))
    gone = auto("AutoCoCD (lr 10)", 400.0, group="lr", settings={"lr": 10.0}, end="diverged")
    write(tmp_path, gone)
    (said,) = section_of(tmp_path).sentences
    assert said == (
        "SARCOS: a first length that is wrong by ten can diverge: AutoCoCD (lr 10) did."
    )


def test_budgets_that_differ_between_tasks_are_said(tmp_path):
    for task, B in (("sarcos", 64), ("mnist", 256)):
        own = {"compute_budget": B, "activation": "tanh"}
        write(tmp_path, auto("AutoCoCD", 0.9, task, group="robust", settings=own))
    (said,) = section_of(tmp_path).sentences
    assert said.startswith("AutoCoCD with the same settings but B (64 on SARCOS and 256 on MNIST)")


def test_a_run_that_lost_its_last_loss_counts_as_the_worst(tmp_path):
    robust(tmp_path, ((9.0, 9.0), ((30.0, "done"), (30.0, "done"))))
    *rows, last, _ = auto("AutoCoCD x", 5.0, group="robust", settings={"width": 1})
    write(tmp_path, [*rows, {**last, "loss": None, "metric": None}])  # killed before its end
    said = section_of(tmp_path).sentences
    assert ": 1 of 3 runs ended above" in said[0]


def test_a_wrong_first_length_by_points_of_accuracy(tmp_path):
    for lr, final in ((0.1, 0.955), (1.0, 0.97), (10.0, 0.98)):
        own = {"lr": lr}
        write(tmp_path, auto(f"AutoCoCD (lr {lr:g})", final, "mnist", group="lr", settings=own))
    section = section_of(tmp_path)
    (said,) = section.sentences
    assert said.startswith("MNIST: ") and said.endswith("ends with at most 1.50 points less.")
    lengths = table_of(section, "A first length that is wrong, MNIST")
    assert lengths.columns[-1] == "points above the first"
    assert [row[2] for row in lengths.rows] == ["+0.00", "-1.50", "+1.00"]


def test_the_default_budget_is_set_beside_the_one_of_the_task(tmp_path):
    for B, final in ((64, 0.98), (256, 0.97)):
        own = {"compute_budget": B}
        write(tmp_path, auto(f"AutoCoCD (B = {B})", final, "mnist", group="budget", settings=own))
    rows = table_of(section_of(tmp_path), "The budget that it finds, and fixed ones").rows
    assert [row[1:3] for row in rows] == [
        ("AutoCoCD (B = 256)", "97.00 %"),
        ("AutoCoCD (B = 64)", "98.00 %"),
    ]


def test_rows_of_another_group_are_shown_all_the_same(tmp_path):
    write(tmp_path, auto("AutoCoCD (x)", 7.0, group="something else"))
    assert [chart.name for chart in section_of(tmp_path).charts] == ["adaptive-other"]
