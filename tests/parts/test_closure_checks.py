"""Closures that are not what they seem: one clear word, at next to no cost."""

import copy
import itertools
import warnings

import numpy as np
import pytest
import torch
import torch.distributed as dist
from helpers import frozen
from ranks import run_ranks
from torch import nn
from torch.nn.functional import mse_loss

import cocd

METHODS = {
    "CoCD": lambda p: cocd.CoCD(p, 0.01, compute_budget=3),
    "AutoCoCD": lambda p: cocd.AutoCoCD(p),
    "SPSA": lambda p: cocd.baselines.SPSA(p, 1e-6, directions=2),
    "CoherentGradient": lambda p: cocd.CoherentGradient(p),
}
methods = pytest.mark.parametrize("name", METHODS)


def model_and_batch():
    torch.manual_seed(0)
    return nn.Linear(4, 2), torch.randn(8, 4), torch.randn(8, 2)


def take(name, parameters):
    optimizer = METHODS[name](parameters)
    return optimizer, getattr(optimizer, "step", optimizer)


@methods
@pytest.mark.parametrize("kind", ["NumPy noise", "a new batch", "a hidden state"])
def test_a_loss_that_differs_at_the_same_point_is_noticed_once(name, kind):
    model, x, y = model_and_batch()
    rng, hidden, rows = np.random.default_rng(0), [], itertools.count()

    def closure():
        if kind == "NumPy noise":
            return mse_loss(model(x), y) + 0.1 * rng.normal()
        if kind == "a new batch":
            i = next(rows) % 8
            return mse_loss(model(x[i]), y[i])
        hidden.append(0.5)
        return mse_loss(model(x) + sum(hidden), y)

    _, step = take(name, model.parameters())
    with pytest.warns(cocd.ClosureWarning, match="at the same point") as seen:
        for _ in range(100):
            step(closure)
    assert len([w for w in seen if w.category is cocd.ClosureWarning]) == 1


@methods
def test_random_numbers_of_torch_are_the_same_at_every_call_and_no_cause_for_alarm(name):
    model, x, y = model_and_batch()
    net = nn.Sequential(nn.Dropout(0.5), model, nn.BatchNorm1d(2))
    _, step = take(name, net.parameters())
    for _ in range(60):
        step(lambda: mse_loss(net(x) + 0.1 * torch.randn(8, 2), y))


@methods
def test_a_closure_of_another_model_is_noticed(name):
    model, x, y = model_and_batch()
    other = copy.deepcopy(model)
    _, step = take(name, model.parameters())
    before = frozen(model.state_dict())
    with pytest.warns(cocd.ClosureWarning, match="whatever the parameters are"):
        for _ in range(100):
            step(lambda: mse_loss(other(x), y))
    assert frozen(model.state_dict()) == before


@methods
def test_slopes_that_are_all_zero_by_symmetry_are_no_cause_for_alarm(name):
    x = torch.zeros(6, requires_grad=True)
    _, step = take(name, [x])
    for _ in range(100):
        step(lambda: (x**2).sum())


@methods
def test_a_closure_that_calls_backward_is_told_so_and_nothing_changes(name):
    model, x, y = model_and_batch()
    _, step = take(name, model.parameters())

    def closure():
        loss = mse_loss(model(x), y)
        loss.backward()
        return loss

    before = frozen(model.state_dict())
    with pytest.raises(ValueError, match=r"closure calls backward\(\).*return the loss alone"):
        step(closure)
    assert frozen(model.state_dict()) == before
    step(lambda: mse_loss(model(x), y))


def test_the_look_costs_one_evaluation_that_is_not_the_methods():
    model, x, y = model_and_batch()
    calls = []
    optimizer = cocd.CoCD(model.parameters(), 0.01, compute_budget=3)
    for _ in range(40):
        optimizer.step(lambda: calls.append(0) or mse_loss(model(x), y))
    assert (optimizer.evaluations, optimizer.checks, len(calls)) == (280, 1, 281)


def parallel(rank, sharded):
    model, x, y = model_and_batch()
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = cocd.CoCD(model.parameters(), 0.01, compute_budget=3)
    share = cocd.distributed.Shard(optimizer) if sharded else lambda closure: closure
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        batch = x if sharded else x + rank
        optimizer.step(share(lambda: mse_loss(model(batch), y)))
    return [str(w.message) for w in seen if w.category is cocd.ClosureWarning]


@pytest.mark.skipif(not dist.is_available(), reason="torch has no distributed package")
@pytest.mark.parametrize("sharded", [False, True])
def test_ddp_with_batches_of_its_own_on_each_rank_is_noticed(sharded):
    for said in run_ranks(parallel, 2, sharded):
        if sharded:
            assert said == []
        else:
            assert len(said) == 1 and "cocd.distributed.Shard" in said[0]


@pytest.mark.parametrize("kind", ["another model", "a copy", "a replaced weight"])
def test_parameters_that_the_traced_model_does_not_have_are_named_in_the_first_step(kind):
    model, x, y = model_and_batch()
    other = {"another model": nn.Linear(4, 2), "a copy": copy.deepcopy(model)}.get(kind, model)
    optimizer = cocd.CoCD(other.parameters(), 0.01, compute_budget=10)
    if kind == "a replaced weight":
        model.weight = nn.Parameter(model.weight.detach().clone())
    objective = cocd.trace(model, mse_loss)
    with pytest.warns(cocd.ClosureWarning, match="no parameter of the traced model") as seen:
        optimizer.step(objective(x, y))
    assert len(seen) == (1 if kind == "a replaced weight" else 2)  # weight and bias
    with warnings.catch_warnings():
        warnings.simplefilter("error", cocd.ClosureWarning)
        optimizer.step(objective(x, y))


def test_a_tensor_that_only_the_batch_holds_may_be_probed():
    model, x, y = model_and_batch()
    prompt = nn.Parameter(torch.zeros(1, 4))
    optimizer = cocd.CoCD([prompt], 0.01)
    objective = cocd.trace(model, lambda out, target: mse_loss(out + model(prompt), target))
    with warnings.catch_warnings():
        warnings.simplefilter("error", cocd.ClosureWarning)
        assert optimizer.step(objective(x, y)) > optimizer.step(objective(x, y))
