"""AutoCoCD: what it promises beside the mechanism, which is `test_auto`'s."""

import copy
import io
import pickle
from itertools import pairwise

import pytest
import torch
from helpers import flat, frozen
from torch import nn
from torch.nn.functional import mse_loss

import cocd
from cocd.schedules import Cyclic, Spread


def network(activation=nn.Tanh, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 10), activation(), nn.Linear(10, 2)).to(dtype)


def batches(dtype=torch.float64, noise=0.0):
    generator = torch.Generator().manual_seed(1)
    while True:
        x = torch.randn(32, 4, generator=generator)
        y = torch.stack([x[:, 0] * x[:, 1], x[:, 2].sin() - x[:, 3]], 1)
        yield x.to(dtype), (y + noise * torch.randn(32, 2, generator=generator)).to(dtype)


def train(model, optimizer, steps, data=None):
    data = data or batches(next(model.parameters()).dtype)
    losses = []
    for _ in range(steps):
        x, y = next(data)
        losses.append(float(optimizer.step(lambda x=x, y=y: mse_loss(model(x), y))))
    return losses


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_AutoCoCD_learns_with_defaults_and_does_not_diverge(activation, scale):
    model = network(activation)
    optimizer = cocd.AutoCoCD(model.parameters(), max_evaluations=16_000)
    data = ((x, scale * y) for x, y in batches())
    losses = train(model, optimizer, 1_100, data)
    # Targets of a hundred are a long way for weights of less than one.
    assert sum(losses[-50:]) / 50 < (0.5 if scale == 1 else 0.6) * sum(losses[:5]) / 5
    assert all(loss == loss for loss in losses)


def test_a_wrong_first_length_is_forgotten():
    ends = []
    for lr in (0.1, 1.0, 10.0):
        model = network()
        optimizer = cocd.AutoCoCD(model.parameters(), lr=lr, max_evaluations=10_000)
        ends.append(sum(train(model, optimizer, 600)[-50:]))
    short, right, long = ends
    assert short < 1.2 * right and long < 1.2 * right


def test_evaluations_of_a_step_are_at_most_a_tenth_more_than_those_of_cocd():
    model = network()
    for B in (16, 32, 60):
        optimizer = cocd.AutoCoCD(model.parameters(), compute_budget=B)
        train(model, optimizer, 1)
        assert optimizer.evaluations == 2 * B + 1 + 2 <= 1.1 * (2 * B + 1)


def test_remembered_curvature_halves_the_probes():
    model = network()  # 72 parameters: a sweep is 6 steps of 12
    optimizer = cocd.AutoCoCD(model.parameters(), compute_budget=12)
    counts = []
    for _ in range(24):
        before = optimizer.evaluations
        train(model, optimizer, 1)
        counts.append(optimizer.evaluations - before)
    assert counts == [2 * 12 + 3] * 6 + [12 + 3] * 18


def test_a_ring_measures_curvature_every_time():
    model = network()
    optimizer = cocd.AutoCoCD(model.parameters(), compute_budget=12, memory_budget=24)
    train(model, optimizer, 12)
    assert optimizer.evaluations == 12 * (2 * 12 + 3)


