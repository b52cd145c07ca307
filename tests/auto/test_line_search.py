"""The automatic step: its search, and `minimize` without a learning rate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cocd
from cocd.auto.line_search import Length, Search


def ellipsoid(n, condition):
    weights = np.logspace(0, np.log10(condition), n)
    return lambda x: float((weights * x * x).sum())


def rosenbrock(x):
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def rotated(n, condition):
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))
    inner = ellipsoid(n, condition)
    return lambda x: inner(basis @ x)


def start(n, seed=1):
    return np.random.default_rng(seed).standard_normal(n)


# --- with no argument but fun, x0 and maxfev --------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("fun", "n", "maxfev", "below"),
    [
        (ellipsoid(100, 1e6), 100, 20_000, 1e-8),
        (ellipsoid(1000, 100), 1000, 200_000, 1e-8),
        (rotated(100, 100), 100, 200_000, 1e-4),
    ],
    ids=["ellipsoid", "large", "rotated"],
)
def test_quadratics(fun, n, maxfev, below, seed):
    x0 = start(n, seed)
    result = cocd.minimize(fun, x0, maxfev=maxfev)
    assert result.fun < below * fun(x0) and result.nfev <= maxfev


@pytest.mark.parametrize("x0", [np.zeros(100), np.tile([-1.2, 1.0], 50)], ids=["zeros", "usual"])
def test_rosenbrock(x0):
    result = cocd.minimize(rosenbrock, x0, maxfev=600_000)
    assert result.fun < 1e-4


def test_a_noisy_sphere():
    rng = np.random.default_rng(3)
    x0 = start(20)
    result = cocd.minimize(
        lambda x: (x @ x) * (1 + 0.01 * rng.standard_normal()), x0, maxfev=20_000
    )
    assert result.x @ result.x < 0.1 * (x0 @ x0)


@pytest.mark.parametrize("budget", [1, 3, 10])
def test_minimize_with_blocks_solves_separable_problems(budget):
    fun, x0 = ellipsoid(10, 1e4), start(10)
    result = cocd.minimize(fun, x0, compute_budget=budget, maxfev=5_000)
    assert result.fun < 1e-8 * fun(x0)


def test_bounds_are_kept_and_a_minimum_on_a_face_is_found():
    seen = []

    def fun(x):
        seen.append(x.copy())
        return float(((x - 2) ** 2).sum())

    result = cocd.minimize(fun, np.zeros(5), bounds=[(-1, 1)] * 5, maxfev=2_000)
    assert np.allclose(result.x, 1) and np.abs(seen).max() <= 1


@pytest.mark.parametrize("option", [{"decay": 0.5}, {"memory_budget": 2}])
def test_a_memory_needs_a_learning_rate(option):
    with pytest.raises(ValueError, match="not an option of method='auto'"):
        cocd.minimize(rosenbrock, np.zeros(3), **option)


# --- never worse, never lost ------------------------------------------------------------------


AWKWARD = {
    "steps": lambda x: float(np.floor(10 * np.abs(x)).sum()),
    "kinks": lambda x: float(np.abs(x).sum()),
    "exponential": lambda x: float(np.exp(np.clip(30 * x, -700, 700)).sum()),
    "linear": lambda x: float(np.clip(x, -1e6, 1e6).sum()),
    "holes": lambda x: float("nan") if x[0] < 0.1 else float((x**2).sum()),
    "constant": lambda x: 1.0,
    "concave": lambda x: -float((np.clip(x, -1e3, 1e3) ** 2).sum()),
    "huge": lambda x: 1e300 * float((x**2).sum() + 1),
    "tiny": lambda x: 1e-300 * float((x**2).sum() + 1),
}


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.filterwarnings("ignore:overflow")
def test_awkward_functions_are_not_made_worse(name):
    fun, x0 = AWKWARD[name], np.array([0.5, -0.7, 2.0])
    result = cocd.minimize(fun, x0, maxfev=500)
    assert result.fun <= fun(x0) and result.fun == fun(result.x) and result.nfev <= 500


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(0, 10_000),
    st.floats(-6, 6),
    st.integers(1, 400),
    st.sampled_from([None, 1, 2]),
)
def test_results_are_never_above_the_start(n, seed, exponent, maxfev, budget):
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((n, n)) * 10**exponent
    x0 = rng.standard_normal(n)

    def fun(x):
        return float(np.sin(matrix @ x).sum() + 1e-3 * x @ x)

    budget = None if budget is None else min(budget, n)
    result = cocd.minimize(fun, x0, maxfev=maxfev, compute_budget=budget)
    assert result.fun <= fun(x0) and result.nfev <= maxfev


# --- the search along a step ------------------------------------------------------------------


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.sampled_from([(1.0,), (0.25, 1.0, 3.0)]))
def test_the_search_finds_the_minimum_of_a_parabola(where, bend, around):
    def along(s):
        return bend * (s - where) ** 2

    search = Search(along(0.0), -2 * bend * where, 0.9 * where, around=around)
    while search.lengths:
        search.learn([along(s) for s in search.lengths])
    assert abs(search.best - where) < 1e-6 * where
    assert search.value <= along(0.0)


@given(st.lists(st.floats() | st.just(float("nan")), min_size=4, max_size=4), st.floats(1e-6, 1e6))
def test_whatever_comes_back_the_outcome_is_not_above_the_start(values, length):
    search, answers = Search(1.0, -1.0, length), iter(values)
    while search.lengths:
        assert all(s > 0 and np.isfinite(s) for s in search.lengths)
        search.learn([next(answers) for _ in search.lengths])
    assert search.value <= 1.0 and search.best >= 0


def test_where_all_is_rounding_the_slope_is_believed():
    search = Search(1e6, -1.0, 0.01, around=(1.0,), rounding=1.0)
    while search.lengths:
        search.learn([1e6 - 0.1] * len(search.lengths))
    assert search.best == pytest.approx(0.03)


def test_a_length_follows_and_stays_within_reason():
    length = Length(1.0)
    for _ in range(200):
        length.observe(length.value, 100 * length.value)
    assert length.value == 1e3
    for _ in range(200):
        length.observe(length.value, 0.0)
    assert length.value == 1e-6
