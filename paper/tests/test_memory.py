"""The memory of a step: what the tensors take up, to the byte."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from cocd_paper import memory
from cocd_paper.plans import table_memory


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def measured(label: str) -> dict[str, int]:
    (run,) = [run for run in table_memory.runs("sarcos", 0, 0) if run.label == label]
    return memory.here(run)


def test_a_quarter_of_the_buffer_saves_three_quarters_of_its_bytes() -> None:
    whole, quarter = (measured(f"CoCD, M = {M} (closure)") for M in ("1", "0.25"))
    saved = whole["state_bytes"] - quarter["state_bytes"]
    assert saved == pytest.approx(0.75 * whole["weight_bytes"], rel=1e-3)
    assert whole["tensor_peak_bytes"] - quarter["tensor_peak_bytes"] == pytest.approx(saved, abs=64)


def test_tensors_are_measured_alike_every_time() -> None:
    label = "SGD with momentum, backpropagation"
    one, other = measured(label), measured(label)
    assert one["tensor_peak_bytes"] == other["tensor_peak_bytes"]
    # Gradients and momentum, each as large as the weights, are there at the same time.
    assert one["tensor_peak_bytes"] >= 2 * one["weight_bytes"]
