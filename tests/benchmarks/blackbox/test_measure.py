"""Benchmark blackbox: evaluations are counted, budgets obeyed, rows kept, losses named."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchmarks import command
from benchmarks.blackbox import measure, peers, problems, report, store
from benchmarks.blackbox.counted import Counted, Spent
from benchmarks.blackbox.measure import Run, perform
from benchmarks.blackbox.peers import METHODS
from benchmarks.blackbox.problems import Box, Problem

N = 20  # NGOpt of nevergrad 1.0 fails on fewer with NumPy 2.4
FREE = Problem("overhead", 1, N, 1)


def installed(method):
    reason = peers.missing(METHODS[method].needs, METHODS[method].extra)
    return pytest.param(method, marks=pytest.mark.skipif(bool(reason), reason=reason))


COCO = peers.missing({"cocoex": "coco-experiment"}, "blackbox")
needs_coco = pytest.mark.skipif(bool(COCO), reason=COCO)
QUICK = ["blackbox", "--quick", "--method", "cocd", "l-bfgs-b", "powell", "spsa"]


def bowl(x):
    return float(((x - 1) ** 2).sum())


def box(fun=bowl, optimum=0.0):
    return Box(fun, np.zeros(N), lambda rng: rng.uniform(-4, 4, N), None, 2.0, optimum)


@pytest.fixture
def on(monkeypatch):
    """Put a function in the place of every problem; the list of all values it has given."""

    def put(fun, optimum=0.0):
        values = []

        def kept(x):
            values.append(fun(np.asarray(x)))
            return values[-1]

        class Opened:
            def __enter__(self):
                return box(kept, optimum)

            def __exit__(self, *_):
                return None

        monkeypatch.setattr(measure, "opened", lambda problem: Opened())
        return values

    return put


def test_no_evaluation_beyond_the_budget():
    calls = []
    fun = Counted(lambda x: calls.append(1) or 1.0, 3)
    for _ in range(3):
        fun(np.zeros(2))
    with pytest.raises(Spent):
        fun(np.zeros(2))
    assert len(calls) == fun.count == 3 and fun.left == 0


def test_nan_is_counted_and_never_the_best():
    values = iter([math.nan, 2.0, math.nan, 1.0])
    fun = Counted(lambda x: next(values), 4, marks=(1, 3, 4), targets=(2.5, 1.5, 0.5))
    for _ in range(4):
        fun(np.zeros(1))
    assert [mark.best for mark in fun.marks] == [math.inf, 2.0, 1.0]
    assert fun.reached == [2, 4]


@pytest.mark.parametrize("method", [installed(name) for name in METHODS])
@pytest.mark.parametrize("budget", [1, 11])
def test_every_method_makes_exactly_as_many_evaluations(method, budget, on):
    values = on(bowl)
    rows = perform(Run(FREE, method, (1, budget) if budget > 1 else (1,)))
    assert [row["failure"] for row in rows] == [None] * len(rows)
    assert len(values) == N * budget
    assert [row["evaluations"] for row in rows] == sorted({N, N * budget})
    # What the rows say is what the function gave.
    assert [row["error"] for row in rows] == [min(values[: r["evaluations"]]) for r in rows]


@pytest.mark.parametrize("method", [installed(name) for name in METHODS])
def test_every_method_gets_better_and_never_worse(method, on):
    on(bowl)
    rows = perform(Run(FREE, method, (2, 8, 25)))
    errors = [row["error"] for row in rows]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < bowl(np.zeros(N))
    assert all(row["reached"] == sorted(row["reached"]) for row in rows)
    assert all(later["seconds"] >= row["seconds"] for row, later in pairwise(rows))


@pytest.mark.parametrize("method", ["cocd", "spsa", installed("cma")])
def test_a_seed_is_a_run(method, on):
    on(bowl)
    first, again = (perform(Run(FREE, method, (20,), seed=3))[0]["error"] for _ in range(2))
    assert first == again


def test_bounds_are_kept_by_spsa(on):
    seen = []
    fun = Counted(lambda x: seen.append(x) or float(x.sum()), 200)
    peers.spsa(fun, np.zeros(N), [(-1.0, 1.0)] * N, 200, 0, 2.0)
    assert np.abs(seen).max() == 1


def test_a_method_that_ends_starts_again_and_the_first_end_is_known(on, monkeypatch):
    starts = []

    def short(fun, x0, bounds, budget, seed, scale):
        starts.append((x0.copy(), budget, seed))
        fun(x0), fun(x0 + 1)

    monkeypatch.setitem(METHODS, "short", peers.Method("short", short))
    on(bowl)
    row, last = perform(Run(FREE, "short", (1, 2)))
    assert [budget for _, budget, _ in starts] == list(range(2 * N, 0, -2))
    assert len({seed for *_, seed in starts}) == len({x.tobytes() for x, *_ in starts}) == N
    assert (row["first_end"], row["evaluations"], last["evaluations"]) == (2, N, 2 * N)
    assert last["first_error"] == 0 == last["error"]


def test_a_method_that_raises_keeps_its_best_value(on, monkeypatch):
    def bad(fun, x0, bounds, budget, seed, scale):
        fun(x0)
        raise OverflowError("too far")

    monkeypatch.setitem(METHODS, "bad", peers.Method("bad", bad))
    values = on(bowl)
    rows = perform(Run(FREE, "bad", (1, 2)))
    assert len(values) == 1
    assert {row["failure"] for row in rows} == {"OverflowError: too far"}
    assert [(row["evaluations"], row["error"]) for row in rows] == [(1, N)] * 2
    assert report.failures(rows) == [
        "bad failed on 1, and counts with what it had by then: OverflowError: too far."
    ]


def test_a_method_that_does_nothing_does_not_hang(on, monkeypatch):
    monkeypatch.setitem(METHODS, "idle", peers.Method("idle", lambda *_: None))
    on(bowl)
    (row,) = perform(Run(FREE, "idle", (1,)))
    assert row["error"] is None and row["failure"] == "ended without an evaluation"
    json.dumps(row, allow_nan=False)


def test_numpys_generator_is_left_alone(on):
    on(bowl)
    np.random.seed(7)
    expected = np.random.RandomState(7).rand()
    for method in METHODS:
        if not peers.missing(METHODS[method].needs, ""):
            perform(Run(FREE, method, (2,)))
    assert np.random.rand() == expected


@needs_coco
@pytest.mark.parametrize("suite", ["bbob", "bbob-largescale"])
def test_no_value_is_below_the_known_optimum(suite):
    rng = np.random.default_rng(0)
    for function in (1, 5, 13, 23, 24):
        with problems.opened(Problem(suite, function, 20, 2)) as opened:
            assert opened.x0.shape == (20,) and not opened.x0.any()
            assert min(opened.fun(opened.again(rng)) for _ in range(20)) > opened.optimum


@needs_coco
def test_the_optimum_is_the_one_that_is_found():
    (row,) = perform(Run(Problem("bbob", 1, 5, 3, "random"), "l-bfgs-b", (20,)))
    assert abs(row["error"]) < 1e-8
    assert row["problem"] == "f1 sphere"


def test_digits_are_a_function_of_a_vector():
    pytest.importorskip("sklearn")
    with problems.opened(Problem("digits", 1, 1898, 1)) as opened:
        assert opened.x0.shape == (1898,) == opened.again(np.random.default_rng(0)).shape
        at_first = opened.fun(opened.x0)
        assert 2 < at_first < 3
        assert opened.fun(opened.x0 + 0.1) != at_first == opened.fun(opened.x0)


ROW = {
    "suite": "bbob",
    "function": 1,
    "dimension": 5,
    "instance": 1,
    "start": "centre",
    "bounded": False,
    "problem": "f1 sphere",
    "seed": 0,
    "maxfev": 50,
    "budget": 10,
    "targets": 2,
    "reached": [1],
    "overhead": 1e-5,
    "failure": None,
}


def rows_of(**errors):
    """Rows of one budget: for each method the errors on f1, f2, ..."""
    return [
        ROW | {"function": i + 1, "problem": f"f{i + 1}", "method": m.replace("_", "-"), "error": e}
        for m, values in errors.items()
        for i, e in enumerate(values)
    ]


def test_who_is_best_and_who_is_near():
    rows = rows_of(spsa=[0.98, 2.0, None], cocd=[1.05, 1e-12, 3.0], cma=[9.0, 1e-9, 2.9])
    _, columns, cells = report.ranking(rows, {"ngopt": "not here"})
    assert columns == ["method", "best at 10 n", "within 10 %", "µs an evaluation"]
    assert [line[:3] for line in cells] == [
        ["cocd", "1", "3"],
        ["spsa", "1", "1"],
        ["cma", "2", "2"],
        ["ngopt: not here", "–", "–"],
    ]
    assert report.duel(rows, "spsa", 10) == (2, 0, 1)
    assert report.duel(rows, "cma", 10) == (1, 1, 1)
    assert report.losses(rows) == [
        "After 10 n cocd loses to spsa on 1: f1 1.1 against 0.98.",
        "After 10 n cocd loses to cma on 1: f3 3 against 2.9.",
    ]


def test_without_ours_there_is_no_duel():
    rows = rows_of(spsa=[1.0], cma=[2.0])
    assert report.duels(rows) is None and report.losses(rows) == []


@needs_coco
def test_the_quick_form_draws_writes_and_goes_on(tmp_path, capsys, monkeypatch):
    file, folder = tmp_path / "rows.json", tmp_path / "figures"
    words = [*QUICK, "--quiet", "--json", str(file), "--figures", str(folder)]
    assert command.main(words) == 0
    text = capsys.readouterr().out
    assert "best at 40 n" in text and "f8 Rosenbrock" in text
    rows = json.loads(file.read_text())
    assert len(rows) == 2 * 4 * 2 and {row["evaluations"] for row in rows} == {50, 200}
    assert all({"versions", "seconds", "overhead", "error"} <= row.keys() for row in rows)
    assert sorted(path.name for path in folder.iterdir()) == [
        "blackbox-profiles.png",
        "blackbox-profiles.svg",
    ]
    # The same command again computes nothing; a lost run is made up for, the others stay.
    monkeypatch.setattr(measure, "perform", lambda run: pytest.fail(f"{run} again"))
    assert command.main(words) == 0
    assert capsys.readouterr().out == text
    monkeypatch.undo()
    store.save(rows[2:], file)
    assert command.main(words) == 0
    again = json.loads(file.read_text())
    assert again[:-2] == rows[2:] and measure.key(again[-1]) == measure.key(rows[1])


@needs_coco
def test_rows_are_kept_when_a_run_is_interrupted(tmp_path, monkeypatch):
    file, original = tmp_path / "rows.json", measure.perform

    def second_time(run):
        if run.method == "powell":
            raise KeyboardInterrupt
        return original(run)

    monkeypatch.setattr(measure, "perform", second_time)
    assert command.main([*QUICK, "--quiet", "--json", str(file)]) == 130
    assert {row["method"] for row in store.load(file)} == {"cocd", "l-bfgs-b"}
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


@needs_coco
def test_an_estimate_computes_nothing_else(capsys, monkeypatch):
    monkeypatch.setattr(measure, "perform", lambda run: pytest.fail(f"{run}"))
    assert command.main([*QUICK, "--estimate"]) == 0
    said = capsys.readouterr()
    assert "8 of 8 runs to do, 1,600 evaluations, about 0." in said.err and not said.out


def test_time_that_is_up_begins_no_run():
    runs = [Run(FREE, "spsa", (1,))]
    assert measure.measure(runs, minutes=-1) == []
    assert len(measure.measure(runs)) == 1


def test_overhead_has_a_table_of_its_own(capsys):
    words = ["blackbox", "--suite", "overhead", "--dimension", "30", "--budget", "3"]
    assert command.main([*words, "--quiet", "--method", "cocd", "spsa"]) == 0
    text = capsys.readouterr().out
    assert "Overhead at n = 30" in text and "cocd" in text and "best at" not in text


def test_a_missing_package_is_skipped_with_its_reason(monkeypatch, capsys):
    away = peers.Method("cma", peers.cma, {"no_such_cma": "cma"})
    monkeypatch.setitem(METHODS, "cma", away)
    words = ["blackbox", "--suite", "overhead", "--dimension", "5", "--budget", "3"]
    assert command.main([*words, "--method", "spsa", "cma"]) == 0
    said = capsys.readouterr()
    sentence = "cma is not installed: pip install 'cocd[blackbox]'"
    assert f"Without cma: {sentence}" in said.err and f"cma: {sentence}" in said.out
    assert command.main([*words, "--method", "cma"]) == 2
    assert sentence in capsys.readouterr().err


def test_a_package_that_cannot_be_imported_says_why(tmp_path, monkeypatch):
    (tmp_path / "clashing_package.py").write_text("raise AttributeError('np.float is gone')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert peers.missing({"clashing_package": "clash"}, "blackbox") == (
        "clash cannot be imported: AttributeError: np.float is gone"
    )


def test_a_missing_suite_is_one_sentence(monkeypatch, capsys):
    away = replace(problems.SUITES["bbob"], needs={"no_such_coco": "coco-experiment"})
    monkeypatch.setitem(problems.SUITES, "bbob", away)
    assert command.main(QUICK) == 2
    assert "coco-experiment is not installed: pip install" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["blackbox", "--suite", "bbob", "--dimension", "7"], "bbob has no problem of dimension 7"),
        (["blackbox", "--suite", "digits", "--dimension", "9"], "digits has no problem of"),
        (["blackbox", "--dimension", "20"], "--dimension needs --suite"),
    ],
)
def test_what_cannot_work_is_one_sentence(words, sentence, capsys):
    assert command.main(words) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[1]", '[{"suite": "bbob"}]', '{"a": 1}'])
def test_a_file_of_something_else_is_refused_and_left(text, tmp_path, capsys):
    file = tmp_path / "rows.json"
    file.write_text(text)
    words = ["blackbox", "--suite", "overhead", "--json", str(file)]
    assert command.main(words) == 2
    assert "does not hold rows of the benchmark blackbox" in capsys.readouterr().err
    assert file.read_text() == text


def test_the_options_of_a_problem_make_other_keys():
    keys = {
        key
        for start in ("centre", "random")
        for bounded in (False, True)
        for seed in (0, 1)
        for budgets in ((10,), (10, 20))
        for key in Run(Problem("bbob", 1, 5, 1, start, bounded), "cocd", budgets, seed).keys
    }
    assert len(keys) == 2 * 2 * 2 * 3
