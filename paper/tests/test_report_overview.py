"""What the page begins with: one picture and the sentences that most readers come for."""

import re

import pytest
from cocd_paper.report import overview
from cocd_paper.report.commands import commands
from cocd_paper.report.markdown import markdown
from cocd_paper.report.page import page
from cocd_paper.report.read import Result, read
from cocd_paper.report.sections import sections
from cocd_paper.report.series import group
from report_rows import SARCOS, everything, run_row, training, write

BCCD = {**SARCOS, "decay": 0.0, "lr": 0.1}
AUTO = {"activation": "tanh", "compute_budget": 64, "max_evaluations": 4_482_750}


def main(folder, *, ours=25.0, rival=13.0, done=None, end="done"):
    write(folder, training(run_row(label="CoCD (tuned)", settings={**SARCOS, "lr": 0.1}), ours))
    run = run_row(method="bccd", label="BCCD (tuned)", settings=BCCD)
    write(folder, training(run, rival, done=done, end=end))


def automatic(folder, final, **changes):
    own = {**AUTO, **changes.pop("settings", {})}
    shape = {name: changes.pop(name) for name in ("done", "end") if name in changes}
    run = run_row("adaptive", "sarcos", "auto", "AutoCoCD", group="queries", settings=own)
    write(folder, training({**run, **changes}, final, **shape))


def first(folder):
    return sections(read(folder).results)[0]


def test_it_comes_first_on_the_page_and_in_the_document(tmp_path):
    everything(tmp_path)
    rows = read(tmp_path)
    made = sections(rows.results)
    assert [section.plan for section in made[:3]] == ["overview", "claims", "table-main"]
    text, document = page(rows, made), markdown(rows, made)
    assert text.index('id="overview"') < text.index('id="table-main"')
    assert document.index("## In short") < document.index("## Main results")
    assert "figures/overview.svg" in document
    # Settings and coherence stand once, with the plan.
    assert made[0].runs.rows == () and not made[0].coherence.most


def test_automatic_is_set_beside_the_best_of_the_others(tmp_path):
    main(tmp_path)
    automatic(tmp_path, 4.0)
    assert first(tmp_path).sentences[-1] == (
        "SARCOS, AutoCoCD: 4.00 after 50 epochs, one seed; ahead of the best of the others, "
        "BCCD (tuned) (13.00, 3.25 times the loss)."
    )


def test_how_soon_is_said_of_both(tmp_path):
    write(tmp_path, training(run_row(label="CoCD (paper's settings)", settings=SARCOS), 25.0))
    automatic(tmp_path, 4.0)
    said = first(tmp_path).sentences[-1]
    assert re.fullmatch(
        r"SARCOS, evaluations until the paper's final 31\.18, as a part of the paper's number: "
        r"AutoCoCD after [\d.]+% and CoCD \(paper's settings\) after [\d.]+%\.",
        said,
    )
    write(tmp_path, training(run_row(label="CoCD (paper's settings)", settings=SARCOS), 40.0))
    (sentence,) = [s for s in first(tmp_path).sentences if "as a part of" in s]
    assert sentence.endswith("CoCD (paper's settings) never.")
    for seed in (1, 2):
        run = run_row(label="CoCD (paper's settings)", settings=SARCOS, seed=seed)
        write(tmp_path, training(run, 25.0))
    (sentence,) = [s for s in first(tmp_path).sentences if "as a part of" in s]
    assert sentence.endswith("% in 2 of 3 seeds.")


def test_a_loss_is_said_too(tmp_path):
    main(tmp_path, rival=2.0)
    automatic(tmp_path, 4.0)
    assert (
        "behind the best of the others, BCCD (tuned) (2.00, 50 % less loss)"
        in (first(tmp_path).sentences[-1])
    )


def test_runs_that_are_not_finished_are_compared_where_they_are(tmp_path):
    main(tmp_path, ours=400.0, done=12, end="")
    automatic(tmp_path, 4.0)
    assert "after 12 of 50 epochs" in first(tmp_path).sentences[-1]


