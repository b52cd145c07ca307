"""What goes wrong around a run: it is said, and the best point is never lost."""

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import blackboxes
import numpy as np
import pytest
from blackboxes import bowl

import cocd
from cocd.blackbox import checkpoint
from cocd.blackbox.executors.engine import Answers, evaluate
from cocd.blackbox.executors.task import Failure

ONES = np.ones(6)
SCRIPTS = Path(__file__).parents[1]


def after(count, then, fun=bowl):
    """The function for so many calls, then something else."""
    calls = []

    def call(x):
        calls.append(1)
        return fun(x) if len(calls) < count else then(x)

    return call


def bug(x):
    return undefined_name + x  # noqa: F821


# --- success -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 6, 40])
def test_a_function_that_starts_to_raise_is_no_success(n):
    result = cocd.minimize(after(30, bug), np.ones(n), maxfev=5_000)
    assert not result.success and result.fun <= bowl(np.ones(n))
    assert result.status == 3 and "failed" in result.message


def test_with_a_learning_rate_failing_evaluations_are_no_success():
    def fun(x):
        return bowl(x) if np.array_equal(x, ONES) else bug(x)

    result = cocd.minimize(fun, ONES, method="cocd", lr=0.1, eps=0.1, compute_budget=1, maxfev=500)
    assert not result.success and result.fun == bowl(ONES)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("n", [1, 3, 40])
def test_a_function_without_a_minimum_is_no_success(n):
    result = cocd.minimize(lambda x: x.sum(), np.ones(n), maxfev=100_000)
    assert not result.success and result.fun < -1e9
    assert result.status in (1, 3, 4)


# --- what the function returns and raises --------------------------------------------------------


def shown(error):
    return "".join(traceback.format_exception(error))


def test_the_traceback_shows_the_line_of_the_function_that_raised():
    with pytest.raises(cocd.NonFiniteLoss, match="NameError") as refused:
        cocd.minimize(bug, ONES)
    assert isinstance(refused.value.__cause__, NameError)
    assert "return undefined_name + x" in shown(refused.value)


def test_a_mistake_is_shown_from_another_process():
    with pytest.raises(cocd.NonFiniteLoss, match="KeyError") as refused:
        cocd.minimize(blackboxes.mistaken, ONES, workers=2)
    assert "in mistaken" in shown(refused.value)


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no")


def test_an_exception_that_cannot_be_printed_costs_its_probe():
    def mute(x):
        raise Mute

    result = cocd.minimize(after(30, mute), ONES, maxfev=200)
    assert "Mute: (no message" in result.failures[0][0]


@pytest.mark.parametrize("workers", [1, map])
@pytest.mark.parametrize("fun", [lambda x: (x**2).sum(), lambda x: 3.0, lambda x: np.ones(2)])
def test_one_number_for_many_points_is_refused(fun, workers):
    with pytest.raises(ValueError, match=r"vectorized fun must return \d+ values"):
        cocd.minimize(fun, ONES, vectorized=True, workers=workers)


def test_a_vectorized_call_may_fail_as_a_whole_with_one_nan():
    def fun(x):
        return blackboxes.columns(x) if (x[3] < blackboxes.BAD).all() else np.nan

    options = {"method": "cocd", "lr": 0.01, "eps": 0.1, "compute_budget": 4, "maxiter": 3}
    assert cocd.minimize(fun, ONES, vectorized=True, **options).nfailed == 2


def test_masked_values_are_failures():
    result = cocd.minimize(lambda x: bowl(x) if x[3] < 1.01 else np.ma.masked, ONES, maxfev=300)
    assert result.nfailed and result.fun == bowl(result.x)

    def columns(x):
        return np.ma.masked_where(x[3] > 1.01, blackboxes.columns(x))

    result = cocd.minimize(columns, ONES, maxfev=300, vectorized=True)
    assert result.nfailed and result.fun == pytest.approx(bowl(result.x))
    search = cocd.AskTell(ONES)
    points = search.ask()
    search.tell([bowl(points[0]), *[np.ma.masked] * (len(points) - 1)])
    assert search.result.nfailed == len(points) - 1 and search.fun == bowl(ONES)


