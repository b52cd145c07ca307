"""Engines at their edges: odd losses, biases and modules, and checks that are made on the way."""

import warnings
from contextlib import nullcontext

import pytest
import torch
from helpers import flat
from torch import nn
from torch.nn.functional import linear, mse_loss

import cocd
from cocd import baselines
from cocd.objective import checks
from cocd.objective import traced_loss as closure_module
from cocd.objective.checks import disagreement
from cocd.objective.kernels import dispatch as kernels

RECHECK = checks.RECHECK


def estimate(model, closure):
    optimizer = baselines.FiniteDifference(model.parameters(), lr=0.0, eps=0.05)
    optimizer.step(closure)
    return optimizer.estimate()


def assert_incremental_and_right(model, loss_fn, x, y):
    objective = cocd.trace(model, loss_fn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = estimate(model, objective(x, y))
    assert {r.engine for r in objective._records.values()} == {"incremental"}
    expected = estimate(model, lambda: loss_fn(model(x), y))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("act", [nn.Tanh, nn.GELU])
def test_a_loss_may_ask_for_views(accelerated, act):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), act(), nn.Linear(8, 8), act(), nn.Linear(8, 3)).double()
    x, y = torch.randn(7, 4).double(), torch.randn(21).double()
    with nullcontext() if accelerated else kernels.disabled():
        assert_incremental_and_right(model, lambda o, y: mse_loss(o.view(-1), y), x, y)


class Halves(nn.Module):
    """Few outputs in the middle of it, whose changes lie units first, and a view of them."""

    def __init__(self):
        super().__init__()
        self.first, self.few, self.last = nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(3, 2)

    def forward(self, x):
        few = self.few(torch.tanh(self.first(x)))
        return self.last(torch.sigmoid(few.view(-1, 2, 3))).sum(1)


@pytest.mark.parametrize("accelerated", [False, True])
def test_few_outputs_in_the_middle_may_be_viewed(accelerated):
    torch.manual_seed(0)
    model, x, y = Halves().double(), torch.randn(7, 4).double(), torch.randn(7, 2).double()
    with nullcontext() if accelerated else kernels.disabled():
        assert_incremental_and_right(model, mse_loss, x, y)


class OddBias(nn.Module):
    """A linear function whose bias is not a vector of its outputs."""

    def __init__(self, shape):
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 5)
        self.weight, self.bias = nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.randn(shape))

    def forward(self, x):
        hidden = torch.tanh(self.second(torch.tanh(self.first(x))))
        return linear(hidden, self.weight, self.bias)


@pytest.mark.parametrize("shape", [(3,), (1, 3), ()])
@pytest.mark.parametrize("samples", [3, 6])
def test_biases_of_any_shape(shape, samples):
    torch.manual_seed(0)
    model = OddBias(shape).double()
    x, y = torch.randn(samples, 4).double(), torch.randn(samples, 3).double()
    with kernels.disabled():
        assert_incremental_and_right(model, mse_loss, x, y)


@pytest.mark.parametrize("accelerated", [False, True])
def test_a_parameter_that_the_layer_does_not_know(accelerated):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    model[0].register_parameter("extra", nn.Parameter(torch.ones(9)))
    objective = cocd.trace(model, mse_loss)
    with nullcontext() if accelerated else kernels.disabled(), warnings.catch_warnings():
        warnings.simplefilter("error")
        found = estimate(model, objective(torch.randn(6, 4), torch.randn(6, 2)))
    names = [name for name, p in model.named_parameters() for _ in range(p.numel())]
    extra = torch.tensor([name == "0.extra" for name in names])
    assert extra.sum() == 9 and not found[extra].any() and found[~extra].all()


def test_a_module_that_is_registered_twice_survives():
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.Tanh(), layer).double()
    x, y = torch.randn(5, 4).double(), torch.randn(5, 4).double()
    before = flat(model.parameters())
    found = estimate(model, cocd.trace(model, mse_loss)(x, y))
    assert torch.equal(flat(model.parameters()), before)
    expected = estimate(model, lambda: mse_loss(model(x), y))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


# --- checks on the way -------------------------------------------------------------------


