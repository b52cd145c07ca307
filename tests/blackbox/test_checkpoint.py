"""Checkpoints: data, atomic, and a run that was killed goes on as if it had not been."""

import json
import pickle
import runpy
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from blackboxes import bowl

import cocd
from cocd.blackbox import checkpoint

PLAIN = {
    "method": "cocd",
    "lr": 0.01,
    "eps": 0.1,
    "compute_budget": 4,
    "memory_budget": 5,
    "decay": 0.9,
}
ONES = np.ones(6)


def counted():
    calls = []

    def fun(x):
        calls.append(np.array(x))
        return bowl(x)

    return fun, calls


# --- files ---------------------------------------------------------------------------------------


def test_trees_come_back(tmp_path):
    tree = {
        "numbers": [1, 2**200, -0.0, 0.1, float("inf"), True, None],
        "texts": ["", "array:0", "text:é\n"],
        "arrays": [np.arange(3), np.array(2.5), np.zeros((2, 0)), np.array([True]), np.float64(3)],
        "deep": {"er": [{"x": np.array([np.nan, -0.0])}]},
    }
    checkpoint.save(tmp_path / "c", tree)
    back = checkpoint.load(tmp_path / "c")
    assert back["numbers"] == tree["numbers"] and str(back["numbers"][2]) == "-0.0"
    assert back["texts"] == tree["texts"]
    for there, here in zip(back["arrays"][:4], tree["arrays"][:4], strict=True):
        assert there.dtype == here.dtype and np.array_equal(there, here)
    assert back["deep"]["er"][0]["x"].tobytes() == tree["deep"]["er"][0]["x"].tobytes()
    assert [entry.name for entry in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("wrong", [object(), {1: 2}, np.array([object()]), {1, 2}, 1j])
def test_what_is_no_data_is_not_written(wrong, tmp_path):
    checkpoint.save(tmp_path / "c", {"good": 1})
    with pytest.raises(TypeError):
        checkpoint.save(tmp_path / "c", {"bad": [wrong]})
    assert checkpoint.load(tmp_path / "c") == {"good": 1}


def test_loading_never_runs_code(tmp_path):
    path, trap = tmp_path / "c", tmp_path / "trap"

    class Trap:
        def __reduce__(self):
            return (Path.touch, (trap,))

    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="damaged"):
        checkpoint.load(path)
    header = np.frombuffer(
        json.dumps({"format": "cocd checkpoint", "version": 1, "state": {"a": "array:0"}}).encode(),
        dtype=np.uint8,
    )
    with open(path, "wb") as file:
        np.savez(file, header=header, **{"array:0": np.array([Trap()], dtype=object)})
    with pytest.raises(ValueError, match="damaged"):
        checkpoint.load(path)
    assert not trap.exists()


