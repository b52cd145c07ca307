"""The search whose caller evaluates: turns, partial answers, limits."""

import numpy as np
import pytest
import torch
from blackboxes import bowl
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds
from searches import PLAIN, drive, same

import cocd

# --- the paper's method --------------------------------------------------------------------------


@given(
    n=st.integers(1, 9),
    data=st.data(),
    lr=st.floats(1e-4, 0.1),
    eps=st.floats(1e-3, 1.0),
    gamma=st.floats(0, 1),
)
@settings(max_examples=40, deadline=None)
def test_is_the_torch_optimizer_to_the_bit(n, data, lr, eps, gamma):
    m = data.draw(st.integers(1, n))
    B = data.draw(st.integers(1, m))
    x0 = np.random.default_rng(n).standard_normal(n)

    def f(x):
        return float((x**2 * np.arange(1, n + 1)).sum() + np.sin(x).sum() * x[0])

    x = torch.tensor(x0, requires_grad=True)
    options = {"lr": lr, "eps": eps, "compute_budget": B, "memory_budget": m, "decay": gamma}
    optimizer = cocd.CoCD([x], **options)
    search = cocd.AskTell(x0, method="cocd", **options, ftol=None, maxiter=3 * n)
    for _ in range(3 * n):
        optimizer.step(lambda: f(x.detach().numpy()))
        drive(search, f, 1)
        assert search._rule.x.tobytes() == x.detach().numpy().tobytes()
        assert search.nfev == optimizer.evaluations
    drive(search, f)
    assert search.nfev == optimizer.evaluations + 1  # the last look
    assert search.nit == 3 * n


def test_batches_are_the_point_and_its_probes():
    search = cocd.AskTell(np.zeros(3), method="cocd", lr=0.1, eps=0.5, compute_budget=2)
    expected = [[0, 0, 0], [0.5, 0, 0], [-0.5, 0, 0], [0, 0.5, 0], [0, -0.5, 0]]
    assert search.ask().tolist() == expected
    assert search.ask().tolist() == expected


def test_writing_into_the_points_harms_nothing():
    here, there = (cocd.AskTell(np.ones(3), **PLAIN, maxiter=5) for _ in range(2))
    while not here.done:
        points = here.ask()
        values = [bowl(p) for p in points]
        points[:] = np.nan
        here.tell(values)
    drive(there)
    assert same(here.state_dict(), there.state_dict())


# --- limits and results --------------------------------------------------------------------------


@pytest.mark.parametrize("maxfev", range(1, 30))
def test_maxfev_is_kept_and_the_last_iterate_is_seen(maxfev):
    search = cocd.AskTell(np.ones(4), **PLAIN, maxfev=maxfev)
    seen = drive(search)
    assert len(seen) == search.nfev <= maxfev
    assert maxfev - search.nfev <= 2  # too few for a probe and the last look
    assert np.array_equal(seen[-1], search._rule.x)
    result = search.result
    assert result.status == 1 and not result.success and f"maxfev={maxfev}" in result.message
    assert result.fun == min(map(bowl, seen)) == bowl(result.x)


def test_after_maxiter_the_last_iterate_is_evaluated():
    search = cocd.AskTell(np.ones(4), **PLAIN, maxiter=3)
    seen = drive(search)
    assert (search.nit, search.nfev, search.result.status) == (3, 3 * 5 + 1, 2)
    assert np.array_equal(seen[-1], search._rule.x)


def test_converges_and_says_so():
    search = cocd.AskTell(np.ones((2, 2)), method="cocd", lr=0.1, eps=0.1, maxfev=10_000)
    drive(search)
    result = search.result
    assert result.success and result.status == 0 and "ftol=1e-10" in result.message
    assert result.x.shape == (2, 2) and result.fun < 1e-9 and result.nfev < 10_000


def test_without_limits_there_is_one():
    search = cocd.AskTell(np.ones(2), method="cocd", lr=0.0, eps=0.1, ftol=None)
    drive(search, lambda x: 1.0)
    assert search.result.status == 1 and search.nfev <= 3000