class Scale(nn.Module):
    """A mean and a deviation, which must stay above zero."""

    def __init__(self):
        super().__init__()
        self.mean, self.deviation = nn.Linear(2, 1), nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.mean(x), self.deviation


def test_a_later_check_that_leaves_the_domain_is_left_out():
    torch.manual_seed(0)
    model = Scale()
    objective = cocd.trace(
        model, lambda out, y: -torch.distributions.Normal(*out).log_prob(y).mean()
    )
    optimizer = cocd.CoCD(model.parameters(), lr=0.0, eps=1e-3, compute_budget=4)
    closure = objective(torch.randn(8, 2), torch.randn(8, 1))
    optimizer.step(closure)
    with torch.no_grad():
        model.deviation.fill_(0.05)  # less than the radius of a check
    seen = objective.checks
    for _ in range(RECHECK):
        optimizer.step(closure)
    assert objective.checks > seen and optimizer.evaluations == 9 * (1 + RECHECK)


def test_near_a_minimum_rounding_is_no_disagreement():
    torch.manual_seed(0)
    x = torch.rand(200, 3) * torch.tensor([2000.0, 5.0, 1.0])
    y = x @ torch.tensor([[0.01], [1.0], [2.0]])
    model = nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.01, 1.0, 2.0]]))
        model.bias.fill_(0.01)
    objective = cocd.trace(model, mse_loss)
    optimizer = cocd.CoCD(model.parameters(), lr=0.0, eps=1e-3, compute_budget=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4 * RECHECK):
            optimizer.step(objective(x, y))


def test_an_engine_that_loses_its_numbers_is_noticed(monkeypatch):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    objective = cocd.trace(model, mse_loss)
    closure = objective(torch.randn(4, 3), torch.randn(4, 2))
    optimizer = cocd.CoCD(model.parameters(), lr=0.0, compute_budget=8)
    optimizer.step(closure)
    original = closure_module.loss_changes
    monkeypatch.setattr(closure_module, "loss_changes", lambda *args: original(*args) * torch.nan)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(RECHECK):
            optimizer.step(closure)
    assert any("gives finite losses where the closure does not" in str(w.message) for w in seen)
    assert "incremental" not in {r.engine for r in objective._records.values()}


def test_what_decides_the_chunks_is_saved():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    closure_of = cocd.trace(model, mse_loss, memory_limit=2000)
    x, y = torch.randn(9, 4), torch.randn(9, 3)
    estimate(model, closure_of(x, y))
    again = cocd.trace(model, mse_loss, memory_limit=2000)
    again.load_state_dict(closure_of.state_dict())
    with torch.no_grad():
        again(x, y).prepare(lambda: None)
    peaks = [[r.plan.peak for r in o._records.values()] for o in (closure_of, again)]
    assert peaks[0] == peaks[1] and all(peaks[0])
    assert closure_of.checks > 0


@pytest.mark.parametrize(("here", "there"), [(1.0, float("inf")), (float("inf"), 1.0), (1.0, 2.0)])
def test_finite_and_infinite_losses_disagree(here, there):
    assert disagreement(torch.tensor(here), torch.tensor(there))
    assert not disagreement(torch.tensor(there), torch.tensor(there))


def test_no_rate_moves_nothing_not_even_a_sign():
    x = torch.tensor([-0.0, 1.0], requires_grad=True)
    cocd.CoCD([x], lr=0.0, weight_decay=0.1, compute_budget=1).step(lambda: (x**2).sum())
    assert str(x.detach()) == "tensor([-0., 1.])"


class TwoPrecisions(nn.Module):
    """Double precision in front, single precision behind, and so the loss."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 7).double(), nn.Linear(7, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x.double())).float())


@pytest.mark.parametrize("seed", range(6))
def test_checks_allow_for_the_coarsest_precision_on_the_way(seed):
    torch.manual_seed(seed)
    model, x, y = TwoPrecisions(), torch.randn(20, 5), torch.randint(3, (20,))
    objective = cocd.trace(model, nn.CrossEntropyLoss())
    optimizer = cocd.CoCD(model.parameters(), lr=0.1, compute_budget=20)
    for _ in range(5):
        optimizer.step(objective(x, y))  # a warning would be an error
    assert objective.explain().count("incremental") >= 4
