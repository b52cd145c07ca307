"""`minimize` and `scipy_method`: SciPy's conventions, failures, Ctrl-C."""

import signal
import threading

import numpy as np
import pytest
import scipy.optimize
from blackboxes import BAD, bowl, broken, columns, columns_or_raise, nan, raises, shape

import cocd

PLAIN = {"method": "cocd", "lr": 0.01, "eps": 0.1, "compute_budget": 4, "decay": 0.9}


def tracked(fun):
    """The function, and a list of where it was called."""
    seen = []

    def call(x, *args):
        seen.append(np.array(x))
        return fun(x, *args)

    return call, seen


def test_is_the_search_driven():
    fun, seen = tracked(bowl)
    result = cocd.minimize(fun, np.ones(6), **PLAIN, maxfev=100)
    search = cocd.AskTell(np.ones(6), **PLAIN, maxfev=100)
    asked = []
    while not search.done:
        points = search.ask()
        asked.extend(points)
        search.tell([bowl(p) for p in points])
    assert np.array_equal(seen, asked)
    assert result.x.tobytes() == search.x.tobytes() and result.fun == search.fun
    assert result.nfev == len(seen) and result.nit == search.nit and result.status == 1
    assert (result.nfailed, result.nretried, result.failures) == (0, 0, [])
    assert "maxfev=100" in str(result)


@pytest.mark.parametrize("start", [2.0, [2.0], [[2.0, 1.0]], np.ones((2, 1, 3)), [3, 4]])
def test_x_has_the_shape_of_x0(start):
    fun, seen = tracked(lambda x: float(np.sum(x**2)))
    result = cocd.minimize(fun, start, method="cocd", lr=0.1, eps=0.01, maxfev=50)
    assert {x.shape for x in seen} == {np.shape(start)} == {result.x.shape}
    assert result.x.dtype == np.float64 and result.fun == float(np.sum(result.x**2))


def test_args_as_in_scipy():
    def fun(x, a):
        return a * bowl(x)

    options = {"method": "cocd", "lr": 0.1, "eps": 0.1, "maxfev": 20}
    assert cocd.minimize(fun, [1.0], args=(2,), **options).fun < 0.1
    assert cocd.minimize(fun, [1.0], args=2, **options).fun < 0.1


def test_a_function_may_write_into_x_or_keep_x():
    kept = []

    def rude(x):
        value = bowl(x)
        x[:] = np.nan
        kept.append(x)
        return value

    assert np.array_equal(
        cocd.minimize(rude, np.ones(5), **PLAIN, maxiter=9).x,
        cocd.minimize(bowl, np.ones(5), **PLAIN, maxiter=9).x,
    )


def test_vectorized_functions_get_columns():
    shapes = []

    def fun(x):
        shapes.append(x.shape)
        return columns(x)

    one = cocd.minimize(fun, np.ones(6), **PLAIN, maxiter=5, vectorized=True)
    two = cocd.minimize(bowl, np.ones(6), **PLAIN, maxiter=5)
    assert shapes == [(6, 9)] * 5 + [(6, 1)]
    assert one.x == pytest.approx(two.x, rel=1e-12) and one.nfev == two.nfev


def test_the_result_is_never_above_the_start():
    for lr in (1e-3, 0.3, 10.0, 1e300):
        result = cocd.minimize(bowl, np.ones(5), method="cocd", lr=lr, eps=0.1, maxfev=300)
        assert result.fun <= bowl(np.ones(5)) and np.isfinite(result.x).all()


# --- the callback --------------------------------------------------------------------------------


def test_the_callback_sees_every_step():
    seen = []
    result = cocd.minimize(bowl, np.ones(6), **PLAIN, maxiter=7, callback=seen.append)
    assert [r.nit for r in seen] == list(range(1, 8)) and seen[-1].nfev == 7 * 9
    best = [r.fun for r in seen]
    assert best == sorted(best, reverse=True) and result.fun <= best[-1]
    assert all(bowl(r.x) == r.fun for r in seen)


