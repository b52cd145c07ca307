"""What every test process starts from."""

import signal
from math import inf

import pytest

from cocd.objective import engine_timing

# A shell that starts the tests in the background has them ignore Ctrl-C, which many of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _engines_by_rule_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines are not chosen by what was measured, which differs from run to run."""
    monkeypatch.setattr(engine_timing, "_SECONDS", inf)
