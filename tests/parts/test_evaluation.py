"""2B + 1 evaluations look like one from outside: random numbers, module buffers, autocast."""

import copy

import pytest
import torch
from helpers import Raising, frozen, world
from torch import nn
from torch.nn import functional as F

import cocd
from cocd import baselines

X = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))


def buffers(module):
    return frozen(dict(module.named_buffers()))


# --- random numbers ----------------------------------------------------------------------


def test_all_evaluations_see_the_same_random_numbers():
    x, drawn = torch.ones(3, requires_grad=True), []

    def loss():
        drawn.append(frozen([torch.rand(2), torch.randn(3), torch.randperm(5)]))
        return (x * torch.rand(3)).sum()

    cocd.CoCD([x], lr=0.1, compute_budget=3).step(loss)
    assert len(drawn) == 7
    assert drawn == [drawn[0]] * 7


def test_evaluations_share_random_numbers_that_perturbed_points_alone_draw():
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    drawn = []

    def loss():  # a branch on the data: at x_t nothing is random
        noise = torch.rand(1, dtype=torch.float64) if x.max() > 1.05 else torch.zeros(1)
        drawn.append(float(noise))
        return (x * (1 + noise)).sum()

    torch.manual_seed(3)
    before = torch.get_rng_state()
    optimizer = cocd.CoCD([x], lr=0.0, eps=0.1, compute_budget=3)
    optimizer.step(loss)
    torch.manual_seed(3)
    noise = float(torch.rand(1, dtype=torch.float64))
    torch.set_rng_state(before)
    assert optimizer.evaluations == len(drawn) == 1 + 6 + 6  # all are made again, and counted
    assert drawn[-6:] == [noise, 0.0] * 3
    slope = ((1 + noise) * 3.1 - 2.9) / 0.2
    torch.testing.assert_close(optimizer.estimate(), torch.full_like(x, slope).detach())
    assert torch.equal(torch.get_rng_state(), before)


def test_the_generator_advances_as_by_one_evaluation():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 1))
    torch.manual_seed(5)
    with torch.no_grad():
        losses = [float(F.mse_loss(model(X), torch.randn(8, 1))) for _ in range(3)]
    after = torch.rand(4)
    torch.manual_seed(5)
    optimizer = cocd.CoCD(model.parameters(), lr=0.0, compute_budget=4)
    stepped = [
        float(optimizer.step(lambda: F.mse_loss(model(X), torch.randn(8, 1)))) for _ in range(3)
    ]
    assert stepped == losses
    assert torch.equal(torch.rand(4), after)


def test_the_difference_is_that_of_the_same_mask():
    torch.manual_seed(0)
    x = torch.ones(6, dtype=torch.float64, requires_grad=True)
    masks = []

    def loss():
        masks.append(F.dropout(torch.ones(6, dtype=torch.float64)))
        return masks[-1] @ x

    optimizer = cocd.CoCD([x], lr=0.0, compute_budget=6)
    optimizer.step(loss)
    torch.testing.assert_close(optimizer.estimate(), masks[0])
    assert 0 < masks[0].count_nonzero() < 6


def test_a_closure_without_randomness_leaves_the_generator_alone():
    x = torch.ones(3, requires_grad=True)
    before = torch.get_rng_state()
    for make in (cocd.CoCD, baselines.RandomCoordinate, baselines.SPSA, baselines.MeZO):
        make([x], lr=0.1).step(lambda: (x**2).sum())
    assert torch.equal(torch.get_rng_state(), before)


# --- module buffers ----------------------------------------------------------------------


def expect_one_unperturbed_evaluation(model, modules=None, run=None, **options):
    """After two steps at lr 0 the buffers are those of a copy that was evaluated twice."""
    run = run or (lambda m: m(X).pow(3).sum())
    twin = copy.deepcopy(model)
    optimizer = cocd.CoCD(
        model.parameters(), lr=0.0, eps=1.0, compute_budget=4, modules=modules, **options
    )
    for _ in range(2):
        with torch.no_grad():
            run(twin)
        optimizer.step(lambda: run(model))
        assert buffers(model) == buffers(twin)


