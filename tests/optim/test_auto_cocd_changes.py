"""AutoCoCD when something changes under its hands: objectives, weights, parameters, precisions."""

import warnings

import pytest
import torch
from torch import nn

import cocd
from cocd.auto.rollback import Rollback
from cocd.schedules import Cyclic, Spread


def ones(n, **options):
    return torch.ones(n, requires_grad=True, **options)


# --- the copy of better days ---------------------------------------------------------------------


def test_another_objective_is_not_taken_for_an_explosion():
    """Its losses are ten times those before, at the copy as well: there is no way back to go."""
    x, target = torch.zeros(20, requires_grad=True), torch.linspace(-40, 40, 20)
    optimizer = cocd.AutoCoCD([x])
    for _ in range(150):
        optimizer.step(lambda: ((x - 0.5) ** 2).mean() + 1)
    assert optimizer._learned.rollback.copy
    first = float((x.detach() - target).abs().mean())
    for _ in range(600):
        optimizer.step(lambda: (x - target).abs().mean() + 1)
    assert optimizer.restored == 0 and (x - target).abs().mean() < 0.7 * first


def test_odd_batches_are_not_taken_for_an_explosion():
    """Now and then a batch has a loss of 0.3 more, wherever one is."""
    generator = torch.Generator().manual_seed(0)
    rollback, x, rang = Rollback(), ones(1), 0
    with torch.no_grad():
        for _ in range(20_000):
            size, luck = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
            loss = 0.001 * size + (0.3 if luck < 0.01 else 0.0)
            rang += rollback.alarm(loss)
            verdict = rollback.check(loss, [x], lambda loss=loss: loss)
            assert verdict != "lost"
            rollback.observe(loss, verdict, [x], 10)
    assert rang > 10 and rollback.restored == 0


@pytest.mark.parametrize("scale", [1.0, 1e-10, 1e-30])
def test_what_explodes_is_put_back_at_any_scale_of_the_loss(scale):
    x = ones(4, dtype=torch.float64)
    optimizer = cocd.AutoCoCD([x], compute_budget=4)
    for _ in range(60):
        optimizer.step(lambda: scale * ((x**2).sum() + 1))
    with torch.no_grad():
        x += 1e6
    with pytest.warns(cocd.RestoreWarning):
        optimizer.step(lambda: scale * ((x**2).sum() + 1))
    assert x.abs().max() < 1


@pytest.mark.parametrize("fails", ["raises", "warns"])
def test_a_step_that_fails_at_the_copy_has_changed_nothing(fails):
    x = ones(4)
    optimizer = cocd.AutoCoCD([x], compute_budget=4)
    for _ in range(60):
        optimizer.step(lambda: (x**2).sum() + 1)
    with torch.no_grad():
        x += 1e3
    before, state, calls = x.clone(), optimizer.state_dict()["state"]["cocd"], 0

    def closure():
        nonlocal calls
        calls += 1
        if fails == "raises" and calls == 8 + 3 + 1:
            raise OSError("gone")
        return (x**2).sum() + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((OSError, cocd.RestoreWarning)):
            optimizer.step(closure)
    after = optimizer.state_dict()["state"]["cocd"]
    assert calls == 12 and torch.equal(x, before)
    assert (
        after["rollback"]["loss"] == state["rollback"]["loss"]
        and after["lengths"] == state["lengths"]
    )
    assert after["schedule"] == state["schedule"]


# --- parameters that join -------------------------------------------------------------------------


def test_the_budget_search_restarts_when_most_parameters_join():
    x = ones(4)
    optimizer = cocd.AutoCoCD([x])
    assert optimizer.compute_budget == 1
    y = ones(20_000)
    optimizer.add_param_group({"params": [y]})
    assert optimizer.compute_budget == cocd.AutoCoCD([ones(20_004)]).compute_budget == 512
    optimizer.step(lambda: (x**2).sum() + (y**2).sum())
    assert optimizer.evaluations == 2 * 512 + 3


def test_a_budget_that_was_given_stays_when_parameters_join():
    given, written = cocd.AutoCoCD([ones(4)], compute_budget=2), cocd.AutoCoCD([ones(4)])
    written.compute_budget = 3
    for optimizer in (given, written):
        before = optimizer.compute_budget
        optimizer.add_param_group({"params": [ones(20_000)]})
        assert optimizer.compute_budget == before


def test_half_precision_that_joins_is_not_judged():
    x, y = ones(64), ones(64, dtype=torch.bfloat16)
    optimizer = cocd.AutoCoCD([x])
    optimizer.add_param_group({"params": [y]})
    spent = []
    for _ in range(4):
        before = optimizer.evaluations
        optimizer.step(lambda: (x**2).sum() + (y.float() ** 2).sum())
        spent.append(optimizer.evaluations - before)
    assert spent == 4 * [2 * 8 + 3]


def test_a_group_that_joins_after_loading_has_the_saved_rate():
    x, y = ones(4), ones(4)
    saved = cocd.AutoCoCD([x]).state_dict()
    optimizer = cocd.AutoCoCD([x], lr=0.1)
    optimizer.load_state_dict(saved)
    optimizer.add_param_group({"params": [y]})
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 1.0]