def test_the_best_is_the_best_where_they_are_compared(tmp_path):
    """One that ends lower may be behind there."""
    main(tmp_path, ours=13.0, rival=14.0)  # BCCD is quicker: below
    slow = run_row(label="Slow", method="random", settings={**SARCOS})
    write(tmp_path, training(slow, 1.0, pace=40.0))
    automatic(tmp_path, 4.0, done=3, end="")
    (sentence,) = [text for text in first(tmp_path).sentences if "AutoCoCD" in text]
    assert "after 3 of 50 epochs" in sentence and "Slow" not in sentence


def test_one_of_another_length_is_not_among_the_others(tmp_path):
    main(tmp_path)
    long = run_row(method="random", label="Long", settings=SARCOS, epochs=500)
    write(tmp_path, training(long, 1.0))
    automatic(tmp_path, 4.0)
    (sentence,) = [text for text in first(tmp_path).sentences if "AutoCoCD" in text]
    assert "the best of the others, BCCD (tuned) (13.00" in sentence


def test_automatic_that_diverged_is_said(tmp_path):
    main(tmp_path)
    automatic(tmp_path, 4.0, done=9, end="diverged")
    assert first(tmp_path).sentences[-1] == "SARCOS, AutoCoCD: diverged."


def test_a_run_that_has_just_begun_does_not_take_the_place_of_a_whole_one(tmp_path):
    main(tmp_path)
    automatic(tmp_path, 4.0)
    automatic(
        tmp_path, 5.0, group="defaults", settings={"compute_budget": "auto"}, done=0, end=""
    )  # fmt: skip
    (sentence,) = [text for text in first(tmp_path).sentences if "AutoCoCD" in text]
    assert "AutoCoCD: 4.00 after 50 epochs" in sentence


def test_gradients_alone_give_no_overview(tmp_path):
    write(tmp_path, training(run_row(method="sgd", label="SGD (oracle)", settings={}), 1.8))
    assert [section.plan for section in sections(read(tmp_path).results)] == ["table-main"]


def test_a_run_that_diverged_is_not_the_best(tmp_path):
    main(tmp_path, rival=1.0, done=9, end="diverged")
    automatic(tmp_path, 4.0)
    assert "CoCD (tuned) (25.00" in first(tmp_path).sentences[-1]


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"activation": "silu"}},
        {"group": "robust"},
        {"epochs": 5},
        {"smoke": True},
        {"task": "mnist"},
    ],
)
def test_other_networks_tasks_and_lengths_are_left_out(tmp_path, changes):
    main(tmp_path)
    automatic(tmp_path, 4.0, **changes)
    assert not [s for s in overview.chosen(group(read(tmp_path).results)) if s.method == "auto"]


def test_a_run_with_nothing_set_stands_for_automatic(tmp_path):
    main(tmp_path)
    automatic(tmp_path, 4.0)
    automatic(tmp_path, 5.0, group="defaults", settings={"compute_budget": "auto"})
    (sentence,) = [text for text in first(tmp_path).sentences if "AutoCoCD" in text]
    assert "AutoCoCD: 5.00 after 50 epochs" in sentence


def test_gradients_and_the_paper_are_lines_across(tmp_path):
    main(tmp_path)
    write(tmp_path, training(run_row(method="sgd", label="SGD (oracle)", settings={}), 1.8))
    (panel,) = first(tmp_path).charts[0].panels
    assert panel.x == "evaluations of the loss"
    assert [curve.name for curve in panel.curves] == ["CoCD (tuned)", "BCCD (tuned)"]
    assert [line.name for line in panel.lines] == ["paper's CoCD 31.18", "SGD (oracle) 1.80"]


def test_there_is_none_without_the_main_table(tmp_path):
    automatic(tmp_path, 4.0)
    assert [section.plan for section in sections(read(tmp_path).results)] == ["adaptive"]
    write(tmp_path, training(run_row(settings=SARCOS, smoke=True, epochs=2), 25.0))
    assert "overview" not in [section.plan for section in sections(read(tmp_path).results)]


