import pytest
import torch
from helpers import frozen
from torch.nn import functional as F

import cocd
from cocd.sparsity import zo_grasp


def problem():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    x, y = torch.randn(32, 4), torch.randn(32, 2)
    return model, lambda: F.mse_loss(model(x), y)


def test_ratios_leave_out_the_given_share_of_the_matrices_and_no_bias():
    model, closure = problem()
    ratios = zo_grasp(closure, model.named_parameters(), sparsity=0.75, directions=4)
    assert ratios["0.bias"] == ratios["2.bias"] == 0.0
    assert 32 * ratios["0.weight"] + 16 * ratios["2.weight"] == pytest.approx(36)


def test_weights_that_do_not_matter_to_the_gradient_flow_are_left_out():
    steep, flat = torch.ones(2, 2), torch.ones(2, 2)  # scores: the curvature's square
    named = [("steep", steep.requires_grad_()), ("flat", flat.requires_grad_())]
    ratios = zo_grasp(
        lambda: 5 * (steep**2).sum() + 0.5 * (flat**2).sum(), named, sparsity=0.5, directions=500
    )
    assert ratios == {"steep": 0.0, "flat": 1.0}


def test_zo_grasp_costs_two_passes_a_direction_and_changes_nothing():
    model, closure = problem()
    calls = []
    before, random = frozen(model.state_dict()), torch.get_rng_state()
    zo_grasp(
        lambda: calls.append(1) or closure(), model.named_parameters(), sparsity=0.5, directions=3
    )
    assert len(calls) == 2 * 3 + 2
    assert frozen(model.state_dict()) == before
    assert torch.equal(torch.get_rng_state(), random)


def test_a_failure_restores_the_weights():
    model, _ = problem()
    before, losses = frozen(model.state_dict()), iter([1.0, float("nan")])
    with pytest.raises(cocd.NonFiniteLoss, match="nothing has changed"):
        zo_grasp(lambda: next(losses), model.named_parameters(), sparsity=0.5)
    assert frozen(model.state_dict()) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sparsity": 1.0}, "sparsity must be from 0 up to 1"),
        ({"sparsity": 0.5, "step": 0.0}, "step must be a positive number"),
        ({"sparsity": 0.5, "directions": 0}, "directions must be"),
    ],
)
def test_what_cannot_work_is_refused(options, message):
    model, closure = problem()
    with pytest.raises(ValueError, match=message):
        zo_grasp(closure, model.named_parameters(), **options)
