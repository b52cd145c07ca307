"""Random directions through a traced objective: many points at once, and never wrong in silence."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import cocd
from cocd import baselines
from cocd._engines import points
from cocd._experiments.training import _engines, _restore_engines

METHODS = [baselines.SPSA, baselines.ZOSGD, baselines.EvolutionStrategy]


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def mlp(dtype=torch.float64, extra=()):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), *extra, nn.Linear(5, 2)).to(dtype)


def data(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    make = lambda *s: torch.randn(*s, generator=generator, dtype=dtype)  # noqa: E731
    return make(8, 3), make(8, 2)


def train(method, model, closure, steps=10, **options):
    optimizer = method(model.parameters(), lr=0.05, eps=1e-2, directions=6, seed=3, **options)
    losses = [float(optimizer.step(closure())) for _ in range(steps)]
    return losses, optimizer


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("memory_limit", [None, 5 * 16 * 8 * 3 * 8])
def test_it_walks_as_one_by_one(method, memory_limit):
    x, y = data()
    plain, traced = mlp(), mlp()
    objective = cocd.trace(traced, mse_loss, memory_limit=memory_limit)
    assert objective(x, y).points_at_once(list(traced.parameters())) >= 2
    one, first = train(method, plain, lambda: lambda: mse_loss(plain(x), y))
    many, second = train(method, traced, lambda: objective(x, y))
    assert one == pytest.approx(many, rel=1e-12)
    torch.testing.assert_close(flat(plain), flat(traced), rtol=1e-10, atol=1e-12)
    assert first.evaluations == second.evaluations == 120
    assert objective.checks >= 10  # the first point of each step, at least


def test_groups_keep_their_own_radius():
    x, y = data()
    found = []
    for traced in (False, True):
        model = mlp()
        groups = [{"params": model[0].parameters(), "eps": 0.1}, {"params": model[2].parameters()}]
        optimizer = baselines.SPSA(groups, lr=0.05, eps=1e-3, directions=4)
        closure = cocd.trace(model, mse_loss)(x, y) if traced else lambda m=model: mse_loss(m(x), y)
        optimizer.step(closure)
        found.append(flat(model))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


def test_dropout_and_batch_norm_look_like_one_evaluation():
    x, y = data()
    found = []
    for traced in (False, True):
        model = mlp(extra=[nn.BatchNorm1d(5), nn.Dropout(0.5)]).train()
        torch.manual_seed(7)
        objective = cocd.trace(model, mse_loss)

        def closure(model=model, objective=objective if traced else None):
            return (lambda: mse_loss(model(x), y)) if objective is None else objective(x, y)

        losses, _ = train(baselines.SPSA, model, closure, steps=4)
        found.append((losses, flat(model), model[2].running_mean.clone(), torch.rand(3)))
    for one, many in zip(*found, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(many))
    assert int(model[2].num_batches_tracked) == 4


@pytest.mark.parametrize("what", ["wrong", "fails"])
def test_what_is_wrong_is_noticed_and_nothing_is_lost(monkeypatch, what):
    def broken(*args):
        if what == "fails":
            raise RuntimeError("vmap does not know this")
        return right(*args) + 1

    right = points.batched_losses
    monkeypatch.setattr(points, "batched_losses", broken)
    x, y = data()
    plain, traced = mlp(), mlp()
    objective = cocd.trace(traced, mse_loss)
    expected, first = train(baselines.SPSA, plain, lambda: lambda: mse_loss(plain(x), y), steps=1)
    with pytest.warns(cocd.errors.EngineWarning, match="one by one from now on"):
        losses, second = train(baselines.SPSA, traced, lambda: objective(x, y), steps=1)
    assert losses == expected
    assert torch.equal(flat(plain), flat(traced))
    assert first.evaluations == second.evaluations
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second.step(objective(x, y))  # it does not try again
    other = cocd.trace(copy.deepcopy(traced), mse_loss)
    _restore_engines(other, _engines(objective))
    assert not other._stackable  # nor after a restart


def test_where_it_would_not_pay_it_is_not_done():
    x, y = data()
    model = mlp()
    tensors = list(model.parameters())
    assert cocd.trace(model, mse_loss, engine="sequential")(x, y).points_at_once(tensors) == 0
    assert cocd.trace(model, mse_loss)(x, y).points_at_once([*tensors, torch.zeros(1)]) == 0
    conv = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(2, 1))
    closure = cocd.trace(conv, mse_loss)(torch.zeros(4, 1, 3), torch.zeros(4, 1))
    assert closure.points_at_once(list(conv.parameters())) == 0


def test_directions_are_kept_within_a_step_only():
    x, y = data()
    model = mlp()
    optimizer = baselines.SPSA(model.parameters(), lr=0.1, directions=2)
    drawn = []
    sample = optimizer._sample
    optimizer._sample = lambda *args: drawn.append(1) or sample(*args)
    optimizer.step(lambda: mse_loss(model(x), y))
    assert len(drawn) == 2 * 4 and optimizer._drawn is None
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    assert optimizer._drawn is None
