"""The demo: equal evaluations, a table of all methods, rows, a picture and a page."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from torch import nn

pytest.importorskip("sklearn")
pytest.importorskip("rich")

PROGRAM = Path(__file__).parents[2] / "examples" / "digits.py"


@pytest.fixture(scope="module")
def digits() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["digits"] = module
    spec.loader.exec_module(module)
    return module


def test_it_ends_with_a_table_rows_a_picture_and_a_page(tmp_path: Path, digits: ModuleType) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--small", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = json.loads((tmp_path / "digits.json").read_text())["rows"]
    assert [row["method"] for row in rows] == list(digits.METHODS)
    for row in rows:
        assert row["evaluations"] == row["curve"][-1][0]
        assert row["accuracy"] == row["curve"][-1][2]
        assert f"{row['accuracy']:.1%}" in done.stdout
    page = (tmp_path / "digits.html").read_text()
    assert all(f"<td>{name}</td>" in page for name in digits.METHODS) and "http" not in page
    equal = [row["evaluations"] for row in rows if digits.METHODS[row["method"]].share == 1]
    assert max(equal) < 1.5 * min(equal)  # a step of AutoCoCD is many of them
    assert len({row["curve"][0][1] for row in rows}) == 1  # the same first weights
    assert (tmp_path / "digits.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_only_training_rows_set_the_scale(digits: ModuleType) -> None:
    train, test = digits.digits(0)
    assert train.x.mean().item() == pytest.approx(0, abs=1e-5)
    assert test.x.mean().item() != pytest.approx(0, abs=1e-5)


def test_a_run_depends_on_its_seed_alone(digits: ModuleType) -> None:
    def curve(seed: int) -> list[tuple[float, ...]]:
        row = digits.train("SPSA", digits.digits(seed), 100, seed, lambda *_: None)
        return [point[:3] for point in row.curve]  # without seconds

    assert curve(0) == curve(0)
    assert curve(0) != curve(1)


def test_a_method_that_diverges_is_a_result(
    digits: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absurd(model: nn.Module, evaluations: int, seed: int) -> object:
        optimizer = digits.cocd.baselines.SPSA(model.parameters(), lr=1e38, eps=0.1, directions=1)
        return digits._by_losses(model, optimizer)

    monkeypatch.setitem(digits.METHODS, "absurd", digits.Method(absurd))
    row = digits.train("absurd", digits.digits(0), 500, 0, lambda *_: None)
    assert math.isnan(row.accuracy) and row.evaluations < 500
    digits.table([row])
