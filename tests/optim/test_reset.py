"""`reset`: forget, or begin with an estimate from elsewhere."""

import pytest
import torch
from helpers import frozen

import cocd
from cocd.schedules import Spread


def problem():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    x = torch.randn(8, 3)
    return model, lambda: model(x).square().mean()


METHODS = {
    "CoCD": lambda p: cocd.CoCD(p, 0.01, compute_budget=5),
    "a ring": lambda p: cocd.CoCD(p, 0.01, compute_budget=5, memory_budget=9),
    "AutoCoCD": lambda p: cocd.AutoCoCD(p),
    "AutoCoCD, a budget of 5": lambda p: cocd.AutoCoCD(p, compute_budget=5),
    "CoherentGradient": lambda p: cocd.CoherentGradient(p, compute_budget=5),
}


@pytest.mark.parametrize("name", METHODS)
def test_after_a_reset_the_optimizer_goes_on_as_a_new_one_would(name):
    model, closure = problem()
    optimizer = METHODS[name](model.parameters())
    take = getattr(optimizer, "step", optimizer)
    for _ in range(20):
        take(closure)
    spent, weights = optimizer.evaluations, frozen(model.state_dict())
    optimizer.reset()
    assert (optimizer.evaluations, frozen(model.state_dict())) == (spent, weights)
    assert not optimizer.estimate().any()
    twin_model, twin_closure = problem()
    twin_model.load_state_dict(model.state_dict())
    twin = METHODS[name](twin_model.parameters())
    twin_take = getattr(twin, "step", twin)
    for _ in range(12):
        assert float(take(closure)) == float(twin_take(twin_closure))
    assert frozen(model.state_dict()) == frozen(twin_model.state_dict())
    assert torch.equal(optimizer.estimate(), twin.estimate())


@pytest.mark.parametrize("flat", [True, False])
def test_an_initial_estimate_is_what_the_first_step_moves_along(flat):
    model, closure = problem()
    optimizer = cocd.CoCD(model.parameters(), 0.1, compute_budget=1)
    parts = torch.autograd.grad(closure(), list(model.parameters()))
    whole = torch.cat([part.flatten() for part in parts])
    optimizer.reset(estimate=whole if flat else parts)
    assert torch.equal(optimizer.estimate(), whole)
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    optimizer.step(closure)
    moved = before - torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.testing.assert_close(moved[1:], 0.1 * whole[1:])


@pytest.mark.parametrize("schedule", [None, Spread()])
def test_a_short_memory_takes_the_coordinates_that_come_last_in_the_order(schedule):
    x = torch.zeros(7, requires_grad=True)
    optimizer = cocd.CoCD([x], 0.1, compute_budget=2, memory_budget=3, schedule=schedule)
    optimizer.reset(estimate=torch.arange(1.0, 8.0))
    order = [i for a, b in optimizer.schedule.refreshed(0, 7) for i in range(a, b)]
    expected = torch.zeros(7)
    expected[order[-3:]] = torch.arange(1.0, 8.0)[order[-3:]]
    assert torch.equal(optimizer.estimate(), expected)
    optimizer.step(lambda: 100 * x.sum())  # two of them have had their time
    found = optimizer.estimate()
    assert found[order[-1]] == order[-1] + 1 and (found > 50).sum() == 2


@pytest.mark.parametrize("estimate", [torch.ones(3), torch.full((4,), torch.nan), [torch.ones(5)]])
def test_an_estimate_that_does_not_fit_is_refused_and_nothing_is_changed(estimate):
    x = torch.ones(4, requires_grad=True)
    optimizer = cocd.CoCD([x], 0.1)
    optimizer.step(lambda: (x**2).sum())
    before = frozen(optimizer.state_dict())
    with pytest.raises(ValueError, match="estimate must hold 4 finite numbers"):
        optimizer.reset(estimate=estimate)
    assert frozen(optimizer.state_dict()) == before
