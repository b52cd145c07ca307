"""Patches against replays of the whole model."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cocd


def flat(units):
    return nn.Sequential(
        nn.Linear(12, units), nn.Tanh(), nn.Linear(units, 5), nn.GELU(), nn.Linear(5, 3)
    )


def pooled(activation):
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), activation(), nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3, padding=1), activation(), nn.MaxPool2d(2),
        nn.Conv2d(5, 3, 3, padding="same"), activation(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3 * 1 * 2, 3),
    )  # fmt: skip


def odd():
    """What patches can follow up to a point only."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 5, padding=1), nn.SiLU(), nn.Conv2d(3, 4, 3), nn.Dropout(0.3),
        nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.LayerNorm(24), nn.Linear(24, 3),
    )  # fmt: skip


MODELS = {
    "linear": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), (3, 4)),
    "mlp": (lambda: flat(6), (12,)),
    "tanh before pooling": (lambda: pooled(nn.Tanh), (2, 15, 16)),
    "silu before pooling": (lambda: pooled(nn.SiLU), (2, 15, 16)),
    "dropout, stride, groups, means": (odd, (2, 13, 20)),
}


@pytest.mark.parametrize("directions", [None, 2])
@pytest.mark.parametrize("name", MODELS)
def test_patches_give_what_replays_give(name, directions):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().double()
    x, y = torch.randn(5, *shape, dtype=torch.float64), torch.randint(0, 3, (5,))
    found = []
    for fast in (True, False):
        objective = cocd.trace(model, F.cross_entropy)
        gradient = cocd.UnitGradient(objective, directions=directions, difference="central")
        torch.manual_seed(1)
        gradient(objective(x, y))  # checks rules, draws from nothing but the seed
        gradient._verified.unchained = set() if fast else set(gradient._verified._problems)
        torch.manual_seed(2)
        gradient(objective(x, y))
        found.append({n: p.grad.clone() for n, p in model.named_parameters()})
    for parameter, slope in found[0].items():
        torch.testing.assert_close(slope, found[1][parameter], rtol=1e-6, atol=1e-8)


def test_wide_nudges_of_saturated_units_give_what_replays_give():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
    x, y = 30 * torch.randn(6, 4), torch.randint(0, 3, (6,))
    found = []
    for fast in (True, False):
        objective = cocd.trace(model, F.cross_entropy)
        gradient = cocd.UnitGradient(objective, eps=20.0)
        gradient(objective(x, y))
        gradient._verified.unchained = set() if fast else set(gradient._verified._problems)
        gradient(objective(x, y))
        found.append({n: p.grad.clone() for n, p in model.named_parameters()})
    for parameter, slope in found[0].items():
        torch.testing.assert_close(slope, found[1][parameter], rtol=1e-4, atol=1e-6)


def test_patches_are_used_where_they_can_be():
    torch.manual_seed(0)
    model = pooled(nn.Tanh)
    passes = []
    model[3].register_forward_pre_hook(lambda *_: passes.append(1))
    objective = cocd.trace(model, F.cross_entropy)
    gradient = cocd.UnitGradient(objective)
    x, y = torch.randn(5, 2, 15, 16), torch.randint(0, 3, (5,))
    gradient(objective(x, y))
    passes.clear()
    gradient(objective(x, y))
    assert len(passes) == 1


def test_patches_that_disagree_are_not_used(monkeypatch):
    from cocd.units import patches

    torch.manual_seed(0)
    model = pooled(nn.Tanh)
    objective = cocd.trace(model, F.cross_entropy)
    x, y = torch.randn(5, 2, 15, 16), torch.randint(0, 3, (5,))
    expected = cocd.UnitGradient(objective)
    expected(objective(x, y))
    slopes = {n: p.grad.clone() for n, p in model.named_parameters()}
    right = patches._convolved
    monkeypatch.setattr(
        patches, "_convolved",
        lambda *a: patches.replace(right(*a), delta=right(*a).delta * 1.2),
    )  # fmt: skip
    gradient = cocd.UnitGradient(objective)
    with pytest.warns(cocd.EngineWarning, match="patches do not give"):
        gradient(objective(x, y))
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, slopes[name], rtol=1e-2, atol=1e-4)
