import copy

import numpy as np
import pytest
import torch
from helpers import frozen
from torch.nn import functional as F

import cocd
from cocd.baselines import WASP


def quadratic(x):
    return lambda: ((x - torch.arange(1.0, len(x) + 1)) ** 2).sum()


def problem(**options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    x, y = torch.randn(16, 3), torch.randn(16, 1)
    optimizer = WASP(model.parameters(), 0.05, **options)
    return model, optimizer, lambda: F.mse_loss(model(x), y)


@pytest.mark.parametrize("basis", ["identity", "hadamard", "rotation"])
def test_the_first_step_probes_everything_and_finds_the_gradient(basis):
    model, optimizer, _ = problem(basis=basis, eps=1e-4)
    model.double()
    optimizer.param_groups[0]["lr"] = 0.0
    before = [p.detach().clone() for p in model.parameters()]
    gradient = torch.autograd.grad(_double(model), list(model.parameters()))
    optimizer.step(lambda: _double(model))
    assert optimizer.evaluations == 26 + 1
    flat = torch.cat([g.flatten() for g in gradient])
    assert torch.allclose(optimizer.estimate(), flat, atol=1e-3)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def _double(model):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 3, dtype=torch.float64, generator=generator)
    return F.mse_loss(model(x), x.sum(1, keepdim=True))


def test_wasp_in_the_identity_basis_with_a_full_budget_equals_cocd():
    x = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    y = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    wasp = WASP([x], 0.1, eps=0.01, basis="identity", tolerance=1.0)
    other = cocd.CoCD([y], lr=0.1, eps=0.01, compute_budget=6, difference="forward")
    for _ in range(5):
        wasp.step(quadratic(x))
        other.step(quadratic(y))
    assert np.allclose(x.tolist(), y.tolist())
    assert wasp.evaluations == other.evaluations


def test_probing_stops_where_a_fresh_slope_agrees_with_the_remembered_one():
    x = torch.zeros(6, requires_grad=True)
    optimizer = WASP([x], 0.0, eps=0.1)
    for _ in range(3):  # x does not move, so every slope is still right
        optimizer.step(quadratic(x))
    assert optimizer.evaluations == (1 + 6) + 2 * (1 + 1)


def test_a_weight_without_effect_does_not_stop_the_probing():
    x = torch.zeros(4, requires_grad=True)
    optimizer = WASP([x], 0.0, eps=0.1, basis="identity")
    for _ in range(2):
        optimizer.step(lambda: x[1] + 0 * x[0])
    assert optimizer.evaluations == (1 + 4) + (1 + 2)


def test_a_failing_probe_keeps_the_old_slope_and_is_counted():
    x = torch.zeros(3, requires_grad=True)
    optimizer = WASP([x], 0.0, eps=0.1, basis="identity")
    optimizer.step(quadratic(x))
    old = optimizer.estimate()
    with pytest.warns(cocd.NonFiniteWarning):
        optimizer.step(lambda: torch.where(x[0] > 0, torch.nan, 2 * quadratic(x)()))
    assert optimizer.estimate()[0] == old[0]
    assert optimizer.skipped == 1


def test_an_exception_leaves_weights_and_slopes_alone():
    model, optimizer, closure = problem()
    optimizer.step(closure)
    before = frozen([model.state_dict(), optimizer.estimate()])
    calls = iter(range(100))

    def failing():
        if next(calls) == 1:  # the first probe, at a weight that has moved
            raise RuntimeError("no")
        return closure()

    with pytest.raises(RuntimeError, match="no"):
        optimizer.step(failing)
    assert frozen([model.state_dict(), optimizer.estimate()]) == before


def test_wasp_resumes_to_the_bit():
    model, optimizer, closure = problem(compute_budget=7)
    for _ in range(4):
        optimizer.step(closure)
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    for _ in range(4):
        optimizer.step(closure)
    other_model, other, other_closure = problem(compute_budget=7)
    other_model.load_state_dict(weights)
    other.load_state_dict(state)
    for _ in range(4):
        other.step(other_closure)
    assert frozen(other_model.state_dict()) == frozen(model.state_dict())
    assert frozen(other.state_dict()) == frozen(optimizer.state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": 0.0}, "eps must be a positive number, got 0.0"),
        ({"tolerance": 0.5}, "tolerance must be a factor of at least 1, got 0.5"),
        ({"basis": "fourier"}, "basis must be"),
        ({"compute_budget": 27}, "compute_budget=27 is more than the 26 vectors"),
        ({"compute_budget": 0}, "compute_budget must be a whole number"),
    ],
)
def test_what_cannot_work_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        problem(**options)


def test_what_is_remembered_of_a_tensor_survives_the_freezing_of_another():
    model, optimizer, closure = problem(eps=1e-3)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step(closure)
    kept = optimizer.estimate()[15:]  # the first layer's weight is the first 15 numbers
    model[0].weight.requires_grad_(False)
    optimizer.compute_budget = 1
    optimizer.step(closure)  # one probe in a new basis: at an unchanged point it agrees
    assert torch.allclose(optimizer.estimate(), kept, atol=1e-2)
    assert optimizer.evaluations == (1 + 26) + (1 + 1)
