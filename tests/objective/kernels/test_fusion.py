"""Fused loops and folded layers: used where they can be, and right."""

import itertools
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from zoo import build

import cocd
from cocd import baselines
from cocd.objective.kernels import dispatch as kernels
from cocd.objective.registry import rules


def gradient(model, closure, **options):
    """Finite differences of all coordinates at once, and what the optimizer counted."""
    optimizer = baselines.FiniteDifference(model.parameters(), lr=0.0, eps=0.05, **options)
    optimizer.step(closure)
    return optimizer.estimate(), optimizer.evaluations


@pytest.fixture
def registry(monkeypatch):
    """Rules that a test registers are gone after it."""
    monkeypatch.setattr(rules, "sources", dict(rules.sources))
    monkeypatch.setattr(rules, "flows", dict(rules.flows))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("accelerated", [False, True])
def test_fused_loops_are_used_unless_disabled(accelerated, dtype):
    case = build("lenet", dtype)
    objective = cocd.trace(case.model, case.loss_fn)
    threads = torch.get_num_threads()
    with nullcontext() if accelerated else kernels.disabled():
        gradient(case.model, objective(case.inputs, case.target))
    assert ("(fused)" in objective.explain()) == accelerated
    assert torch.get_num_threads() == threads  # numba and torch share OpenMP


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("code", "function"), [(1, np.tanh), (3, lambda x: x / (1 + np.exp(-x)))])
def test_the_loops_own_functions_are_exact_to_a_few_units_in_the_last_place(code, function, dtype):
    x = torch.cat([torch.linspace(-60, 60, 20_001), torch.logspace(-12, 0, 1000)]).to(dtype)
    out = torch.empty_like(x)
    kernels.activate(x, code, out)
    exact = function(x.numpy().astype(np.longdouble))
    # Of SiLU the unit is that of x: its left arm is a difference of two such numbers.
    size = np.maximum(np.abs(exact), np.abs(x.numpy()) if code == kernels.SILU else 0)
    error = np.abs(out.numpy().astype(np.longdouble) - exact) / size
    assert error.max() < 4 * torch.finfo(dtype).eps
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=dtype)
    kernels.activate(odd, code, odd)
    assert odd[0].isnan() and odd[1] == function(np.inf) and abs(odd[2] - (-1, 0)[code > 1]) < 1e-5


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("outputs", [3, 16])  # few ones are multiplied in another order
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_layer_and_its_tanh_are_folded_without_the_loops(bias, outputs, dtype):
    torch.manual_seed(0)
    sizes = (4, 9, 8, 7, outputs)
    layers = [nn.Linear(i, o, bias=bias) for i, o in itertools.pairwise(sizes)]
    stack = [part for layer in layers[:-1] for part in (layer, nn.Tanh())]
    model = nn.Sequential(*stack, layers[-1]).to(dtype)
    x, y = torch.randn(6, 4, dtype=dtype), torch.randn(6, outputs, dtype=dtype)
    objective = cocd.trace(model, mse_loss)
    with kernels.disabled():
        found, _ = gradient(model, objective(x, y))
    assert objective.explain().count("(folded)") == (1 + bias) * 3
    expected, _ = gradient(model, lambda: mse_loss(model(x), y))
    rounding = 16 * torch.finfo(dtype).eps  # of losses near 1, a few times over
    assert (found - expected).abs().max() <= rounding / (2 * 0.05) < expected.abs().max() / 1e3


class Beside(nn.Module):
    """A branch that is computed between a linear layer and its activation."""

    def __init__(self):
        super().__init__()
        self.stem, self.a = nn.Linear(5, 6), nn.Linear(6, 7)
        self.beside, self.last = nn.Linear(2, 4), nn.Linear(7, 4)

    def forward(self, x):
        z = torch.sigmoid(self.stem(x))
        a = self.a(z)
        beside = self.beside(z[:, 1:3])
        return self.last(torch.tanh(a)) + beside


def test_a_branch_between_the_links_of_a_chain_is_followed():
    torch.manual_seed(0)
    model, x, y = Beside(), torch.randn(20, 5), torch.randn(20, 4)
    objective = cocd.trace(model, mse_loss, engine="incremental")
    found, _ = gradient(model, objective(x, y))
    expected, _ = gradient(model, lambda: mse_loss(model(x), y))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_a_deep_network_does_not_hold_all_of_its_layers():
    torch.manual_seed(0)
    layers = [layer for _ in range(40) for layer in (nn.Linear(64, 64), nn.GELU())]
    model, x = nn.Sequential(*layers), torch.randn(8, 32, 64)
    objective = cocd.trace(model, mse_loss)
    estimate = cocd.CoherentGradient([model[0].weight], eps=0.1, compute_budget=64)
    estimate(objective(x, torch.zeros(8, 32, 64)))
    assert objective._scratch.bytes < 64 << 20  # 312 MB if all were held


def test_a_weight_of_another_shape_than_its_layer_says():
    layer = nn.Linear(6, 8)
    layer.weight = nn.Parameter(torch.randn(8, 4))
    x, y = torch.randn(9, 4), torch.randn(9, 8)
    objective = cocd.trace(layer, mse_loss, engine="incremental")
    found, _ = gradient(layer, objective(x, y))
    expected, _ = gradient(layer, lambda: mse_loss(layer(x), y))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_a_module_may_be_the_closure():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.x = nn.Parameter(torch.ones(3))
            self.norm = nn.BatchNorm1d(1)

        def forward(self):
            return self.norm(self.x[:, None]).square().sum() + self.x.square().sum()

    loss = Loss()
    cocd.CoCD([loss.x], lr=0.1, compute_budget=3).step(loss)
    assert loss.norm.num_batches_tracked == 1
