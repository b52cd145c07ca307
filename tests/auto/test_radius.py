"""AutoCoCD on problems of other scales: reach, radius and part follow what is measured."""

import copy

import pytest
import torch
from helpers import frozen
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import cocd
from cocd.auto.radius import Radius, TensorRadius
from cocd.auto.reach import Reach


@pytest.mark.parametrize("budget", [None, 1])
def test_one_weight_far_away_is_reached(budget):
    w = torch.zeros(1, requires_grad=True)
    optimizer = cocd.AutoCoCD([w], compute_budget=budget)
    for _ in range(300):
        optimizer.step(lambda: ((w - 150) ** 2).sum())
    assert abs(w.item() - 150) < 0.01


def regression(raw=150.0):
    torch.manual_seed(0)
    x = torch.randn(256, 6)
    return nn.Linear(6, 1), x, x @ torch.randn(6, 1) * 20 + raw


def test_linear_regression_with_raw_targets_converges():
    model, x, y = regression()
    optimizer = cocd.AutoCoCD(model.parameters())
    generator = torch.Generator().manual_seed(0)
    for _ in range(600):
        i = torch.randint(256, (64,), generator=generator)
        optimizer.step(lambda i=i: mse_loss(model(x[i]), y[i]))
    assert float(mse_loss(model(x), y).detach()) < 1e-4 * float(y.square().mean())


def test_without_noise_a_step_takes_all_of_what_was_found():
    model, x, y = regression(raw=1.0)
    optimizer = cocd.AutoCoCD(model.parameters())
    for _ in range(60):
        optimizer.step(lambda: mse_loss(model(x), y))
    assert optimizer.boldness > 2 and optimizer.compute_budget == 1
    assert optimizer._learned.budget.age < 4 < optimizer.schedule.done


def test_raw_inputs_make_radii_narrower():
    torch.manual_seed(0)
    scale = torch.tensor([1.0, 10.0, 100.0, 1000.0])
    x = scale * (1 + 0.3 * torch.randn(200, 4))
    y = (x[:, 3] / 1000 + x[:, 0] > 2).long()
    model, narrow = nn.Linear(4, 2), nn.Linear(4, 2)
    narrow.load_state_dict(model.state_dict())
    optimizer = cocd.AutoCoCD(model.parameters())
    fixed = cocd.AutoCoCD(narrow.parameters(), config=cocd.AutoConfig(narrowest=1.0))
    for _ in range(300):
        optimizer.step(lambda: cross_entropy(model(x), y))
        fixed.step(lambda: cross_entropy(narrow(x), y))
    assert optimizer.radii[0] < 0.3 == fixed.radii[0]
    with torch.no_grad():
        assert cross_entropy(model(x), y) < 0.9 * cross_entropy(narrow(x), y)


def test_a_loss_of_steps_makes_radii_wider():
    x = torch.full((40,), 20.0, dtype=torch.float64, requires_grad=True)
    fixed = x.detach().clone().requires_grad_()
    optimizer = cocd.AutoCoCD([x])
    still = cocd.AutoCoCD([fixed], config=cocd.AutoConfig(widest=1.0))
    for _ in range(200):
        optimizer.step(lambda: torch.floor(x / 2).abs().sum())
        still.step(lambda: torch.floor(fixed / 2).abs().sum())
    assert max(optimizer.radii) > 0.3 == max(still.radii)
    assert torch.floor(x / 2).abs().sum() < 0.5 * torch.floor(fixed / 2).abs().sum()


