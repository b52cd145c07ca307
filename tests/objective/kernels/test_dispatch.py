"""The compiled loops where they cannot be used: other processes, broken installations."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba", reason="numba is not installed")

STEP = """
import os, torch, cocd
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
objective = cocd.trace(model, nn.MSELoss())
optimizer = cocd.CoCD(model.parameters(), lr=0.1, compute_budget=5)
x, y = torch.randn(8, 3), torch.randn(8, 2)
optimizer.step(objective(x, y))
"""


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", script],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_process_goes_on_without_them() -> None:
    done = run(
        STEP + "child = os.fork()\n"
        "if not child:\n"
        "    optimizer.step(objective(x, y))\n"
        "    os._exit('folded' not in objective.explain())\n"
        "print(os.waitpid(child, 0)[1])"
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@pytest.mark.parametrize(
    ("before", "environment", "why"),
    [
        ("", {"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT is set"),
        (
            "import sys; sys.modules['numba.extending'] = None",
            {},
            "ModuleNotFoundError: import of numba.extending halted",
        ),
    ],
)
def test_numba_that_is_of_no_use_is_said_once_and_done_without(
    before: str, environment: dict[str, str], why: str
) -> None:
    done = run(f"{before}\n{STEP}\nprint(objective.explain())", **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("EngineWarning") == done.stderr.count(why) == 1
    assert "incremental" in done.stdout and "(folded)" in done.stdout


def test_loops_compile_where_no_cache_can_be_written() -> None:
    """As on a read-only disk, where every way to such a place raises."""
    nowhere = (
        "from numba.core.caching import _CacheLocator\n"
        "def refused(*_): raise OSError('read-only')\n"
        "for each in _CacheLocator.__subclasses__(): each.ensure_cache_path = refused\n"
    )
    done = run(f"{nowhere}{STEP}\nprint(objective.explain())")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and "(fused)" in done.stdout