def test_the_best_point_is_there_at_any_moment():
    search = cocd.AskTell(np.ones(3), **PLAIN)
    assert np.isnan(search.fun) and search.x.tolist() == [1, 1, 1]
    assert search.result.status == -1 and not search.result.success
    points = search.ask()
    search.tell([5.0], index=[3])
    assert search.fun == 5.0 and np.array_equal(search.x, points[3])
    search.tell([6.0, 4.0], index=[0, 2])
    assert search.fun == 4.0 and np.array_equal(search.x, points[2])
    search.x[:] = 0  # a copy
    assert np.array_equal(search.x, points[2])


def test_diverging_ends_with_the_best_point():
    search = cocd.AskTell(np.ones(3), method="cocd", lr=1e155, eps=1.0, compute_budget=3)
    drive(search, lambda x: float((np.abs(x) ** 2).sum()) if np.abs(x).max() < 1e150 else 1e300)
    assert search.result.status in (0, 4) and search.fun <= 3.0


# --- turns ---------------------------------------------------------------------------------------


@given(st.permutations(range(5)), st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_partial_answers_in_any_order(order, cut):
    whole, parts = (cocd.AskTell(np.ones(4), **PLAIN, maxiter=4) for _ in range(2))
    drive(whole)
    while not parts.done:
        points = parts.ask()
        rows = [row for row in order if row < len(points)]
        for some in filter(None, (rows[:cut], rows[cut:])):
            parts.tell([bowl(points[row]) for row in some], index=some)
    assert same(whole.state_dict(), parts.state_dict())


REFUSED = [
    ([1.0] * 4, None, "5 numbers"),
    ([1.0] * 6, None, "5 numbers"),
    ([[1.0] * 5], None, "5 numbers"),
    (1.0, None, "5 numbers"),
    ([1j] * 5, None, "complex"),
    (["1"] * 5, None, "real numbers"),
    ([None] * 5, None, "real numbers"),
    (None, None, "real numbers"),
    ([[1.0], [1.0, 2.0], 1.0, 1.0, 1.0], None, "real numbers"),
    ([1.0], [5], "index"),
    ([1.0], [-1], "index"),
    ([1.0], [0.5], "index"),
    ([1.0, 2.0], [1, 1], "twice"),
    ([1.0, 2.0], [1], "1 numbers"),
    ([float("nan")], [0], "x0"),
]


@pytest.mark.parametrize(("values", "index", "word"), REFUSED)
def test_what_is_refused_changes_nothing(values, index, word):
    search = cocd.AskTell(np.ones(4), **PLAIN)
    search.ask()
    before = search.state_dict()
    with pytest.raises((ValueError, cocd.NonFiniteLoss), match=word) as refused:
        search.tell(values, index)
    assert "\n" not in str(refused.value)
    assert same(search.state_dict(), before)


def test_values_out_of_turn():
    search = cocd.AskTell(np.ones(4), **PLAIN, maxiter=2)
    with pytest.raises(ValueError, match="ask"):
        search.tell([1.0] * 5)
    search.ask()
    search.tell([1.0], index=[2])
    with pytest.raises(ValueError, match="told"):
        search.tell([1.0], index=[2])
    with pytest.raises(ValueError, match="index is needed"):
        search.tell([1.0] * 5)
    assert search.pending.tolist() == [0, 1, 3, 4]
    search.tell([1.0] * 4, index=search.pending)
    with pytest.raises(ValueError, match="ask"):  # the next batch has not been asked for
        search.tell([1.0])
    drive(search)
    with pytest.raises(ValueError, match="done"):
        search.ask()
    with pytest.raises(ValueError, match="done"):
        search.tell([1.0])


def test_numbers_of_many_kinds_are_values():
    from fractions import Fraction

    search = cocd.AskTell(np.ones(2), **PLAIN)
    search.ask()
    search.tell([1, np.float32(2), Fraction(3), torch.tensor(4.0), np.array([5.0])[0]])
    search.ask()
    search.tell(np.ones((5, 1)))
    assert search.nit == 2


# --- failures ------------------------------------------------------------------------------------


def test_a_failed_probe_keeps_the_old_estimate():
    """n = 2, B = 2, decay 1: what is not refreshed is used again."""
    search = cocd.AskTell([1.0, 1.0], method="cocd", lr=0.1, eps=0.5, compute_budget=2)
    points = search.ask()
    search.tell([bowl(p) for p in points])  # slopes 2 and 4
    assert search._rule.x == pytest.approx([0.8, 0.6])
    points = search.ask()
    search.tell([bowl(points[0]), np.nan, 0.0, *map(bowl, points[3:])])  # slopes ? and 2.4
    assert search._rule.x == pytest.approx([0.6, 0.36])
    assert search.result.nfailed == 1 and search._rule.skipped == 1 and search.nfev == 10


def test_a_failure_at_the_point_itself_costs_nothing():
    here, there = (
        cocd.AskTell([1.0, 1.0], method="cocd", lr=0.1, eps=0.5, maxiter=2) for _ in range(2)
    )
    drive(here, steps=1)
    points = here.ask()
    here.tell([np.inf, *map(bowl, points[1:])])
    drive(there, steps=2)
    assert np.array_equal(here._rule.x, there._rule.x)


def test_too_many_failures_in_a_row_end_the_search():
    search = cocd.AskTell(np.ones(40), method="cocd", lr=0.1, eps=0.1, compute_budget=40)
    first = iter([True])
    drive(search, lambda x: 7.0 if next(first, False) else np.nan)
    result = search.result
    assert result.status == 3 and "in a row" in result.message and result.fun == 7.0
    assert np.array_equal(result.x, np.ones(40)) and result.nfailed == 80


def test_raise_refuses_what_is_not_finite():
    search = cocd.AskTell(np.ones(4), **PLAIN, nonfinite="raise")
    search.ask()
    with pytest.raises(cocd.NonFiniteLoss, match="2 of 5"):
        search.tell([1.0, np.nan, np.inf, 1.0, 1.0])
    search.tell([1.0] * 5)


# --- bounds --------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_probes_and_iterates_stay_inside(data):
    n = data.draw(st.integers(1, 5))
    number = st.floats(-2, 2)
    pairs = [sorted((data.draw(number), data.draw(number))) for _ in range(n)]
    low, high = np.array(pairs).T
    x0 = np.clip(data.draw(st.lists(number, min_size=n, max_size=n)), low, high)
    eps = data.draw(st.sampled_from([None, 0.01, 0.5, 3.0]))
    search = cocd.AskTell(x0, method="cocd", lr=0.3, eps=eps, bounds=pairs, maxfev=200, rng=0)
    seen = drive(search, lambda x: float((x + 1.5) @ (x + 1.5)))
    assert (seen >= low).all() and (seen <= high).all()
    assert search.fun <= float((x0 + 1.5) @ (x0 + 1.5))


def test_differences_at_a_face_are_one_sided_and_exact_on_a_line():
    bounds = [(0, 1), (None, 1.0), (0.0, 0.1), (2, 2), (None, None)]
    x0 = [0.0, 1.0, 0.02, 2.0, 0.0]
    search = cocd.AskTell(
        x0, method="cocd", lr=1e-3, eps=0.25, compute_budget=5, bounds=bounds, maxiter=1
    )
    points = search.ask()
    moved = [[(i, p[i]) for i in range(5) if p[i] != x0[i]] for p in points]
    expected = [[], [(0, 0.25)], [(1, 0.75)], [(2, 0.1)], [(4, 0.25)], [(4, -0.25)]]
    assert moved == expected
    slope = np.array([-3.0, -2.0, 5.0, 7.0, 1.0])
    drive(search, lambda x: float(slope @ x), 1)
    step = -1e-3 * slope
    step[1], step[3] = 0.0, 0.0  # the one is at its upper face already, the other is fixed
    assert search._rule.x - x0 == pytest.approx(step)


def test_bounds_as_scipy_has_them():
    start = np.full((2, 2), 0.5)
    search = cocd.AskTell(
        start, method="cocd", lr=1.0, eps=0.1, bounds=Bounds(0, [[1, 1], [2, 2]]), maxfev=100
    )
    drive(search, lambda x: -float(x.sum()))
    assert search.x.tolist() == [[1, 1], [2, 2]] and search.result.x.shape == (2, 2)


# --- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x0", "options", "word"),
    [
        ([], {}, "x0"),
        ([1j], {}, "x0"),
        (["a"], {}, "x0"),
        ([[1], [1, 2]], {}, "x0"),
        (None, {}, "x0"),
        ([np.nan], {}, "x0 must be finite"),
        ([1.0], {"method": "cocd", "lr": -1}, "lr"),
        ([1.0], {"method": "cocd", "lr": "fast"}, "lr"),
        ([1.0], {"method": "cocd", "lr": 0.1, "eps": 0}, "eps"),
        ([1.0], {"method": "cocd", "lr": 0.1, "decay": 2}, "decay"),
        ([1.0], {"method": "cocd", "lr": 0.1, "ftol": -1}, "ftol"),
        ([1.0], {"method": "cocd", "lr": 0.1, "compute_budget": 2}, "compute_budget"),
        (
            [1.0, 2.0],
            {"method": "cocd", "lr": 0.1, "compute_budget": 2, "memory_budget": 1},
            "memory_budget",
        ),
        ([1.0], {"method": "cocd", "lr": 0.1, "maxfev": 0}, "maxfev"),
        ([1.0], {"method": "cocd", "lr": 0.1, "maxiter": 1.5}, "maxiter"),
        ([1.0], {"method": "cocd", "lr": 0.1, "nonfinite": "ignore"}, "nonfinite"),
        ([1.0], {"method": "cocd", "lr": 0.1, "rng": "seed"}, "rng"),
        ([1.0], {"method": "cocd", "lr": 0.1, "bounds": [(0, 1), (0, 1)]}, "bounds"),
        ([1.0], {"method": "cocd", "lr": 0.1, "bounds": [(2, 0)]}, "not an interval"),
        ([1.0], {"method": "cocd", "lr": 0.1, "bounds": [(np.nan, 2)]}, "not an interval"),
        ([3.0], {"method": "cocd", "lr": 0.1, "bounds": [(0, 1)]}, "x0 is outside"),
        ([3.0], {"method": "cocd", "lr": 0.1, "bounds": 7}, "bounds"),
        ([3.0], {"method": "cocd", "lr": 0.1, "bounds": Bounds([0, 0], [1, 1])}, "bounds"),
    ],
)
def test_bad_arguments_get_one_sentence(x0, options, word):
    with pytest.raises(ValueError, match=word) as refused:
        cocd.AskTell(x0, **options)
    assert "\n" not in str(refused.value)


def test_limits_may_be_written_as_whole_floats():
    assert cocd.AskTell([1.0], method="cocd", lr=0.1, maxfev=1e3)._maxfev == 1000


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"lr": 0.1}, r"lr=0.1 is not an option of method='auto': use method='cocd'"),
        ({"method": "cocd"}, "needs lr"),
        ({"method": "wasp"}, "method='wasp' needs lr"),
        (
            {"method": "wasp", "lr": 0.1, "decay": 0.9},
            "decay=0.9 is not an option of method='wasp'",
        ),
        ({"method": "wasp", "lr": 0.1, "basis": "sine"}, "basis must be"),
        ({"basis": "hadamard"}, "not an option of method='auto': use method='wasp'"),
        ({"method": "cma", "eps": 0.1}, "eps=0.1 is not an option of method='cma'"),
        ({"method": "adam"}, "method must be"),
    ],
)
def test_each_method_has_its_options(options, word):
    with pytest.raises(ValueError, match=word):
        cocd.AskTell(np.ones(2), **options)