def test_smooth_problems_keep_their_radius():
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    y = torch.sin(x.sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = cocd.AutoCoCD([{"params": model[0].parameters(), "eps": 0.2}, *_group(model[2])])
    for _ in range(100):
        optimizer.step(lambda: mse_loss(model(x), y))
    assert optimizer.radii == [0.2, 0.2, 0.3, 0.3] and optimizer.reach >= 3


def _group(module):
    return [{"params": module.parameters()}]


def test_where_trial_points_fail_the_best_probe_is_taken():
    """Two coordinates of one block that must not move together: each alone is lower."""
    x = torch.tensor([0.0, 0.0], dtype=torch.float64, requires_grad=True)

    def loss():
        return 1 - x.sum() + 1e6 * (x[0] * x[1]).abs()

    optimizer = cocd.AutoCoCD([x], compute_budget=2)
    optimizer.step(loss)
    assert float(loss().detach()) < 1 and (x == 0).sum() == 1


def far(seed=0, **options):
    """A rough and badly scaled problem, on which all that adapts does."""
    torch.manual_seed(seed)
    model = nn.ParameterList([torch.full((24,), 40.0), torch.full((8,), 300.0)]).double()
    optimizer = cocd.AutoCoCD(model.parameters(), **options)

    def loss():
        a, b = model
        return (torch.floor(a) ** 2).sum() / 100 + (1e4 * (b - 1) ** 2).sum() / 100

    return model, optimizer, loss


def adapted(optimizer):
    return optimizer.radii, optimizer.reach, optimizer.boldness, optimizer._learned.budget.age


def test_a_resumed_run_goes_on_to_the_bit_with_all_that_has_adapted():
    model, optimizer, loss = far()
    for _ in range(60):
        optimizer.step(loss)
    assert optimizer.radii != [0.3, 0.3] or optimizer.reach > 3
    other, again, its_loss = far(seed=1)
    other.load_state_dict(model.state_dict())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert adapted(again) == adapted(optimizer)
    first = [float(optimizer.step(loss)) for _ in range(60)]
    assert first == [float(again.step(its_loss)) for _ in range(60)]
    assert frozen(list(model.parameters())) == frozen(list(other.parameters()))
    assert adapted(again) == adapted(optimizer)


@pytest.mark.parametrize("call", [1, 7, 11])
def test_a_step_that_fails_has_adapted_nothing(call):
    _, optimizer, loss = far()
    for _ in range(40):
        optimizer.step(loss)
    before, state, calls = adapted(optimizer), optimizer.state_dict()["state"]["cocd"], 0

    def fails():
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError("gone")
        return loss()

    with pytest.raises(OSError, match="gone"):
        optimizer.step(fails)
    after = optimizer.state_dict()["state"]["cocd"]
    assert adapted(optimizer) == before and str(after["radius"]) == str(state["radius"])


def test_a_rollback_resets_the_reach():
    x = torch.ones(4, requires_grad=True)
    optimizer = cocd.AutoCoCD([x], compute_budget=4)
    for _ in range(60):
        optimizer.step(lambda: (x**2).sum() + 1)
    optimizer._learned.reach.value = 50.0
    with torch.no_grad():
        x += 1e3
    with pytest.warns(cocd.RestoreWarning):
        optimizer.step(lambda: (x**2).sum() + 1)
    assert optimizer.restored == 1 and optimizer.reach == 3


# --- the components --------------------------------------------------------------------------


def test_the_reach_settles_where_one_step_in_five_is_limited():
    reach = Reach(value=100.0)
    for _ in range(100):
        for limited in (True, False, False, False, False):
            reach.observe(limited=limited)
    assert reach.value == pytest.approx(100.0)
    for _ in range(1000):
        reach.observe(limited=False)
    assert reach.value == 1.0


def observe(radius, step, lost, steps=16):
    for _ in range(steps):
        radius.observe([0], [step], [lost])
    return radius.of([0])[0]


def test_a_radius_that_was_made_narrower_in_vain_comes_back_and_stays():
    radius = Radius()
    assert observe(radius, 0.001, 0.1, steps=8) == 0.25
    assert observe(radius, 0.001, 0.9, steps=8) == 1.0
    assert observe(radius, 0.001, 0.1, steps=80) == 1.0
    assert observe(radius, 0.001, 0.9, steps=8) == 4.0  # but it may become wider


def test_a_radius_that_was_made_wider_in_vain_comes_back_and_stays():
    radius = Radius()
    assert observe(radius, 0.5, 0.8, steps=8) == 4.0
    assert observe(radius, 0.5, 0.79, steps=8) == 1.0
    assert observe(radius, 0.5, 0.8, steps=80) == 1.0


def test_a_narrow_radius_becomes_wider_with_the_steps():
    radius = Radius([TensorRadius(value=0.0625)])
    assert observe(radius, 0.5, 0.0, steps=8) == 0.25
    assert observe(radius, 0.5, 0.0, steps=80) == 1.0


def test_where_nothing_was_measured_no_radius_changes():
    radius = Radius()
    for _ in range(50):
        assert radius.observe([0, 2], [0.0, None], [None, None]) == []
    assert radius.of([0, 1, 2, 9]).tolist() == [1, 1, 1, 1]
