"""Rounding: the engines lose less to it than the closure does, and do not mistake it for errors."""

from contextlib import nullcontext

import pytest
import torch
from helpers import frozen
from torch import nn
from torch.nn import functional as F
from zoo import build
from zoo.case import Net

import cocd
from cocd import baselines
from cocd.objective.closure import sequential
from cocd.objective.kernels import dispatch as kernels
from cocd.parts.evaluation import Evaluations


def gradient(model, closure):
    """Finite differences of all coordinates, and the loss."""
    optimizer = baselines.FiniteDifference(model.parameters(), lr=0.0, eps=0.05)
    loss = optimizer.step(closure)
    return optimizer.estimate(), float(loss)


def engines(objective):
    return {objective.engine_of(name) for name, _ in objective.model.named_parameters()}


def exact(case, index, eps, difference):
    """Differences in float64 between the points that a float32 weight really reaches."""
    model = case.model.requires_grad_(False)
    found = {}
    for name, p in model.named_parameters():
        narrow, cells = p.float(), p.view(-1)
        signs = (1, -1) if difference == "central" else (1, 0)
        ends = [(narrow + sign * eps).view(-1).double() for sign in signs]
        differences = []
        for i in index[name]:
            saved, losses = cells[i].item(), []
            for end in ends:
                cells[i] = end[i]
                losses.append(float(case.loss_fn(model(case.inputs), case.target)))
            cells[i] = saved
            differences.append(losses[0] - losses[1])
        found[name] = torch.tensor(differences, dtype=torch.float64)
    return found


def largest_error(of, closure, index, eps, difference, truth):
    with Evaluations(closure, None, (), lambda count: None) as evaluate:
        loss = evaluate(prepare=True)
        return max(
            (of(evaluate, loss, p, index[key], eps, difference).first - truth[key]).abs().max()
            for key, p in closure.objective.model.named_parameters()
        )


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("difference", ["central", "forward"])
@pytest.mark.parametrize("name", ["mlp", "lenet", "cross_entropy_sum"])
def test_differences_lose_less_to_rounding_than_the_closures(name, difference, accelerated):
    case = build(name, torch.float32)
    generator = torch.Generator().manual_seed(0)
    index = {
        key: torch.randperm(p.numel(), generator=generator)[:12].tolist()
        for key, p in case.model.named_parameters()
    }
    objective = cocd.trace(case.model, case.loss_fn)
    closure = objective(case.inputs, case.target)
    for eps in (1e-4, 1e-3, 1e-2, 1e-1):
        truth = exact(build(name, torch.float32).to(torch.float64), index, eps, difference)
        with nullcontext() if accelerated else kernels.disabled():
            error = largest_error(closure.differences, closure, index, eps, difference, truth)
        assert error <= largest_error(sequential, closure, index, eps, difference, truth), eps
    assert engines(objective) == {"incremental"}


def test_a_loss_near_zero_is_no_disagreement():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    x = torch.randn(512, 8)
    with torch.no_grad():
        model[2].weight.mul_(60)
        best = model(x).topk(2).values
        x = x[best[:, 0] - best[:, 1] > 18]  # logits of 50, losses of 1e-7
    objective = cocd.trace(model, F.cross_entropy)
    gradient(model, objective(x, model(x).argmax(1)))
    assert engines(objective) == {"incremental"}


def test_rounding_that_a_layer_amplifies_is_no_disagreement():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    nn.init.constant_(model[0].bias, 3000.0)  # LayerNorm subtracts what the sums were rounded at
    before = frozen(list(model.parameters()))
    objective = cocd.trace(model, F.mse_loss)
    gradient(model, objective(torch.randn(32, 6), torch.zeros(32, 3)))
    assert engines(objective) == {"incremental"}
    assert frozen(list(model.parameters())) == before


def test_losses_that_are_not_finite_are_the_same_ones():
    case = build("mlp")
    case.model.append(Net(lambda m, y: torch.log(y + 1.05)))
    case.model.append(nn.Flatten())
    with torch.no_grad():
        lowest = case.model[:5](case.inputs).min()
        case.model[4].bias -= 1 + lowest  # the smallest output is 0.05 away from log(0)
    objective = cocd.trace(case.model, case.loss_fn)
    closure = objective(case.inputs, case.target)
    weight = case.model[4].bias
    results = []
    for of in (sequential, closure.differences):
        with Evaluations(closure, None, (), lambda count: None) as evaluate:
            loss = evaluate(prepare=True)
            results.append(of(evaluate, loss, weight, [0, 1], 0.3, "central").first)
    assert results[0].isnan().any() and torch.equal(results[0].isnan(), results[1].isnan())
    assert objective.engine_of("4.bias") == "incremental"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_followed(dtype):
    case = build("mlp", dtype)
    objective = cocd.trace(case.model, case.loss_fn)
    closure = objective(case.inputs, case.target)
    before = frozen(list(case.model.parameters()))
    expected, loss = gradient(case.model, lambda: closure())
    found, _ = gradient(case.model, closure)
    assert (found - expected).abs().max() < 16 * torch.finfo(dtype).eps * loss / (2 * 0.05)
    assert engines(objective) == {"incremental"}
    assert frozen(list(case.model.parameters())) == before


def test_a_small_weight_decay_is_not_lost_in_float32():
    # 1 - 1e-7 is 1 - 1.19e-7 in float32: a fifth too much, at every step and for every weight.
    x = torch.rand(20_000, generator=torch.Generator().manual_seed(0)).add_(0.1).requires_grad_()
    start = x.detach().double().sum()
    optimizer = cocd.CoCD([x], lr=1e-3, weight_decay=1e-4, compute_budget=1)
    with pytest.warns(cocd.ClosureWarning, match="whatever the parameters are"):
        for _ in range(100):
            optimizer.step(lambda: torch.tensor(1.0))
    lost = 1 - x.detach().double().sum() / start
    assert float(lost) == pytest.approx(100 * 1e-7, rel=0.1)
