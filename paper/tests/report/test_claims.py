"""Claims of the paper: from made-up rows to a verdict."""

import math

import pytest
from cocd_paper.report import claims, errors
from report_rows import (
    BCCD,
    MNIST,
    SARCOS,
    end_row,
    epoch_row,
    everything,
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