def test_the_callback_may_stop():
    def callback(intermediate_result):
        if intermediate_result.nit == 3:
            raise StopIteration

    result = cocd.minimize(bowl, np.ones(6), **PLAIN, callback=callback)
    assert result.nit == 3 and result.status == 99 and not result.success
    assert "StopIteration" in result.message


def test_what_the_callback_raises_gets_out():
    def callback(result):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        cocd.minimize(bowl, np.ones(6), **PLAIN, callback=callback)


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fun", "word"),
    [(raises, "RuntimeError: the mesh is bad"), (nan, "nan"), (shape, "shape (6,)")],
)
def test_a_probe_that_fails_costs_itself(fun, word):
    result = cocd.minimize(fun, np.ones(6), **PLAIN, maxiter=3)
    assert result.nfailed == 2 and result.nretried == 0 and result.nit == 3
    ((why, count),) = result.failures
    assert word in why and count == 2
    assert result.fun < bowl(np.ones(6))


def test_vectorized_a_call_that_raises_is_made_point_by_point():
    result = cocd.minimize(columns_or_raise, np.ones(6), **PLAIN, maxiter=3, vectorized=True)
    single = cocd.minimize(raises, np.ones(6), **PLAIN, maxiter=3)
    assert result.nfailed == single.nfailed == 2
    assert result.x == pytest.approx(single.x, rel=1e-12)


def test_vectorized_the_wrong_number_of_values():
    with pytest.raises(ValueError, match=r"must return 9 values.*\(4,\)"):
        cocd.minimize(lambda x: np.ones(4), np.ones(6), **PLAIN, vectorized=True)


def test_too_many_failures_end_with_the_best_point():
    result = cocd.minimize(broken, np.ones(40), method="cocd", lr=0.1, eps=0.1, compute_budget=40)
    assert result.status == 3 and not result.success and result.fun == bowl(np.ones(40))
    assert "50 evaluations in a row" in result.message and "nan" in result.message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, None, 1j, "3", [1.0, 2.0]])
def test_a_start_that_cannot_be_evaluated_is_an_error(value):
    with pytest.raises(cocd.NonFiniteLoss, match="x0") as refused:
        cocd.minimize(lambda x: value, np.ones(3), method="cocd", lr=0.1, eps=0.1)
    assert "\n" not in str(refused.value)


def test_a_function_that_always_raises_says_what():
    with pytest.raises(cocd.NonFiniteLoss, match=r"x0.*TypeError: not like this"):
        cocd.minimize(
            lambda x: (_ for _ in ()).throw(TypeError("not like this")),
            [1.0],
            method="cocd",
            lr=0.1,
        )


def test_raise_gets_out():
    with pytest.raises(cocd.NonFiniteLoss, match="the mesh is bad"):
        cocd.minimize(raises, np.ones(6), **PLAIN, nonfinite="raise")


def test_walking_into_infinity_ends_with_the_best_point():
    def fun(x):
        return bowl(x) if x[0] > 0.5 else np.inf

    result = cocd.minimize(fun, np.ones(3), method="cocd", lr=0.02, eps=0.05, maxfev=500)
    assert result.status == 3 and "inf" in result.message
    assert (
        result.fun < 0.1 * bowl(np.ones(3)) and result.fun == bowl(result.x) and result.x[0] > 0.5
    )


# --- Ctrl-C --------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [2, 9, 10, 25])
def test_ctrl_c_returns_the_best_point(at):
    seen = []

    def fun(x):
        seen.append(bowl(x))
        if len(seen) == at:
            signal.raise_signal(signal.SIGINT)
        return seen[-1]

    result = cocd.minimize(fun, np.ones(6), **PLAIN)
    assert result.status == 5 and not result.success and "interrupted" in result.message
    assert result.nfev == at - 1 and result.fun == min(seen[:-1])


def test_ctrl_c_in_the_callback():
    def callback(result):
        signal.raise_signal(signal.SIGINT)

    result = cocd.minimize(bowl, np.ones(6), **PLAIN, callback=callback)
    assert result.status == 5 and result.nit == 1


