"""`methods.hessian`: the measured Hessian, and when a descent asks for it."""

import numpy as np
import pytest

import cocd
from cocd.blackbox.methods import hessian
from cocd.blackbox.methods.hessian import Hessian
from cocd.blackbox.methods.rule import Box
from cocd.blackbox.stencil import stencil_of


def coupled(n, condition):
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.standard_normal((n, n)))
    weights = np.logspace(0, np.log10(condition), n)
    return basis.T @ np.diag(weights) @ basis, rng.standard_normal(n)


def measured(fun, x, h, box=None):
    stencil = stencil_of(np.arange(len(x)), x, np.full(len(x), h), box)
    seen = np.full((len(x), 2), fun(x))
    for i in range(len(x)):
        for k, end in enumerate((stencil.up[i], stencil.down[i])):
            point = x.copy()
            point[i] = x[i] if np.isnan(end) else end
            seen[i, k] = fun(point)
    c = (seen[:, 0] - 2 * fun(x) + seen[:, 1]) / h**2
    made, count = Hessian.begun(x, fun(x), stencil, seen, c), 0
    while not made.done:
        points = made.ask()
        made.tell(np.array([fun(p) for p in points]))
        count += len(points)
    return made, count


def test_a_quadratic_is_inverted_with_one_evaluation_a_pair():
    matrix, x = coupled(6, 100.0)
    made, count = measured(lambda x: float(0.5 * x @ matrix @ x), x, 1e-2)
    assert count == hessian.cost(6) == 15
    q = np.arange(1.0, 7.0)
    assert made.solve(q, np.ones(6, bool)) == pytest.approx(np.linalg.solve(matrix, q), rel=1e-6)


def test_negative_curvature_counts_by_its_size():
    made, _ = measured(lambda x: float(x[0] ** 2 - 3 * x[1] ** 2), np.ones(2), 1e-2)
    assert made.solve(np.ones(2), np.ones(2, bool)) == pytest.approx([1 / 2, 1 / 6], rel=1e-6)


def test_coordinates_that_are_held_take_no_part():
    matrix, x = coupled(4, 10.0)
    made, _ = measured(lambda x: float(0.5 * x @ matrix @ x), x, 1e-2)
    free = np.array([True, False, True, True])
    found = made.solve(np.ones(4), free)
    assert found[1] == 0
    assert found[free] == pytest.approx(np.linalg.solve(matrix[np.ix_(free, free)], np.ones(3)))


def test_a_coordinate_at_its_bound_is_not_coupled():
    matrix, x = coupled(3, 10.0)
    box = Box(np.array([x[0], -9.0, -9.0]), np.full(3, 9.0))
    made, _ = measured(lambda x: float(0.5 * x @ matrix @ x), x, 1e-2, box)
    rest = np.array([False, True, True])
    found = made.solve(np.array([0.0, 1.0, 1.0]), np.ones(3, bool))
    assert found[rest] == pytest.approx(np.linalg.solve(matrix[1:, 1:], np.ones(2)), rel=1e-5)


def test_a_value_that_failed_leaves_the_rest():
    matrix, x = coupled(4, 10.0)
    bad = []

    def fun(x):
        return float(0.5 * x @ matrix @ x)

    def failing(point):
        bad.append(1)
        return np.nan if len(bad) == 20 else fun(point)

    made, _ = measured(failing, x, 1e-2)
    assert np.isfinite(made.solve(np.ones(4), np.ones(4, bool))).all()


def test_ill_conditioning_off_the_axes_is_solved_in_a_few_sweeps():
    matrix, x0 = coupled(30, 1e6)

    def fun(x):
        return float(0.5 * x @ matrix @ x)

    result = cocd.minimize(fun, x0, maxfev=100 * 30, rng=0)
    assert result.fun < 1e-15 * fun(x0)  # without it 6e-4


def test_a_kinked_function_is_not_measured():
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((20, 10))
    search = cocd.AskTell(np.ones(10), maxfev=2_000, rng=0)
    while not search.done:
        search.tell([float(np.abs(matrix @ p).sum()) for p in search.ask()])
        assert getattr(search._rule._stage, "_hessian", None) is None


def test_a_run_goes_on_to_the_bit_while_it_is_measured():
    matrix, x0 = coupled(8, 1e5)

    def fun(x):
        return float(0.5 * x @ matrix @ x)

    def drive(search, phases):
        under_way = 0
        while phases and not search.done:
            search.tell([fun(p) for p in search.ask()])
            phases -= 1
            under_way += getattr(search._rule._stage, "_unfinished", None) is not None
        return under_way

    whole = cocd.AskTell(x0, maxfev=900, rng=1)
    assert drive(whole, 10_000) > 3
    total = 0
    while True:
        first = cocd.AskTell(x0, maxfev=900, rng=1)
        drive(first, total)
        if first.done:
            break
        second = cocd.AskTell(x0, maxfev=900, rng=2)
        second.load_state_dict(first.state_dict())
        drive(second, 10_000)
        assert second.x.tobytes() == whole.x.tobytes() and second.nfev == whole.nfev
        total += 3