def test_damaged_files_are_refused_with_a_sentence(tmp_path):
    path = tmp_path / "c"
    cocd.minimize(bowl, ONES, **PLAIN, maxiter=2, checkpoint=path)
    whole = path.read_bytes()
    damaged = [b"", b"hello", whole[:100], whole[: len(whole) // 2], whole[:-1], whole[100:]]
    for at in range(60, len(whole), 97):
        damaged.append(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            state = checkpoint.load(path)
        except ValueError as error:
            refused += 1
            assert "damaged" in str(error) and "\n" not in str(error)
        else:  # a byte that does not matter, such as a time in the archive
            path.write_bytes(whole)
            assert json.dumps(state, default=repr) == json.dumps(
                checkpoint.load(path), default=repr
            )
    assert refused > len(damaged) // 2


def test_versions(tmp_path):
    path = tmp_path / "c"
    header = json.dumps({"format": "cocd checkpoint", "version": 9, "state": None}).encode()
    with open(path, "wb") as file:
        np.savez(file, header=np.frombuffer(header, dtype=np.uint8))
    with pytest.raises(ValueError, match="version 9"):
        cocd.minimize(bowl, ONES, **PLAIN, checkpoint=path)
    with open(path, "wb") as file:
        np.savez(file, x=ONES)
    with pytest.raises(ValueError, match="not a checkpoint"):
        cocd.minimize(bowl, ONES, **PLAIN, checkpoint=path)


# --- runs ----------------------------------------------------------------------------------------

RULES = {
    "lr": PLAIN,
    "radius": {**PLAIN, "eps": None},
    "auto": {},
    "wasp": {"method": "wasp", "lr": 0.01, "eps": 0.1},
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("at", [1, 10, 11, 27, 44, 63, 64])
def test_a_run_that_ends_anywhere_goes_on_the_same(at, rule, tmp_path):
    options = {**rule, "maxfev": 64, "rng": 5}
    straight, all_calls = counted()
    reference = cocd.minimize(straight, ONES, **options)
    options |= {"checkpoint": tmp_path / "c", "checkpoint_every": 0}
    fun, calls = counted()

    def dying(x):
        if len(calls) == at:
            raise SystemExit  # not a failure of the function: it ends the run
        return fun(x)

    with pytest.raises(SystemExit) if at < len(all_calls) else nullcontext():
        cocd.minimize(dying, ONES, **options)
    saved = (tmp_path / "c").exists()
    again, more = counted()
    result = cocd.minimize(again, ONES, **{**options, "rng": 6 if saved else 5})
    assert result.x.tobytes() == reference.x.tobytes()
    assert (result.fun, result.nfev, result.nit) == (reference.fun, reference.nfev, reference.nit)
    assert len(calls) + len(more) <= len(all_calls) + 2 * 6 + 1  # at most one phase, again
    assert np.array_equal(more, all_calls[len(all_calls) - len(more) :])


def _nan_at(count):
    calls = []

    def fun(x):
        calls.append(0)
        return bowl(x) if len(calls) != count else float("nan")

    return fun


def _exit_at(count):
    fun, calls = counted()

    def dying(x):
        if len(calls) == count:
            raise SystemExit
        return fun(x)

    return dying


def _no_more(intermediate_result):
    if intermediate_result.nfev > 30:
        raise RuntimeError("enough")


@pytest.mark.parametrize(
    ("fun", "more", "error"),
    [
        (bowl, {"callback": _no_more}, RuntimeError),
        (_nan_at(30), {"nonfinite": "raise"}, cocd.NonFiniteLoss),
        (_exit_at(30), {}, SystemExit),
    ],
    ids=["callback", "nonfinite", "exit"],
)
def test_every_exception_saves_first(fun, more, error, tmp_path):
    path, options = tmp_path / "c", {"maxfev": 64, "rng": 5}
    reference = cocd.minimize(bowl, ONES, **options)
    with pytest.raises(error):
        cocd.minimize(fun, ONES, **options, **more, checkpoint=path)
    more.pop("callback", None)
    again, calls = counted()
    result = cocd.minimize(again, ONES, **{**options, "rng": 6}, **more, checkpoint=path)
    assert result.x.tobytes() == reference.x.tobytes() and result.nfev == reference.nfev
    assert 0 < len(calls) < 64 - 15


def test_where_x0_fails_nothing_is_saved(tmp_path):
    with pytest.raises(cocd.NonFiniteLoss):
        cocd.minimize(lambda x: float("nan"), ONES, checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_finished_run_gives_its_result_at_once(tmp_path):
    options = {**PLAIN, "maxiter": 3, "checkpoint": str(tmp_path / "c")}
    fun, calls = counted()
    first = cocd.minimize(fun, ONES, **options)
    done = len(calls)
    second = cocd.minimize(fun, ONES, **options)
    assert len(calls) == done and str(first) == str(second)
    longer = cocd.minimize(fun, ONES, **{**options, "maxiter": 5})
    assert longer.nit == 5 and len(calls) == done + 2 * 9 + 1


def test_failures_are_remembered(tmp_path):
    def fun(x):
        return np.nan if x[3] > 1.05 else bowl(x)

    options = {**PLAIN, "checkpoint": tmp_path / "c"}
    cocd.minimize(fun, ONES, **options, maxiter=2)
    result = cocd.minimize(fun, ONES, **options, maxiter=3)
    assert result.nfailed == 2 and result.failures == [("fun returned nan", 2)]


def test_after_ctrl_c_the_same_call_goes_on_within_the_step(tmp_path):
    options = {**PLAIN, "maxiter": 5, "checkpoint": tmp_path / "c"}
    reference = cocd.minimize(bowl, ONES, **PLAIN, maxiter=5)
    fun, calls = counted()

    def interrupted(x):
        if len(calls) == 22:
            signal.raise_signal(signal.SIGINT)
        return fun(x)

    assert cocd.minimize(interrupted, ONES, **options).status == 5
    result = cocd.minimize(fun, ONES, **options)
    assert result.x.tobytes() == reference.x.tobytes()
    assert len(calls) == reference.nfev == result.nfev  # nothing was evaluated twice


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"x0": np.ones(7)}, "shape"),
        ({"x0": 2 * np.ones(6)}, "x0"),
        ({"method": "cocd", "lr": 0.02}, "lr=0.01"),
        ({"eps": 0.2}, "eps"),
        ({"bounds": [(0, 2)] * 6}, "bounds"),
        ({"memory_budget": None}, "memory_budget"),
    ],
)
def test_checkpoints_of_other_problems_are_refused(changed, word, tmp_path):
    path = tmp_path / "c"
    cocd.minimize(bowl, ONES, **PLAIN, maxiter=2, checkpoint=path)
    before = path.read_bytes()
    options = {**PLAIN, "x0": ONES, "checkpoint": path, **changed}
    with pytest.raises(ValueError, match=f"another problem.*{word}") as refused:
        cocd.minimize(bowl, **options)
    assert "\n" not in str(refused.value) and path.read_bytes() == before


def test_written_every_so_often(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(checkpoint, "save", lambda path, state: written.append(state))
    for every, expected in ((0, 4 + 1 + 1), (1e6, 1)):
        written.clear()
        options = {**PLAIN, "checkpoint": tmp_path / "c", "checkpoint_every": every}
        cocd.minimize(bowl, ONES, **options, maxiter=4)
        assert len(written) == expected  # the steps and the last look, and the end


SCRIPT = """
import sys, time, numpy as np, cocd

def fun(x):
    time.sleep(0.001)
    return float(((1 + np.arange(x.size)) * (x - 0.3) ** 2).sum() + np.sin(x).sum())

def run(checkpoint=None):
    result = cocd.minimize(fun, np.ones(12), method="cocd", lr=0.003, eps=0.1,
                           compute_budget=5, memory_budget=7, decay=0.95, maxfev=1500,
                           ftol=None, checkpoint=checkpoint, checkpoint_every=0)
    return f"{result.x.tobytes().hex()} {result.fun.hex()} {result.nfev} {result.nit}"

if __name__ == "__main__":
    print(run(sys.argv[1]))
"""


def test_kill_9_at_any_moment(tmp_path):
    """Killed when it has written and a while after, and started again each time."""
    script, path = tmp_path / "script.py", tmp_path / "c"
    script.write_text(SCRIPT)
    module = runpy.run_path(str(script))
    for pause in (0.0, 0.17):
        before = path.stat().st_mtime_ns if path.exists() else 0
        with subprocess.Popen([sys.executable, str(script), str(path)]) as process:
            while process.poll() is None:
                if path.exists() and path.stat().st_mtime_ns != before:
                    time.sleep(pause)
                    break
                time.sleep(0.005)
            process.kill()
        assert process.returncode == -signal.SIGKILL  # it was under way
        assert checkpoint.load(path)["search"]["phase"] is not None
    assert module["run"](str(path)) == module["run"]()
    assert path.exists()