def test_ctrl_c_at_the_first_evaluation():
    def fun(x):
        raise KeyboardInterrupt

    result = cocd.minimize(fun, np.ones(2), method="cocd", lr=0.1)
    assert result.status == 5 and np.isnan(result.fun) and result.x.tolist() == [1, 1]


def test_runs_outside_of_the_main_thread():
    results = []
    thread = threading.Thread(
        target=lambda: results.append(cocd.minimize(bowl, np.ones(6), **PLAIN, maxiter=3))
    )
    thread.start()
    thread.join()
    assert results[0].nit == 3


# --- inside SciPy --------------------------------------------------------------------------------


def by_scipy(fun, x0, **keywords):
    options = {**PLAIN, **keywords.pop("options", {})}
    return scipy.optimize.minimize(fun, x0, method=cocd.scipy_method, options=options, **keywords)


def test_as_a_method_of_scipy():
    one = by_scipy(bowl, np.ones(6), options={"maxiter": 5})
    two = cocd.minimize(bowl, np.ones(6), **PLAIN, maxiter=5)
    assert one.x.tobytes() == two.x.tobytes() and one.nfev == two.nfev
    assert isinstance(one, scipy.optimize.OptimizeResult)


def test_what_scipy_passes_on():
    seen = []
    result = by_scipy(
        lambda x, a: a * bowl(x),
        np.ones(6),
        args=(2.0,),
        tol=1e-3,
        bounds=scipy.optimize.Bounds(0.5, 1),
        callback=seen.append,
        options={"disp": True},
    )
    assert result.success and "ftol=0.001" in result.message
    assert result.x == pytest.approx(0.5 * np.ones(6))
    assert all(isinstance(x, np.ndarray) for x in seen) and len(seen) == result.nit


def test_scipys_callback_by_name():
    seen = []

    def callback(intermediate_result):
        seen.append(intermediate_result.fun)
        raise StopIteration

    assert by_scipy(bowl, np.ones(6), callback=callback).status == 99 and len(seen) == 1


def test_what_scipy_may_not_pass():
    with pytest.raises(ValueError, match="constraints"):
        by_scipy(bowl, np.ones(6), constraints=[{"type": "eq", "fun": lambda x: x[0]}])
    with pytest.raises(ValueError, match="gtol"):
        by_scipy(bowl, np.ones(6), options={"gtol": 1e-3})
    with pytest.warns(RuntimeWarning, match="jac"):
        by_scipy(bowl, np.ones(6), jac=lambda x: 2 * x, options={"maxiter": 1})


# --- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"fun": 3}, "fun"),
        ({"callback": 3}, "callback"),
        ({"workers": 0}, "workers"),
        ({"workers": -2}, "workers"),
        ({"workers": 1.5}, "workers"),
        ({"workers": "all"}, "workers"),
        ({"workers": True}, "workers"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": np.nan}, "timeout"),
        ({"timeout": 1.0, "workers": map}, "timeout"),
        ({"checkpoint": 3.5}, "checkpoint"),
        ({"checkpoint": "no/such/folder/file"}, "checkpoint"),
        ({"checkpoint": "."}, "checkpoint"),
        ({"checkpoint_every": -1}, "checkpoint_every"),
    ],
)
def test_bad_arguments_get_one_sentence(options, word):
    fun, seen = tracked(bowl)
    options = {"fun": fun, **options}
    with pytest.raises(ValueError, match=word) as refused:
        cocd.minimize(options.pop("fun"), np.ones(6), **PLAIN, **options)
    assert "\n" not in str(refused.value) and not seen


def test_the_bad_probe_is_where_the_tests_think():
    """n = 6, B = 4: the fourth coordinate is probed in steps 1 and 3, and stays where it is."""
    fun, seen = tracked(nan)
    cocd.minimize(fun, np.ones(6), **PLAIN, maxiter=3)
    assert [k for k, x in enumerate(seen) if x[3] > BAD] == [7, 21]