@pytest.mark.parametrize("given", ["default", "module", "list"])
@pytest.mark.parametrize("difference", ["central", "forward"])
def test_batch_norm_statistics_change_as_by_one_unperturbed_evaluation(given, difference):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    modules = {"default": None, "module": model, "list": [model[1]]}[given]
    expect_one_unperturbed_evaluation(model, modules, difference=difference)
    assert model[1].num_batches_tracked == 2


def test_statistics_that_the_unperturbed_evaluation_leaves_alone_stay():
    # The mean of a constant zero is the zero that stands there; at perturbed weights it is not,
    # and batch_norm writes without raising the tensor's version.
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    for p in model[0].parameters():
        nn.init.zeros_(p)
    expect_one_unperturbed_evaluation(model)
    assert model[1].running_mean.count_nonzero() == 0


def test_buffers_of_a_child_that_is_not_called_are_protected():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)

        def forward(self, x):
            mean, var = self.norm.running_mean, self.norm.running_var
            return F.batch_norm(self.linear(x), mean, var, training=True)

    expect_one_unperturbed_evaluation(Functional())


class Remembering(nn.Module):
    """Writes its buffers in every way there is."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.register_buffer("replaced", torch.zeros(4))
        self.register_buffer("inplace", torch.zeros(4))
        self.register_buffer("late", None)
        self.register_buffer("constant", torch.ones(1).expand(5))

    def forward(self, x):
        out = self.linear(x)
        self.replaced = 0.5 * self.replaced + out.detach().mean(0)
        self.inplace.lerp_(out.detach().mean(0), 0.5)
        self.late = out.detach().sum() if self.late is None else self.late + 1
        if not hasattr(self, "registered"):
            self.register_buffer("registered", out.detach().clone())
        return out


def test_buffers_that_are_replaced_or_appear_during_the_forward():
    torch.manual_seed(0)
    expect_one_unperturbed_evaluation(Remembering())


def test_buffers_that_appeared_are_gone_after_a_failed_step():
    model = Remembering()
    optimizer = cocd.CoCD(model.parameters(), lr=0.1, eps=1.0, compute_budget=1)
    before, inplace = world(optimizer, model), model.inplace

    with pytest.raises(ValueError, match="None"):
        optimizer.step(Raising(lambda: model(X).sum(), 2, lambda: None))
    assert world(optimizer, model) == before
    assert model.late is None and not hasattr(model, "registered")
    assert model.inplace is inplace


def test_modules_given_protects_those_alone():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = cocd.CoCD(model.parameters(), lr=0.0, compute_budget=2, modules=[])
    optimizer.step(lambda: model(X).pow(3).sum())
    assert model[1].num_batches_tracked == 5


def test_spectral_norm_iterates_once():
    torch.manual_seed(0)
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4))
    expect_one_unperturbed_evaluation(model)


def test_evaluation_mode_changes_no_buffers():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    before = buffers(model)
    cocd.CoCD(model.parameters(), lr=0.1, compute_budget=1).step(lambda: model(X).sum())
    assert buffers(model) == before


@pytest.mark.parametrize("method", [baselines.SPSA, baselines.ZOSGD, baselines.MeZO])
def test_direction_methods_change_buffers_as_by_one_evaluation(method):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = method(model.parameters(), lr=0.1, directions=3)
    optimizer.step(lambda: model(X).pow(3).sum())
    assert (optimizer.evaluations, int(model[1].num_batches_tracked)) == (6, 1)


# --- autocast ----------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["none", "new", "prepared"])
def test_autocast_around_the_step_gives_the_right_differences(inside):
    """Autocast caches its casts of the weights: a perturbed one must be cast again."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    prepared = torch.autocast("cpu", dtype=torch.bfloat16)

    def loss():
        if inside == "none":
            return model(X).float().sum()
        with prepared if inside == "prepared" else torch.autocast("cpu", dtype=torch.bfloat16):
            return model(X).float().sum()

    optimizer = cocd.CoCD(model.parameters(), lr=0.5, eps=1.0, compute_budget=4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        optimizer.step(loss)
        assert torch.is_autocast_cache_enabled()
        after = model(X).float()
    torch.testing.assert_close(optimizer.estimate()[:3], X.sum(0), rtol=0.02, atol=0.05)
    assert optimizer.estimate()[3].item() == pytest.approx(8, rel=0.01)
    torch.testing.assert_close(after, model(X), rtol=0.05, atol=0.1)  # no cast of old weights