def made_by(*lines):
    return commands(Result({"command": c, "seed": seed}, (), (), None, "") for c, seed in lines)


def test_commands_of_many_sittings_are_brought_together():
    assert made_by(
        ("cocd reproduce table-main --task mnist --only 'CoCD (paper' --threads 2", 0),
        ("cocd reproduce table-main --task=mnist --out runs --seeds 1,2", 1),
        ("cocd reproduce table-main --task=mnist --out runs --seeds 1,2", 2),
        ("cocd reproduce table-main --task cifar10", 0),
        ("cocd reproduce tune --task sarcos mnist", 0),
        ("cocd reproduce tune --task cifar10 --only BCCD", 0),
    ) == (
        "cocd reproduce table-main --task cifar10",
        "cocd reproduce table-main --task mnist --seeds 0,1,2",
        "cocd reproduce tune --task sarcos mnist cifar10",
    )


def test_a_length_of_its_own_keeps_the_runs_that_it_was_for():
    whole, part = "cocd reproduce figure-error-bound", "--only mini-batches --epochs 3"
    assert made_by((whole, 0), (f"{whole} {part}", 0)) == (whole, f"{whole} {part}")


def test_commands_that_are_not_known_stay_as_they_are():
    others = ["make all", "cocd reproduce 'unclosed", "cocd reproduce tune --new thing", "cocd"]
    assert made_by(*((text, 0) for text in others), ("", 0)) == tuple(sorted(others))
    assert made_by(("cocd reproduce tune --epochs", 0)) == ("cocd reproduce tune --epochs",)
    assert made_by(("make all", 1), ("make all", 2)) == ("make all",)
    assert made_by((None, 0)) == ()


def test_options_may_stand_before_the_plan():
    first = "cocd reproduce --data /home/me/data --threads 2 table-main --seeds 1,2"
    assert made_by((first, 1), (first, 2)) == ("cocd reproduce table-main --seeds 1,2",)


@pytest.mark.parametrize("odd", ["'unclosed", "--new thing"])
def test_folders_are_left_out_of_commands_that_are_not_known(odd):
    (line,) = made_by((f"cocd reproduce tune --data /home/me/data --out=/home/me/runs {odd}", 0))
    assert "/home" not in line and "--data DIR --out=DIR" in line


def test_another_activation_is_another_task(tmp_path):
    main(tmp_path)
    own = {**SARCOS, "activation": "relu"}
    run = run_row(label="CoCD (paper's settings)", settings=own)
    write(tmp_path, training(run, 90.0, done=3, end="diverged"))
    write(tmp_path, training(run_row(method="bccd", label="BCCD", settings=own), 300.0))
    short, claims, table = sections(read(tmp_path).results)
    assert [panel.title for panel in short.charts[0].panels] == ["SARCOS"]
    assert [panel.title for panel in table.charts[0].panels] == ["SARCOS", "SARCOS, ReLU"]
    assert any(
        line.startswith("SARCOS, ReLU, CoCD (paper's settings): diverged; worse than BCCD (300.00")
        for line in table.sentences
    )
    # The networks are not set against each other, nor beside the paper's numbers.
    assert not any("ReLU" in line and "13.00" in line for line in table.sentences)
    assert not any("ReLU" in line for line in table.against_paper)
    assert not any("ReLU" in cell for row in claims.tables[0].rows for cell in row)


def test_options_of_a_command_are_kept():
    def made(by):
        return Result({"command": f"cocd reproduce {by}", "seed": 0}, (), (), None, "")

    said = ("table-main --task mnist --activation relu", "table-main --published", "table-main")
    assert commands(map(made, said)) == (
        "cocd reproduce table-main",
        "cocd reproduce table-main --published",
        "cocd reproduce table-main --task mnist --activation relu",
    )
