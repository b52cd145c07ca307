"""Workers that raise, die, hang, or do what they should."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import blackboxes
import numpy as np
import pytest
from blackboxes import alive, bowl, columns

import cocd

PLAIN = {"method": "cocd", "lr": 0.01, "eps": 0.1, "compute_budget": 4, "decay": 0.9}
ONES = np.ones(6)
SCRIPTS = Path(__file__).parents[2]


def expected(**options):
    """What a run gives in which the bad probes fail: two of them in three steps."""
    return cocd.minimize(blackboxes.nan, ONES, **PLAIN, maxiter=3, **options)


def spawned(workers):
    """An executor whose processes are not forked from this one."""
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("forkserver"))


def agrees(result, reference):
    return result.x.tobytes() == reference.x.tobytes() and result.nfev == reference.nfev


# --- every engine gives the same numbers ---------------------------------------------------------


def test_processes_of_our_own(tmp_path):
    result = cocd.minimize(
        blackboxes.noted, ONES, args=(str(tmp_path),), **PLAIN, maxiter=20, workers=2
    )
    assert agrees(result, cocd.minimize(bowl, ONES, **PLAIN, maxiter=20))
    pids = [int(entry.name) for entry in tmp_path.iterdir()]
    assert os.getpid() not in pids and pids and not alive(tmp_path)


def test_one_on_each_core():
    result = cocd.minimize(bowl, ONES, maxiter=5, workers=-1, rng=0)
    assert agrees(result, cocd.minimize(bowl, ONES, maxiter=5, rng=0))


def test_executors_and_pools_by_themselves_and_by_their_map():
    reference = cocd.minimize(bowl, ONES, **PLAIN, maxiter=5)
    with ThreadPoolExecutor(2) as threads, spawned(1) as processes:
        for workers in (threads, threads.map, processes, processes.map):
            assert agrees(cocd.minimize(bowl, ONES, **PLAIN, maxiter=5, workers=workers), reference)
        assert threads.submit(int).result() == 0  # they stay open
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        for workers in (pool, pool.map, pool.imap):
            assert agrees(cocd.minimize(bowl, ONES, **PLAIN, maxiter=5, workers=workers), reference)


def test_anything_like_map():
    reference = cocd.minimize(bowl, ONES, **PLAIN, maxiter=5)
    with ThreadPoolExecutor(2) as threads:

        def futures(f, points):  # as Dask's map, which gives futures
            return [threads.submit(f, point) for point in points]

        for workers in (map, futures, lambda f, points: [f(p) for p in points]):
            assert agrees(cocd.minimize(bowl, ONES, **PLAIN, maxiter=5, workers=workers), reference)


@pytest.mark.parametrize("workers", [2, map])
def test_vectorized_elsewhere(workers):
    options = {**PLAIN, "maxiter": 3, "vectorized": True, "workers": workers}
    reference = cocd.minimize(bowl, ONES, **PLAIN, maxiter=3)
    result = cocd.minimize(columns, ONES, **options)
    assert result.x == pytest.approx(reference.x, rel=1e-12) and result.nfev == reference.nfev
    failing = cocd.minimize(blackboxes.columns_or_raise, ONES, **options)
    assert failing.x == pytest.approx(expected().x, rel=1e-12) and failing.nfailed == 2


def test_functions_of_shaped_arrays_elsewhere():
    result = cocd.minimize(bowl, np.ones((2, 3)), **PLAIN, maxiter=2, workers=2)
    assert result.x.shape == (2, 3)


# --- failures cost a probe -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fun", "why"),
    [
        (blackboxes.raises, "RuntimeError: the mesh is bad"),
        (blackboxes.exits, "exit code 3"),
        (blackboxes.killed, "exit code -9"),
        (blackboxes.nan, "returned nan"),
        (blackboxes.shape, "shape (6,)"),
    ],
)
def test_own_processes_fail_one_probe_at_a_time(fun, why):
    result = cocd.minimize(fun, ONES, **PLAIN, maxiter=3, workers=2)
    assert agrees(result, expected())
    assert result.nfailed == 2 and result.nretried >= 2
    ((reason, count),) = result.failures
    assert why in reason and count == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_hang_costs_the_probe_and_the_process(workers, tmp_path):
    start = time.monotonic()
    result = cocd.minimize(
        blackboxes.hangs, ONES, args=(str(tmp_path),), **PLAIN, maxiter=3, workers=workers,
        timeout=0.5,
    )  # fmt: skip
    assert agrees(result, expected()) and result.nfailed == 2
    assert result.failures == [("no answer within timeout=0.5 s", 2)]
    assert len(list(tmp_path.iterdir())) >= 2 and not alive(tmp_path)
    assert time.monotonic() - start < 120


def test_a_second_try_elsewhere_may_succeed(tmp_path):
    result = cocd.minimize(
        blackboxes.first_time_exits, ONES, args=(str(tmp_path),), **PLAIN, maxiter=3, workers=2
    )
    assert agrees(result, cocd.minimize(bowl, ONES, **PLAIN, maxiter=3))
    assert result.nfailed == 0 and result.nretried >= 1 and result.failures == []


def test_too_many_deaths_end_with_the_best_point():
    options = {"method": "cocd", "lr": 0.01, "eps": 0.1, "compute_budget": 40}
    result = cocd.minimize(blackboxes.broken, np.ones(40), **options, workers=2)
    assert result.status == 3 and result.fun == bowl(np.ones(40)) and "nan" in result.message
    hung = cocd.minimize(blackboxes.always_hangs, np.ones(40), **options, workers=4, timeout=0.1)
    assert hung.status == 3 and hung.fun == bowl(np.ones(40)) and "10 workers" in hung.message


def test_failures_before_the_start_is_known():
    """While one worker is still at x0, what another one fails at decides nothing."""
    options = {"method": "cocd", "lr": 0.01, "eps": 0.1, "compute_budget": 40}
    result = cocd.minimize(blackboxes.slow_start, np.ones(40), **options, workers=2)
    assert result.status == 3 and result.fun == bowl(np.ones(40)) and "nan" in result.message


def test_a_start_at_which_every_worker_dies():
    with pytest.raises(cocd.NonFiniteLoss, match=r"x0.*exit code 1"):
        cocd.minimize(blackboxes.always_exits, ONES, **PLAIN, workers=2)


def test_threads_raise_and_hang():
    import threading

    gate = threading.Event()

    def waits(x):
        if x[3] > blackboxes.BAD:
            gate.wait()
        return bowl(x)

    with ThreadPoolExecutor(8) as threads:
        result = cocd.minimize(blackboxes.raises, ONES, **PLAIN, maxiter=3, workers=threads)
        assert agrees(result, expected()) and result.nfailed == 2 and result.nretried == 2
        hung = cocd.minimize(waits, ONES, **PLAIN, maxiter=3, workers=threads, timeout=0.3)
        assert agrees(hung, expected()) and hung.nfailed == 2
        gate.set()


def test_threads_that_all_hang_end_the_run_with_the_best_point():
    import threading

    gate = threading.Event()

    def waits(x):
        if not np.array_equal(x, ONES):
            gate.wait()
        return bowl(x)

    with ThreadPoolExecutor(2) as threads:
        result = cocd.minimize(waits, ONES, **PLAIN, workers=threads, timeout=0.2)
        gate.set()
    assert result.status == 3 and result.fun == bowl(ONES) and "pickle" in result.message


def test_an_executor_that_breaks_is_replaced():
    with spawned(2) as processes:
        result = cocd.minimize(blackboxes.exits, ONES, **PLAIN, maxiter=3, workers=processes)
    assert agrees(result, expected()) and result.nfailed == 2


def test_through_map_an_exception_costs_the_probe_and_a_failing_map_the_batch():
    result = cocd.minimize(blackboxes.raises, ONES, **PLAIN, maxiter=3, workers=map)
    assert agrees(result, expected()) and result.nfailed == 2 and result.nretried == 2
    calls = []

    def unsteady(f, points):
        calls.append(len(points))
        if len(calls) == 2:
            raise OSError("the cluster is away")
        return map(f, points)

    result = cocd.minimize(bowl, ONES, **PLAIN, maxiter=3, workers=unsteady)
    assert agrees(result, cocd.minimize(bowl, ONES, **PLAIN, maxiter=3))
    assert calls == [9, 9, 9, 9, 1] and result.nretried == 9 and result.nfailed == 0


# --- what cannot work gets a sentence ------------------------------------------------------------


def test_functions_that_cannot_be_sent():
    with pytest.raises(ValueError, match=r"workers=2 sends fun.*top level") as refused:
        cocd.minimize(lambda x: 0.0, ONES, **PLAIN, workers=2)
    assert "\n" not in str(refused.value)
    with spawned(1) as processes, pytest.raises(ValueError, match="workers: the executor"):
        cocd.minimize(lambda x: 0.0, ONES, **PLAIN, workers=processes)


def test_maps_that_are_none():
    for wrong in (lambda f, points: [], lambda f, points: None, lambda f: f):
        with pytest.raises(ValueError, match="workers: the map-like"):
            cocd.minimize(bowl, ONES, **PLAIN, workers=wrong)


def test_a_script_without_its_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import cocd, blackboxes\ncocd.minimize(blackboxes.bowl, [1.0, 1.0], workers=2)\n"
    )
    done = run_script(script)
    assert done.returncode == 1 and 'if __name__ == "__main__":' in done.stderr.splitlines()[-1]


# --- speed, with functions that sleep ------------------------------------------------------------


def test_four_workers_on_a_function_that_sleeps():
    """The sum of the sleeps is what one worker needs at least; four must take a third of it."""
    options = {
        "method": "cocd",
        "lr": 0.01,
        "eps": 0.1,
        "compute_budget": 32,
        "args": (0.02,),
        "maxiter": 4,
    }
    stamps = []
    result = cocd.minimize(
        blackboxes.slow,
        np.ones(32),
        **options,
        workers=4,
        callback=lambda intermediate_result: stamps.append(time.monotonic()),
    )
    steps = np.diff(stamps)  # the processes have been started by then
    # The quietest step: what else runs on the machine is not what is measured.
    assert result.nit == 4 and min(steps) < 65 * 0.02 / 3


# --- leaving -------------------------------------------------------------------------------------


def run_script(script, *args):
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    return subprocess.run(
        [sys.executable, str(script), *args],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


ENDLESS = """
import pathlib, sys, numpy as np, cocd, blackboxes
if __name__ == "__main__":
    def stepped(result):
        pathlib.Path("stepped").touch()
    result = cocd.minimize(blackboxes.slow, np.ones(6), args=(0.02, sys.argv[1]),
                           method="cocd", lr=0.001, eps=0.1, ftol=None, maxfev=30_000,
                           workers=2, callback=stepped)
    print(result.status, result.fun <= blackboxes.bowl(np.ones(6)), result.message)
"""


@pytest.fixture
def endless(tmp_path):
    """A script with two workers that leave their numbers in a folder, under way."""
    (tmp_path / "pids").mkdir()
    script = tmp_path / "script.py"
    script.write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "pids")],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=tmp_path,
    )
    with process:
        wait_until(lambda: len(list((tmp_path / "pids").iterdir())) == 2)
        wait_until((tmp_path / "stepped").exists)  # before that nothing need have been seen
        yield process, tmp_path / "pids"
        process.kill()


def wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("whole_group", [False, True])
def test_ctrl_c_with_workers(endless, whole_group):
    process, pids = endless
    if whole_group:  # as a terminal does it
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out.split()[:3] == ["5", "True", "interrupted;"] and err == ""
    assert process.returncode == 0 and not alive(pids)


def test_kill_9_leaves_no_orphans(endless):
    process, pids = endless
    process.kill()
    process.wait()
    wait_until(lambda: not alive(pids))
