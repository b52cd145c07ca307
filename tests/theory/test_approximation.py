"""The paper's bounds on functions whose constants are known, and where they stop to hold."""

import doctest
from pathlib import Path

import numpy as np
import pytest
from known import SPLITS, Quadratic, Waves, run, slopes

from cocd import reference, theory

# --- L_eps <= L ---------------------------------------------------------------------------------


def measured(f, points, eps):
    """The largest change of a difference over a distance, between neighbours among `points`."""
    values = np.array([slopes(f, x, eps) for x in points])
    apart = np.linalg.norm(np.diff(points, axis=0), axis=1)[:, None]
    return theory.smoothness_from_below(values[:-1], values[1:], apart)


def line(n, reach, seed, count=400):
    """Neighbouring points along a random line through the origin."""
    direction = np.random.default_rng(seed).normal(size=n)
    return np.linspace(-reach, reach, count)[:, None] * direction / np.linalg.norm(direction)


@pytest.mark.parametrize("eps", [1e-3, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_differences_are_no_rougher_than_the_function(eps, seed):
    for f in (Waves(3, 4, seed), Quadratic(4, seed)):
        seen = measured(f, line(len(f.start), 4.0, seed), eps)
        rounding = 1e-13 / eps / 0.02  # of f, through the quotient, over the distance of points
        assert 0 < seen <= f.L_eps(eps) + rounding
        assert seen <= f.L + rounding


@pytest.mark.parametrize("eps", [0.01, 0.3, 0.5, 1.0, 2.0])
def test_a_cosine_is_smoothed_by_a_sinc(eps):
    """f = a cos(w x): L = a w^2, and the difference has exactly a w^2 |sinc(w eps)|."""
    a, w = 0.7, 2.5
    seen = measured(lambda x: a * np.cos(w * x[0]), line(1, 4.0, 0, 4001), eps)
    assert seen == pytest.approx(a * w**2 * abs(np.sinc(w * eps / np.pi)), rel=1e-4, abs=1e-6)
    assert seen <= a * w**2 * (1 + 1e-9)


@pytest.mark.parametrize("eps", [0.1, 0.5, 0.9, 2.0, 5.0])
def test_a_piecewise_function_is_smoothed_once_eps_spans_its_bend(eps):
    """Huber's function: L = 1; the difference has min(1, 1 / eps)."""

    def huber(x):
        return float(np.where(abs(x) < 1, x**2 / 2, abs(x) - 0.5)[0])

    assert measured(huber, line(1, 8.0, 0, 1601), eps) == pytest.approx(min(1, 1 / eps), rel=1e-9)


@pytest.mark.parametrize("eps", [0.1, 0.5, 2.0])
def test_differences_see_beyond_the_hull_of_the_iterates(eps):
    """f = x^4 / 4 on |x| <= 1: L = 3 there, the difference x^3 + x eps^2 has 3 + eps^2.

    The paper defines L on the convex hull of the iterates; L_eps <= L needs eps more on all
    sides, where L = 3 (1 + eps)^2.
    """
    seen = measured(lambda x: float(x[0] ** 4 / 4), line(1, 1.0, 0, 4001), eps)
    assert seen == pytest.approx(3 + eps**2, rel=1e-3)
    assert 3 < seen <= 3 * (1 + eps) ** 2


def test_L_eps_of_a_quadratic_is_its_longest_row():
    """The 2 -> infinity norm of the paper: the longest row of A, at most its largest eigenvalue."""
    f = Quadratic(5, seed=3)
    row = f.A[np.linalg.norm(f.A, axis=1).argmax()]
    along = np.linspace(-1, 1, 20)[:, None] * row / np.linalg.norm(row)
    for eps in (0.1, 10.0):
        assert measured(f, along, eps) == pytest.approx(f.L_eps(eps), rel=1e-6)
    assert f.L_eps(1.0) < f.L


# --- the approximation theorem ------------------------------------------------------------------


@pytest.mark.parametrize(("n", "B"), SPLITS)
@pytest.mark.parametrize("eps", [0.05, 1.0])
@pytest.mark.parametrize("make", [Quadratic, lambda n, seed: Waves(n, 6, seed)])
def test_the_error_bound_holds_at_every_step_once_every_coordinate_is_estimated(make, n, B, eps):
    f = make(n, seed=n + B)
    lr = 0.5 * theory.largest_learning_rate(f.L, n, B)
    lags = -(-n // B) - 1
    points, largest = [], 0.0
    for t, (x, g) in enumerate(run(f, lr=lr, eps=eps, B=B, steps=5 * (lags + 1), warm=False)):
        points.append(x)
        if t < lags:
            continue  # the buffer is cold
        delta = theory.step_bound(points[-lags - 1 :])
        error = np.linalg.norm(g - slopes(f, x, eps))
        sharp = theory.euclidean_error_bound(n, B, f.L_eps(eps), delta)
        assert error <= sharp * (1 + 1e-9) + 1e-12 / eps
        assert sharp <= theory.error_bound(n, B, f.L_eps(eps), delta) * (1 + 1e-12)
        largest = max(largest, error)
    assert (largest > 1e-4) == (n > B)


def test_the_error_bound_fails_from_a_cold_buffer():
    """The first step knows B coordinates; the error is the rest of the gradient, not staleness."""
    f = Quadratic(6, seed=0)
    x, g = next(run(f, lr=0.01, eps=0.1, B=2, steps=1, warm=False))
    error = np.linalg.norm(g - slopes(f, x, 0.1))
    assert error == pytest.approx(np.linalg.norm(slopes(f, x, 0.1)[2:]))
    assert error > theory.error_bound(6, 2, f.L, theory.step_bound([x])) == 0


@pytest.mark.parametrize(("n", "B"), SPLITS)
def test_the_bound_sums_the_lags_and_the_sharper_one_their_squares(n, B):
    lags = np.arange(n) // B  # in the order of their refreshes, newest first
    assert theory.error_bound(n, B, 2.0, 0.5) == lags.sum()
    assert theory.euclidean_error_bound(n, B, 2.0, 0.5) == pytest.approx(np.linalg.norm(lags))
    assert theory.staleness(n, B) == pytest.approx(2 * lags.mean())
    if n % B == 0:
        assert theory.staleness(n, B) == n / B - 1


@pytest.mark.parametrize("n", [4, 100, 10_000])
def test_the_corollaries_have_the_papers_orders(n):
    worst, efficient, full = (
        regime(n, 3.0, 1e-9)
        for regime in (theory.worst_case, theory.efficient_regime, theory.full_budget)
    )
    assert worst.error == pytest.approx(3e-9 * n * (n - 1) / 2)
    assert worst.step * 3 * n**3 / 2 == pytest.approx(n / (n - 1))  # O(n^-3)
    assert efficient.error == pytest.approx(3e-9 * n * (n**0.5 - 1) / 2)
    assert efficient.step * 3 * n**2 / 2 == pytest.approx(n**0.5 / (n**0.5 - 1))  # O(n^-2)
    assert full == (n, 0.0, 0.0, np.inf)
    for regime in (worst, efficient):
        kept = theory.error_bound(n, regime.budget, 3.0, regime.step)
        assert kept == pytest.approx(regime.accuracy)


# --- learning rates -----------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("n", "m", "B"), [(6, 6, 2), (7, 7, 3), (7, 5, 2), (8, 3, 3), (5, 4, 1)])
def test_the_ages_weights_are_those_that_a_run_applies(n, m, B, gamma):
    """On a linear f all estimates are the same at any time, so g shows the weights alone."""
    c = np.arange(1.0, n + 1)
    steps = reference.cocd(
        lambda x: float(c @ x), np.zeros(n), lr=0.1, eps=0.5, B=B, m=m, gamma=gamma
    )
    for _ in range(n + 1):
        next(steps)  # warm
    weights = theory.age_weights(gamma, m, n, B)
    applied = np.array([next(steps).g / c for _ in range(n)])  # B whole sweeps
    for g in applied:
        assert g.sum() == pytest.approx(B * weights.sum())
        assert g.mean() == pytest.approx(theory.effective_learning_rate(1.0, gamma, m, n, B))
    per_estimate = applied.sum() / (n * B)  # n steps make n B estimates
    assert per_estimate == pytest.approx(theory.learning_rate_per_estimate(1.0, gamma, m, n, B))


def test_the_total_has_the_closed_forms():
    assert theory.learning_rate_per_estimate(0.01, 0.9, 60, 60, 6) == pytest.approx(
        0.01 * (1 - 0.9**10) / 0.1
    )
    assert theory.learning_rate_per_estimate(0.01, 1.0, 30, 60, 6) == pytest.approx(0.05)
    assert theory.effective_learning_rate(0.01, 1.0, 60, 60, 6) == pytest.approx(0.01)


# --- estimates from a run, arguments, documentation ----------------------------------------------


def test_smoothness_from_a_run_is_a_lower_bound():
    f = Waves(5, 4, seed=1)
    points = np.array([x for x, _ in run(f, lr=0.02, eps=0.5, B=2, steps=60, warm=True)])
    seen = measured(f, points, 0.5)
    assert 0.05 * f.L_eps(0.5) < seen <= f.L_eps(0.5)
    assert theory.smoothness_from_below([1.0], [2.0], 0.0) == 0
    assert theory.step_bound(points[:1]) == 0


def test_arrays_are_broadcast():
    bound = theory.error_bound(100, np.array([1, 10, 100]), np.array([[1.0], [2.0]]), 0.1)
    assert bound.shape == (2, 3)
    assert bound[1, 1] == theory.error_bound(100, 10, 2.0, 0.1)
    assert theory.largest_step(100, [10, 100], 1.0, 1.0)[1] == np.inf
    assert isinstance(theory.error_bound(np.int64(5), np.int64(2), np.float32(1), 1), float)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: theory.error_bound(4, 5, 1.0, 1.0), "B=5"),
        (lambda: theory.error_bound(4, 0, 1.0, 1.0), "B "),
        (lambda: theory.error_bound(4.5, 1, 1.0, 1.0), "4.5"),
        (lambda: theory.error_bound(4, 1, -1.0, 1.0), "L "),
        (lambda: theory.error_bound(4, 1, 1.0, -1.0), "delta"),
        (lambda: theory.error_bound(4, 1, 1.0, np.nan), "delta"),
        (lambda: theory.error_bound(4, 1, "a", 1.0), "'a'"),
        (lambda: theory.worst_case(0, 1.0, 1.0), "n "),
        (lambda: theory.largest_step(4, 1, 1.0, -1.0), "error"),
        (lambda: theory.convergence_constants(0.0, 1.0, 4, 1), "alpha"),
        (lambda: theory.convergence_rate(1.0, 1.0, 1.0, 2, 1), "below 0.66"),
        (lambda: theory.convergence_rate(0.1, 1.0, 2.0, 2, 1), "mu=2.0"),
        (lambda: theory.convergence_rate(0.1, 1.0, 0.0, 2, 1), "mu"),
        (lambda: theory.convergence_bound(-1, 1.0, 0.1, 1.0, 1.0, 2, 1), "t "),
        (lambda: theory.age_weights(1.1, 4, 4, 1), "gamma"),
        (lambda: theory.age_weights(0.5, 5, 4, 1), "m=5"),
        (lambda: theory.age_weights(0.5, 1, 4, 2), "B=2"),
        (lambda: theory.learning_rate_per_estimate(-1.0, 1.0, 4, 4, 1), "alpha"),
        (lambda: theory.step_bound([1.0, 2.0]), "points"),
        (lambda: theory.smoothness_from_below([1.0], [np.inf], 1.0), "fresh"),
    ],
)
def test_bad_arguments_are_named(call, names):
    with pytest.raises(ValueError, match=names):
        call()


def test_the_page_on_theory_says_what_the_code_gives():
    page = Path(__file__).parents[2] / "docs" / "theory.md"
    if not page.exists():
        pytest.skip("docs are not part of a source distribution")
    failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 5
    assert not failed