def test_a_memory_budget_of_n_may_have_the_spread_order():
    optimizer = cocd.AutoCoCD([ones(4)], memory_budget=4, schedule=Spread())
    assert isinstance(optimizer.schedule, Spread) and optimizer.memory_budget == 4


def test_the_schedule_is_spread_unless_a_memory_budget_is_given():
    assert isinstance(cocd.AutoCoCD([ones(4)]).schedule, Spread)
    assert isinstance(cocd.AutoCoCD([ones(4)], memory_budget=3).schedule, Cyclic)


# --- radii and rounding ---------------------------------------------------------------------------


def test_weights_that_are_too_large_for_the_narrow_radius_are_probed_at_the_whole_one():
    x = torch.full((8,), 1e6, requires_grad=True)
    optimizer = cocd.AutoCoCD([x], compute_budget=8)
    for _ in range(2):
        at = x.detach().clone()
        optimizer.step(lambda: ((x - 1e6 - 3) ** 2).sum())
    assert torch.allclose(optimizer.estimate(), 2 * (at - 1e6 - 3), rtol=0.15)
    assert optimizer.evaluations == 2 * (16 + 3)


def test_inside_autocast_probes_have_the_whole_radius():
    x = ones(8)
    optimizer = cocd.AutoCoCD([x], compute_budget=8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(3):
            optimizer.step(lambda: (x**2).sum())
    assert optimizer.evaluations == 3 * (16 + 3)
    optimizer.step(lambda: (x**2).sum())  # and outside again the narrow one
    assert optimizer.evaluations == 3 * (16 + 3) + 8 + 3


# --- closures and devices -------------------------------------------------------------------------


class Objective(nn.Module):
    """A module as a closure, with layers whose names mean something elsewhere."""

    def __init__(self):
        super().__init__()
        names = ("block", "differences", "prepare", "release", "traced", "points_at_once")
        for name in names:
            self.add_module(name, nn.Linear(2, 1))
        self.x = torch.ones(5, 2)

    def forward(self):
        return sum(layer(self.x).square().mean() for layer in self.children())


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: cocd.AutoCoCD(parameters, compute_budget=4),
        lambda parameters: cocd.CoCD(parameters, lr=0.01, eps=0.1, compute_budget=4),
        lambda parameters: cocd.baselines.SPSA(parameters, lr=0.01, eps=0.1),
    ],
)
def test_the_layers_of_a_module_that_is_the_closure_are_its_own(make):
    torch.manual_seed(0)
    module = Objective()
    optimizer = make(module.parameters())
    first = float(optimizer.step(module))
    for _ in range(20):
        optimizer.step(module)
    assert float(module().detach()) < first


def test_another_default_device_and_a_frozen_parameter():
    x, y = ones(4), ones(4)
    optimizer = cocd.AutoCoCD([x, y], compute_budget=3)
    y.requires_grad_(False)
    with torch.device("meta"):
        for _ in range(3):
            optimizer.step(lambda: (x**2).sum())
    assert (x < 1).any() and torch.equal(y, torch.ones(4))


def test_a_warning_that_is_an_error_comes_before_anything_is_counted():
    x = ones(2)
    optimizer = cocd.CoCD([x], lr=0.1, eps=0.1, compute_budget=2)
    calls = 0

    def closure():
        nonlocal calls
        calls += 1
        return (x**2).sum() * (float("nan") if calls % 5 == 2 else 1.0)

    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(cocd.NonFiniteWarning):
                optimizer.step(closure)
        assert optimizer.skipped == 0
    with pytest.warns(cocd.NonFiniteWarning):
        optimizer.step(closure)
    assert optimizer.skipped == 1


def test_half_precision_that_joins_is_not_judged_where_the_budget_was_set_by_hand():
    x, y = ones(64), ones(64, dtype=torch.bfloat16)
    optimizer = cocd.AutoCoCD([x])
    optimizer.compute_budget = 16
    optimizer.step(lambda: (x**2).sum())
    optimizer.add_param_group({"params": [y]})
    optimizer.step(lambda: (x**2).sum() + (y**2).sum())
    assert optimizer._learned.budget is None and optimizer.compute_budget == 16


# --- memory and modes ----------------------------------------------------------------------------


def test_a_memory_of_all_coordinates_in_the_spread_order_grows_with_them():
    x, y = torch.arange(1.0, 8).requires_grad_(), torch.arange(10.0, 14).requires_grad_()
    optimizer = cocd.AutoCoCD([x], memory_budget=7, schedule=Spread(), compute_budget=7)
    optimizer.add_param_group({"params": [y]})
    optimizer.compute_budget = 11
    before = torch.cat([x, y]).detach().clone()
    optimizer.step(lambda: (x**2).sum() / 2 + (y**2).sum() / 2)
    torch.testing.assert_close(optimizer.estimate(), before, rtol=1e-4, atol=1e-4)
    groups = [{"params": [x]}, {"params": [y]}]
    again = cocd.AutoCoCD(groups, memory_budget=11, schedule=Spread(), compute_budget=7)
    again.load_state_dict(optimizer.state_dict())


def test_a_step_in_inference_mode_and_one_outside():
    x = ones(4)
    optimizer = cocd.AutoCoCD([x], compute_budget=2)
    with torch.inference_mode():
        optimizer.step(lambda: (x**2).sum())
    for _ in range(200):
        optimizer.step(lambda: (x**2).sum())
    assert x.abs().max() < 0.01