# --- workers -------------------------------------------------------------------------------------


class Racing:
    """Two workers: one fails at everything before the other has tried x0, and tried again."""

    count, elsewhere = 2, True

    def run(self, points, rows, answers, alone):
        for row in reversed(list(rows)):
            fails = row != 0 or not alone
            answers.put(row, Failure("the licence server is away") if fails else 7.0)

    def close(self):
        pass


def test_x0_has_its_second_try_whatever_else_fails():
    answers = Answers(2)
    answers.begin(80, opening=True)
    evaluate(Racing(), np.zeros((80, 1)), list(range(80)), answers)
    assert answers.values[0] == 7.0 and np.isnan(answers.values[1:]).all()


def test_an_executor_that_is_shut_down_during_a_run():
    with ThreadPoolExecutor(2) as threads:

        def stopping(x):
            threads.shutdown(wait=False, cancel_futures=True)
            return bowl(x)

        result = cocd.minimize(after(30, stopping), np.ones(20), workers=threads)
    assert result.fun <= bowl(np.ones(20)) and result.status == 3


def test_a_fork_server_that_is_killed():
    from multiprocessing import forkserver

    def kill(result):
        if result.nit == 2:
            os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
            for child in multiprocessing.active_children():
                child.kill()

    options = {"method": "cocd", "lr": 0.01, "eps": 0.1, "compute_budget": 4, "maxiter": 4}
    result = cocd.minimize(bowl, ONES, **options, workers=2, callback=kill)
    reference = cocd.minimize(bowl, ONES, **options)
    assert result.x.tobytes() == reference.x.tobytes() or result.status == 3


# --- checkpoints ---------------------------------------------------------------------------------


def test_a_full_disk_loses_no_result(tmp_path, monkeypatch):
    def full(*args, **keywords):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint.np, "savez", full)
    with pytest.warns(RuntimeWarning, match="No space left") as warned:
        result = cocd.minimize(
            bowl, ONES, maxfev=500, checkpoint=tmp_path / "c", checkpoint_every=0
        )
    assert len(warned) == 1 and result.fun < 1e-6 and not list(tmp_path.iterdir())


def test_a_deleted_folder_loses_no_result(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        result = cocd.minimize(
            bowl, ONES, maxfev=500, checkpoint=folder / "c",
            callback=lambda intermediate_result: shutil.rmtree(folder, ignore_errors=True),
        )  # fmt: skip
    assert result.fun < 1e-6


TERMINATED = """
import sys, time, numpy as np, cocd, blackboxes
if __name__ == "__main__":
    cocd.minimize(blackboxes.slow, np.ones(6), args=(0.01,), ftol=None, maxfev=30_000,
                  checkpoint=sys.argv[1], checkpoint_every=1e6,
                  callback=lambda intermediate_result: print("step", flush=True))
"""


def test_sigterm_saves_a_checkpoint_before_the_process_ends(tmp_path):
    script, path = tmp_path / "script.py", tmp_path / "c"
    script.write_text(TERMINATED)
    process = subprocess.Popen(
        [sys.executable, str(script), str(path)],
        env={**os.environ, "PYTHONPATH": f"{SCRIPTS}:{os.environ.get('PYTHONPATH', '')}"},
        stdout=subprocess.PIPE,
    )
    with process:
        process.stdout.readline()
        time.sleep(0.03)
        process.terminate()
        process.wait(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert checkpoint.load(path)["search"]["counts"][0] > 0


def test_sigterm_elsewhere_than_in_the_main_thread_is_left_alone(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(
        target=lambda: cocd.minimize(bowl, ONES, maxfev=50, checkpoint=tmp_path / "c")
    )
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before and (tmp_path / "c").exists()
