"""The measured error of the estimate, beside the bound of the theorem."""

import copy

import pytest
import torch
from helpers import Raising, world
from known import SPLITS, Waves
from tracked import problem, steps

import cocd
from cocd import theory
from cocd.diagnostics import Coherence


@pytest.mark.parametrize(("n", "B"), SPLITS)
def test_the_bound_stands_beside_the_measured_error_and_holds(n, B):
    f = Waves(n, 6, seed=n + B)
    x = torch.from_numpy(f.start.copy()).requires_grad_()
    lr = 0.5 * theory.largest_learning_rate(f.L, n, B)
    tracker = Coherence(optimizer := cocd.CoCD([x], lr=lr, eps=0.5, compute_budget=B))

    def closure():
        return f(x.detach().numpy())

    sweep, largest = -(-n // B), 0.0
    for t in range(4 * sweep):
        optimizer.step(closure)
        error = tracker.error(closure, L=f.L_eps(0.5))
        assert error.evaluations == 2 * n + 1
        if t < sweep - 1:
            (caveat,) = error.caveats
            assert caveat.startswith(f"{tracker.cold} coordinates have not been estimated")
            continue
        assert error.caveats == ()
        assert error.measured <= error.euclidean_bound * (1 + 1e-9) + 1e-12
        assert error.euclidean_bound <= error.bound * (1 + 1e-12)
        largest = max(largest, error.measured)
    assert (largest > 1e-5) == (n > B)
    assert tracker.evaluations == 4 * sweep * (2 * n + 1)
    assert optimizer.evaluations == 4 * sweep * (2 * B + 1)


def test_the_error_compares_the_estimate_with_the_gradient_at_its_own_point():
    """B = n: at x_t the estimate is the gradient, at x_(t+1) it is not."""
    optimizer, closure = problem("all")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 3)
    error = tracker.error(closure)
    assert error.measured == 0
    assert error.relative == 0
    assert error.gradient == pytest.approx(float(optimizer.estimate().norm()))


def test_conditions_that_are_not_met_are_named():
    optimizer, closure = problem("ring")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 9)
    assert tracker.error(closure).caveats == (
        "decay is 0.9, the theorem needs 1",
        "memory_budget is 5, the theorem needs all 7",
        "L is estimated from below",
    )
    optimizer, closure = problem("Random")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 40)
    caveats = tracker.error(closure, L=1.0).caveats
    assert any("may repeat a coordinate" in caveat for caveat in caveats)
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 9)
    optimizer.compute_budget = 5
    assert tracker.error(closure, L=1.0).caveats == (
        "estimates are older than n / B steps: the budget changed, probes failed, or parameters "
        "were frozen for a time",
    )


@pytest.mark.parametrize("option, first, then", [("decay", 0.5, 1.0), ("eps", 2.0, 0.1)])
def test_options_that_were_changed_are_named_until_no_estimate_is_left_from_before(
    option, first, then
):
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    optimizer.param_groups[0][option] = first
    steps(optimizer, closure, 9)
    optimizer.param_groups[0][option] = then
    said = "decay or eps has been changed since the oldest estimate in use was made"
    steps(optimizer, closure, 1)
    assert said in tracker.error(closure, L=1.0).caveats
    state = tracker.state_dict()
    tracker.load_state_dict(state)
    assert said in tracker.error(closure, L=1.0).caveats
    steps(optimizer, closure, 3)  # 7 coordinates, 3 a step
    assert tracker.error(closure, L=1.0).caveats == ()


def test_a_state_from_before_options_were_noticed_is_taken():
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 5)
    state = tracker.state_dict()
    del state["eps"], state["altered"]
    tracker.load_state_dict(state)
    steps(optimizer, closure, 4)
    assert tracker.error(closure, L=1.0).caveats == ()


def test_what_makes_its_estimates_in_several_ways_says_so_and_bounds_nothing():
    optimizer, closure = problem("Auto")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 40)
    assert not tracker.summary()["smoothness"]
    assert tracker.summary()["pairs"] == 40 * 3 - 7
    error = tracker.error(closure, L=1.0)
    assert error.caveats[0] == "estimates are made with several radii, the theorem needs one"
    assert error.evaluations == 15


def test_a_detached_tracker_measures_no_error():
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 9)
    tracker.detach()
    with pytest.raises(ValueError, match="has been detached"):
        tracker.error(closure)
    assert tracker.evaluations == 0


def test_after_a_divergence_and_a_return_the_bound_is_that_of_the_run():
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 9)
    x = [p.detach().clone() for p in optimizer.param_groups[0]["params"]]
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.param_groups[0]["lr"] = 1.0
    while not tracker.summary()["step_max"] > 1e15:  # more than all later steps can add to
        steps(optimizer, closure, 1)
    with torch.no_grad():
        for p, old in zip(optimizer.param_groups[0]["params"], x, strict=True):
            p.copy_(old)
    optimizer.load_state_dict(saved)
    steps(optimizer, closure, 9)
    error = tracker.error(closure, L=30.0)  # more than the trace of the quadratic
    assert error.caveats == () and 0 < error.measured <= error.bound < 1e3


def test_what_is_frozen_counts_neither_as_a_step_nor_as_a_decay():
    optimizer, closure = problem("CoCD")
    a = optimizer.param_groups[0]["params"][0]
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 9)
    a.requires_grad_(False)
    steps(optimizer, closure, 40)
    error = tracker.error(closure, L=1.0)
    assert error.delta <= tracker.summary()["step_max"]
    assert error.caveats == ("3 coordinates are frozen or could not be probed: left out",)
    group = {"params": [("c", torch.zeros(2))], "decay": 0.5}
    optimizer.add_param_group(group)
    steps(optimizer, closure, 9)
    assert not any("decay" in said for said in tracker.error(closure, L=1.0).caveats)


def test_a_measurement_leaves_random_numbers_buffers_and_parameters_alone():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1)
    )
    x = torch.randn(8, 3)
    optimizer = cocd.CoCD(model.named_parameters(), lr=0.01, compute_budget=5)
    tracker = Coherence(optimizer)
    loss = lambda: model(x).square().mean()  # noqa: E731
    steps(optimizer, loss, 3)
    before = world(optimizer, model)
    tracker.error(loss)
    assert world(optimizer, model) == before

    def stop():
        raise KeyboardInterrupt

    spent, counted = tracker.evaluations, optimizer.evaluations
    with pytest.raises(KeyboardInterrupt):
        tracker.error(Raising(loss, 20, stop))
    assert world(optimizer, model) == before
    assert tracker.evaluations == spent + 20
    assert optimizer.evaluations == counted


def test_a_traced_objective_is_measured_with_its_engine():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    x, y = torch.randn(8, 3), torch.zeros(8, 1)
    objective = cocd.trace(model, torch.nn.functional.mse_loss)
    optimizer = cocd.CoCD(model.named_parameters(), lr=0.01, compute_budget=5)
    tracker = Coherence(optimizer)
    steps(optimizer, objective(x, y), 9)
    plain = tracker.error(lambda: torch.nn.functional.mse_loss(model(x), y))
    traced = tracker.error(objective(x, y))
    assert traced.measured == pytest.approx(plain.measured, rel=1e-3)
    assert list(tracker.summary()["by_tensor"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
