"""Random directions through a traced objective: many points at once, and never wrong in silence."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import linear, mse_loss

import cocd
from cocd import baselines
from cocd.objective import points

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
    optimizer = method(model.parameters(), lr=0.05, eps=1e-2, directions=12, seed=3, **options)
    losses = [float(optimizer.step(closure())) for _ in range(steps)]
    return losses, optimizer


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("memory_limit", [None, 17 * 8 * 5 * 8])
def test_points_at_once_walk_as_points_one_by_one(method, memory_limit):
    x, y = data()
    plain, traced = mlp(), mlp()
    objective = cocd.trace(traced, mse_loss, memory_limit=memory_limit)
    at_once = objective(x, y).points_at_once(list(traced.parameters()))
    assert at_once == (1024 if memory_limit is None else 17)
    one, first = train(method, plain, lambda: lambda: mse_loss(plain(x), y))
    many, second = train(method, traced, lambda: objective(x, y))
    assert one == pytest.approx(many, rel=1e-12)
    torch.testing.assert_close(flat(plain), flat(traced), rtol=1e-10, atol=1e-12)
    assert first.evaluations == second.evaluations == 240
    stacks = 10 if memory_limit is None else 20
    # The first point of each, two that are far, once, and one of the first recorded pass.
    assert objective.checks == stacks + 3


def test_groups_keep_their_own_radius():
    x, y = data()
    found = []
    for traced in (False, True):
        model = mlp()
        groups = [{"params": model[0].parameters(), "eps": 0.1}, {"params": model[2].parameters()}]
        optimizer = baselines.SPSA(groups, lr=0.05, eps=1e-3, directions=10)
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
    other.load_state_dict(objective.state_dict())
    assert not other._stackable  # nor after a restart


class Hiding(nn.Module):
    """Reads its weights from where vmap cannot put others."""

    def __init__(self, offset):
        super().__init__()
        self.layer, self.offset = nn.Linear(3, 2), offset
        self.hidden = [self.layer.weight, self.layer.bias]

    def forward(self, x):
        return linear(x, *self.hidden) + self.offset


@pytest.mark.parametrize("eps", [1e-3, 1e-1])
@pytest.mark.parametrize("offset", [0.0, 20.0])
def test_weights_that_are_read_elsewhere_are_noticed(eps, offset):
    x, y = data(torch.float32)
    torch.manual_seed(0)
    model = Hiding(offset)
    before = flat(model)
    optimizer = baselines.SPSA(model.parameters(), lr=0.01, eps=eps, directions=16)
    with pytest.warns(cocd.errors.EngineWarning, match="one by one from now on"):
        optimizer.step(cocd.trace(model, mse_loss)(x, y))
    assert bool((flat(model) != before).all())
    assert optimizer.evaluations == 32


class Keeping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        self.features = self.layer(x)
        return self.features


def test_nothing_of_the_stack_is_left_on_the_model():
    x, y = data(torch.float32)
    model = Keeping()
    objective = cocd.trace(model, mse_loss)
    baselines.SPSA(model.parameters(), lr=0.01, directions=16).step(objective(x, y))
    assert objective._stacks == 1
    assert model.features.shape == (8, 2) and copy.deepcopy(model.features).isfinite().all()


def test_a_loss_may_have_one_element():
    x, y = data()

    def loss(out, target):
        return mse_loss(out, target).reshape(1)

    found = []
    for traced in (False, True):
        model = mlp()
        closure = cocd.trace(model, loss)(x, y) if traced else lambda m=model: loss(m(x), y)
        baselines.SPSA(model.parameters(), lr=0.1, directions=16).step(closure)
        found.append(flat(model))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


def test_a_run_that_explodes_is_no_disagreement():
    x, y = data(torch.float32)
    model = mlp(torch.float32)
    objective = cocd.trace(model, lambda out, target: mse_loss(out, target) * 1e38)
    optimizer = baselines.SPSA(model.parameters(), lr=0.0, eps=3.0, directions=16)
    with warnings.catch_warnings():
        warnings.simplefilter("error", cocd.errors.EngineWarning)
        warnings.simplefilter("ignore", cocd.errors.NonFiniteWarning)
        with pytest.raises(cocd.errors.NonFiniteLoss):
            optimizer.step(objective(x, y))
    assert objective._stackable


def test_wide_layers_and_buffers_count_as_memory():
    x, y = torch.zeros(256, 1), torch.zeros(256, 1)
    wide = nn.Sequential(nn.Linear(1, 1000), nn.Tanh(), nn.Linear(1000, 1))
    assert cocd.trace(wide, mse_loss)(x, y).points_at_once(list(wide.parameters())) == 8
    large = nn.Linear(4, 4)
    large.register_buffer("table", torch.zeros(1024, 1024))
    closure = cocd.trace(large, mse_loss)(torch.zeros(2, 4), torch.zeros(2, 4))
    assert closure.points_at_once(list(large.parameters())) == 1
    half = nn.Linear(4, 4).bfloat16()
    assert cocd.trace(half, mse_loss)(x, y).points_at_once(list(half.parameters())) == 0


def test_few_points_are_taken_one_by_one():
    x, y = data()
    model = mlp()
    objective = cocd.trace(model, mse_loss)
    baselines.SPSA(model.parameters(), lr=0.1, directions=7).step(objective(x, y))
    assert objective._stacks == 0 and objective.checks <= 1


def test_points_are_not_stacked_where_that_does_not_pay():
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
