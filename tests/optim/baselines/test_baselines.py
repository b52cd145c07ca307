"""Every baseline: counts, seeds, restoring, resuming, non-finite losses, descent."""

import copy
import math
import pickle

import pytest
import torch
from helpers import Raising, flat, frozen, parameters, world

import cocd
from cocd import baselines

# name: how to make it, and the evaluations of a step on 6 coordinates
ALL = {
    "BCCD": (lambda p, **o: baselines.BCCD(p, compute_budget=2, **o), 5),
    "FiniteDifference": (baselines.FiniteDifference, 13),
    "RandomCoordinate": (lambda p, **o: baselines.RandomCoordinate(p, compute_budget=2, **o), 5),
    "SPSA": (lambda p, **o: baselines.SPSA(p, directions=3, **o), 6),
    "ZOSGD": (lambda p, **o: baselines.ZOSGD(p, directions=3, **o), 6),
    "MeZO": (lambda p, **o: baselines.MeZO(p, directions=3, **o), 6),
    "WASP": (lambda p, **o: baselines.WASP(p, tolerance=1.0, **o), 7),
    "EvolutionStrategy": (lambda p, **o: baselines.EvolutionStrategy(p, directions=3, **o), 6),
    "EvolutionStrategy ranks": (
        lambda p, **o: baselines.EvolutionStrategy(p, directions=3, shaping="rank", **o),
        6,
    ),
}
SEEDED = [name for name in ALL if name not in ("BCCD", "FiniteDifference")]
DIRECTIONS = [name for name in SEEDED if name not in ("RandomCoordinate", "WASP")]


def build(name, dtype=torch.float64, lr=0.05, eps=0.1, **options):
    tensors = [
        torch.linspace(-1, 1, 4, dtype=dtype).view(2, 2).t().requires_grad_(),
        torch.tensor([0.5, 2.0], dtype=dtype, requires_grad=True),
    ]
    return ALL[name][0](tensors, lr=lr, eps=eps, **options)


def bowl(optimizer):
    """Steep in some directions, flat in others, lowest at 1."""
    scale = torch.tensor([1.0, 2.0, 0.5, 1.0, 1.5, 1.0], dtype=torch.float64)
    return lambda: (scale * (flat(parameters(optimizer)) - 1) ** 2).sum() / 2


def advance(optimizer, steps):
    return [float(optimizer.step(bowl(optimizer))) for _ in range(steps)]


def test_every_baseline_is_here():
    assert {name.split()[0] for name in ALL} == set(baselines.__all__)


@pytest.mark.parametrize("name", ALL)
def test_evaluations_are_counted(name):
    optimizer, calls = build(name), []
    loss = bowl(optimizer)
    for step in range(1, 4):
        optimizer.step(lambda: calls.append(1) or loss())
        assert optimizer.evaluations == len(calls) == step * ALL[name][1]


def test_one_sided_differences_cost_half():
    x = torch.ones(3, requires_grad=True)
    for method, count in [(baselines.BCCD, 4), (baselines.FiniteDifference, 4)]:
        optimizer = method([x], lr=0.1, difference="forward")
        optimizer.step(lambda: x.sum())
        assert optimizer.evaluations == count


@pytest.mark.parametrize("name", ALL)
def test_descends_to_the_known_optimum(name):
    optimizer = build(name, lr=0.2, eps=0.01)
    if "ranks" in name:  # steps of a fixed length: the rate has to shrink with the distance
        optimizer.param_groups[0]["lr"] = 1e-3
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
        for _ in range(600):
            optimizer.step(bowl(optimizer))
            schedule.step()
    else:
        advance(optimizer, 400)
    x = flat(parameters(optimizer))
    # One-sided differences vanish half a radius before the optimum.
    atol = 0.05 if "ranks" in name else 0.02 if name == "WASP" else 1e-3
    torch.testing.assert_close(x, torch.ones_like(x), rtol=0, atol=atol)


@pytest.mark.parametrize("name", ALL)
def test_equal_seeds_give_equal_runs_and_the_global_generator_is_untouched(name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build(name)
    losses = advance(first, 4)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)  # of no importance
    second = build(name)
    assert advance(second, 4) == losses
    assert frozen(parameters(first)) == frozen(parameters(second))


@pytest.mark.parametrize("name", SEEDED)
def test_other_seeds_give_other_runs(name):
    runs = [build(name, seed=seed) for seed in (0, 1)]
    for run in runs:
        advance(run, 2)
    assert not torch.equal(flat(parameters(runs[0])), flat(parameters(runs[1])))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALL)
