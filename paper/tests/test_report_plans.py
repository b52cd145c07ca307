"""The report, from made-up rows: what each plan shows."""

import math

import pytest
from cocd_paper.report import claims, errors, paper, words
from cocd_paper.report.read import read
from cocd_paper.report.sections import sections
from report_rows import (
    BCCD,
    SARCOS,
    end_row,
    epoch_row,
    everything,
    run_row,
    section_of,
    series_of,
    training,
    write,
)

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
        "SGD: 0.5 (one evaluation a probe, M = 1); 3 (many probes at once, for speed)."
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


def test_published_rows_come_last_under_their_name(tmp_path):
    for split, final in (("published", 20.0), ("test", 25.0)):
        write(tmp_path, training(run_row(settings=SARCOS, split=split), final))
    write(tmp_path, training(run_row(method="bccd", label="BCCD", settings=BCCD), 90.0))
    table = section_of(tmp_path, "table-main").tables[0]
    assert "split" not in table.columns
    assert [row[:3] for row in table.rows] == [
        ("SARCOS", "CoCD", "25.00"),
        ("SARCOS", "BCCD", "90.00"),
        ("SARCOS, published rows", "CoCD", "20.00"),
    ]
    assert table.best == (0,)  # one alone is not the best


def test_the_best_is_one_that_ended(tmp_path):
    write(tmp_path, training(run_row(settings=SARCOS), 5.0, done=9, end="diverged"))
    write(tmp_path, training(run_row(method="spsa", label="SPSA"), 4.0, done=9, end=""))
    write(tmp_path, training(run_row(method="bccd", label="BCCD", settings=BCCD), 90.0))
    write(tmp_path, training(run_row(method="sgd", label="SGD"), 1.0))
    table = section_of(tmp_path, "table-main").tables[0]
    assert [table.rows[i][1] for i in table.best] == ["BCCD"]
