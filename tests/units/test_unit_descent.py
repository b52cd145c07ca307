"""`UnitDescent` learns with nothing to tune, spends its budget well and resumes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import cocd


def task(activation: type[nn.Module] = nn.Tanh) -> Any:
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    model = nn.Sequential(
        nn.Linear(6, 16), activation(), nn.Linear(16, 16), activation(), nn.Linear(16, 2)
    )
    x = torch.randn(256, 6)
    return model, x, teacher(x).detach()


def train(
    optimizer: cocd.UnitDescent,
    objective: cocd.Objective,
    x: Tensor,
    y: Tensor,
    evaluations: int,
) -> None:
    generator = torch.Generator().manual_seed(0)
    while optimizer.evaluations < evaluations:
        rows = torch.randint(0, len(x), (32,), generator=generator)
        optimizer.step(objective(x[rows], y[rows]))


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.SiLU])
def test_it_learns_with_its_defaults(activation: type[nn.Module]) -> None:
    model, x, y = task(activation)
    objective = cocd.trace(model, F.mse_loss)
    before = F.mse_loss(model(x), y).item()
    train(cocd.UnitDescent(objective, max_evaluations=2000), objective, x, y, 2000)
    assert F.mse_loss(model(x), y).item() < before / 5


@pytest.mark.parametrize(
    ("evaluations", "directions"), [(1000, 1), (400_000, 6), (2_000_000, None)]
)
def test_larger_budgets_take_more_passes_a_step(evaluations: int, directions: int | None) -> None:
    model, x, y = task()
    objective = cocd.trace(model, F.mse_loss)
    optimizer = cocd.UnitDescent(objective, max_evaluations=evaluations)
    optimizer.step(objective(x, y))
    assert optimizer.gradient.directions == directions


def test_a_run_resumes_to_the_bit() -> None:
    model, x, y = task()
    objective = cocd.trace(model, F.mse_loss)
    optimizer = cocd.UnitDescent(objective, max_evaluations=1000)
    train(optimizer, objective, x, y, 200)
    saved, other = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model)
    again = cocd.trace(other, F.mse_loss)
    resumed = cocd.UnitDescent(again, max_evaluations=1000)
    resumed.load_state_dict(saved)
    assert resumed.evaluations == optimizer.evaluations
    train(optimizer, objective, x, y, 400)
    train(resumed, again, x, y, 400)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_what_it_decides_is_no_option() -> None:
    objective = cocd.trace(task()[0], F.mse_loss)
    with pytest.raises(ValueError, match="directions is not an option of UnitDescent"):
        cocd.UnitDescent(objective, max_evaluations=10, directions=3)