def test_lr_zero_restores_every_weight(name, dtype):
    optimizer = build(name, dtype, lr=0.0, eps=1.0)
    parameters(optimizer)[1].data[0] = -0.0
    before = frozen(parameters(optimizer))
    advance(optimizer, 6)
    assert frozen(parameters(optimizer)) == before


@pytest.mark.parametrize("way", ["state_dict", "pickle", "deepcopy"])
@pytest.mark.parametrize("name", ALL)
def test_resumed_run_continues_bit_for_bit(name, way):
    optimizer = build(name)
    advance(optimizer, 3)
    if way == "state_dict":
        resumed = build(name, lr=9.0)
        for new, old in zip(parameters(resumed), parameters(optimizer), strict=True):
            new.data.copy_(old.data)
        saved = optimizer.state_dict()
        before = frozen(saved)
        resumed.load_state_dict(saved)
    else:
        clone = copy.deepcopy if way == "deepcopy" else lambda o: pickle.loads(pickle.dumps(o))
        resumed = clone(optimizer)
    assert advance(resumed, 4) == advance(optimizer, 4)
    assert world(resumed) == world(optimizer)
    assert resumed.evaluations == optimizer.evaluations == 7 * ALL[name][1]
    if way == "state_dict":
        assert frozen(saved) == before


@pytest.mark.parametrize("name", ALL)
def test_groups_freezing_growth_and_schedulers_work(name):
    optimizer = build(name)
    first, second = parameters(optimizer)
    second.requires_grad_(False)
    fixed, moved = frozen(second), frozen(first)
    advance(optimizer, 3)
    assert frozen(second) == fixed and frozen(first) != moved
    second.requires_grad_(True)
    extra = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer.add_param_group({"params": [extra], "lr": 0.0, "weight_decay": 0.5})
    for _ in range(6):
        optimizer.step(lambda: (flat(parameters(optimizer)) ** 2).sum())
    assert frozen(second) != fixed
    assert extra.tolist() == pytest.approx([0.0, 0.0], abs=0)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 0.0)
    before = frozen([first, second])
    optimizer.step(lambda: (flat(parameters(optimizer)) ** 2).sum())
    assert frozen([first, second]) == before


@pytest.mark.parametrize("name", ALL)
def test_bad_probe_is_left_out_counted_and_said_once(name):
    optimizer = build(name)
    with pytest.warns(cocd.NonFiniteWarning) as caught:
        for _ in range(2):
            optimizer.step(Raising(bowl(optimizer), 2, lambda: math.nan))
            assert flat(parameters(optimizer)).isfinite().all()
    assert len(caught) == 1
    assert (optimizer.skipped, optimizer.evaluations) == (2, 2 * ALL[name][1])


@pytest.mark.parametrize("name", ALL)
def test_bad_probe_raises_if_asked_and_changes_nothing(name):
    optimizer = build(name, nonfinite="raise")
    before = world(optimizer)
    with pytest.raises(cocd.NonFiniteLoss):
        optimizer.step(Raising(bowl(optimizer), 3, lambda: math.inf))
    assert world(optimizer) == before


@pytest.mark.parametrize("name", DIRECTIONS)
def test_no_usable_pair_raises_and_changes_nothing(name):
    optimizer = build(name, weight_decay=0.1)
    before = world(optimizer)
    with pytest.raises(cocd.NonFiniteLoss, match="none of the 3 pairs"):
        optimizer.step(lambda: math.nan)
    assert world(optimizer) == before


@pytest.mark.parametrize("name", [name for name in DIRECTIONS if "ranks" not in name])
def test_quotient_that_overflows_is_left_out(name):
    optimizer = build(name, torch.float32, eps=1e-3, weight_decay=0.1)
    with pytest.warns(cocd.NonFiniteWarning):  # 1e38 / 1e-3 is no float32
        optimizer.step(Raising(bowl(optimizer), 2, lambda: 1e38))
    assert optimizer.skipped == 1
    assert flat(parameters(optimizer)).isfinite().all()


@pytest.mark.parametrize("name", DIRECTIONS)
def test_bad_directions_are_refused(name):
    method = getattr(baselines, name.split()[0])
    for bad in (0, -1, 1.5, None):
        with pytest.raises(ValueError, match="directions"):
            method([torch.ones(2, requires_grad=True)], lr=0.1, directions=bad)