@pytest.mark.parametrize("order", [Cyclic, Spread])
@pytest.mark.parametrize("way", ["state_dict", "file", "pickle", "deepcopy"])
def test_a_resumed_run_continues_bit_for_bit(way, order):
    model = network()
    options = {"max_evaluations": 5_000, "schedule": order()}
    optimizer = cocd.AutoCoCD(model.parameters(), **options)
    train(model, optimizer, 60)
    if way == "pickle":
        model2, optimizer2 = pickle.loads(pickle.dumps((model, optimizer)))
    elif way == "deepcopy":
        model2, optimizer2 = copy.deepcopy((model, optimizer))
    else:
        model2 = network(seed=5)
        model2.load_state_dict(model.state_dict())
        optimizer2 = cocd.AutoCoCD(model2.parameters(), **options)
        saved = optimizer.state_dict()
        if way == "file":
            file = io.BytesIO()
            torch.save(saved, file)
            file.seek(0)
            saved = torch.load(file, weights_only=True)
        optimizer2.load_state_dict(saved)
    assert train(model, optimizer, 60) == train(model2, optimizer2, 60)
    assert frozen(list(model.parameters())) == frozen(list(model2.parameters()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("when", "order"),
    [(1, Cyclic), (5, Spread), (30, Cyclic), (34, Spread), (35, Cyclic), (35, Spread)],
)
def test_an_exception_leaves_weights_and_state_unchanged(dtype, when, order):
    model = network(dtype=dtype)
    optimizer = cocd.AutoCoCD(model.parameters(), schedule=order(), compute_budget=16)
    train(model, optimizer, 3)
    before, state = frozen(list(model.parameters())), optimizer.state_dict()
    calls = 0
    x, y = next(batches(dtype))

    def closure():
        nonlocal calls
        calls += 1
        if calls == when:
            raise RuntimeError("the device is gone")
        return mse_loss(model(x), y)

    with pytest.raises(RuntimeError, match="the device is gone"):
        optimizer.step(closure)
    assert frozen(list(model.parameters())) == before
    assert torch.equal(optimizer.estimate(), _estimate_of(model, optimizer, state))
    assert optimizer._schedule.count == 3 * 16


def _estimate_of(model, optimizer, state):
    other = cocd.AutoCoCD(model.parameters(), schedule=optimizer._template, compute_budget=16)
    other.load_state_dict(state)
    return other.estimate()


def test_losses_that_are_not_finite_move_nothing():
    x = torch.tensor([0.2, 3.0], requires_grad=True)
    optimizer = cocd.AutoCoCD([x], compute_budget=2)

    def closure():  # not defined 0.3 to the left of x[0]
        return x[0].sqrt() + (x[1] - 1) ** 2

    with pytest.warns(cocd.NonFiniteWarning):
        for _ in range(60):
            optimizer.step(closure)
    assert optimizer.skipped and x.isfinite().all()
    assert abs(x[1].item() - 1) < 0.01


def test_groups_schedulers_and_frozen_parameters():
    model = network()
    model[0].bias.requires_grad_(False)
    bias = model[0].bias.clone()
    optimizer = cocd.AutoCoCD(
        [{"params": model[0].parameters(), "eps": 0.1}, {"params": model[2].parameters()}]
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.0)
    train(model, optimizer, 1)
    scheduler.step()
    before = frozen(list(model.parameters()))
    train(model, optimizer, 5)  # the rate is 0 times the first one
    assert frozen(list(model.parameters())) == before
    assert torch.equal(model[0].bias, bias)


@pytest.mark.parametrize("order", [Cyclic, Spread])
def test_parameters_that_join_are_trained(order):
    model = network()
    optimizer = cocd.AutoCoCD(model[0].parameters(), schedule=order())
    train(model, optimizer, 10)
    last = flat(model[2].parameters()).clone()
    optimizer.add_param_group({"params": model[2].parameters()})
    train(model, optimizer, 20)
    assert not torch.equal(flat(model[2].parameters()), last)


def test_l2_is_part_of_the_objective():
    x = torch.tensor([4.0], dtype=torch.float64, requires_grad=True)
    optimizer = cocd.AutoCoCD([x], l2=1.0)
    for _ in range(200):
        optimizer.step(lambda: (x - 3).square().sum() / 2)
    assert abs(x.item() - 1.5) < 1e-6  # of (x - 3)^2 / 2 + x^2 / 2


def test_what_explodes_is_put_back():
    x = torch.ones(4, requires_grad=True)
    optimizer = cocd.AutoCoCD([x], compute_budget=4)
    for _ in range(60):
        optimizer.step(lambda: (x**2).sum() + 1)
    good = x.clone()
    with torch.no_grad():
        x += 1e3  # as if another part of the program had spoilt it
    spent = optimizer.evaluations
    with pytest.warns(cocd.RestoreWarning, match="risen from .* restored"):
        optimizer.step(lambda: (x**2).sum() + 1)
    assert optimizer.evaluations - spent == 8 + 3 + 1  # at the copy, too
    for _ in range(2):
        optimizer.step(lambda: (x**2).sum() + 1)
    assert (x - good).abs().max() < 1 and optimizer.restored == 1


@pytest.mark.parametrize("order", [Cyclic, Spread])
def test_any_strides_and_a_traced_objective(order):
    plain, traced = network(), network()
    with torch.no_grad():
        for model in (plain, traced):
            model[0].weight.data = model[0].weight.t().contiguous().t()
    objective = cocd.trace(traced, mse_loss)
    first, second = (cocd.AutoCoCD(m.parameters(), schedule=order()) for m in (plain, traced))
    data = batches()
    for _ in range(40):
        x, y = next(data)
        a = first.step(lambda x=x, y=y: mse_loss(plain(x), y))
        b = second.step(objective(x, y))
        assert abs(float(a - b)) < 1e-6 * float(a)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": -1.0}, "lr must be"),
        ({"eps": 0.0}, "eps must be"),
        ({"compute_budget": 0}, "compute_budget must be"),
        ({"compute_budget": 100}, "compute_budget=100 is more than"),
        ({"max_evaluations": 0}, "max_evaluations must be"),
        ({"l2": -1.0}, "l2 must be"),
        ({"schedule": "random"}, "schedule must be"),
        ({"order": "spread"}, r"order='spread' was replaced .* schedule=Spread\(\)"),
    ],
)
def test_bad_arguments(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        cocd.AutoCoCD(network().parameters(), **options)


def test_the_spread_order_visits_each_coordinate_once_a_sweep_and_none_beside_another():
    model = network()
    optimizer = cocd.AutoCoCD(model.parameters(), compute_budget=8, schedule=Spread())
    seen = []
    optimizer._observers = (lambda block, fresh: seen.append([segment.part for segment in block]),)
    train(model, optimizer, 9)  # 9 * 8 = 72
    layout = optimizer._layout
    flat_blocks = [
        sorted(layout.offsets[r.tensor] + i for r in runs for i in range(r.start, r.stop))
        for runs in seen
    ]
    assert sorted(i for block in flat_blocks for i in block) == list(range(72))
    for block in flat_blocks:
        assert min(b - a for a, b in pairwise(block)) >= 3


def test_the_spread_order_moves_a_function_of_neighbours_further():
    # Neighbours that must move together: a block of them shares one slope.
    def loss(x):
        return (x.view(-1, 8).sum(1) - 1).square().sum()

    ends = {}
    for order in (Cyclic, Spread):
        x = torch.zeros(256, dtype=torch.float64, requires_grad=True)
        optimizer = cocd.AutoCoCD([x], compute_budget=32, schedule=order())
        for _ in range(8):  # a sweep
            optimizer.step(lambda x=x: loss(x))
        ends[order] = float(loss(x.detach()))
    assert ends[Spread] < ends[Cyclic]


def test_a_state_of_another_order_is_refused():
    model = network()
    saved = cocd.AutoCoCD(model.parameters(), schedule=Cyclic()).state_dict()
    with pytest.raises(ValueError, match="schedule Cyclic, this optimizer has Spread"):
        cocd.AutoCoCD(model.parameters()).load_state_dict(saved)
