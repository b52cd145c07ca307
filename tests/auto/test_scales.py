"""AutoCoCD's scales: tensors whose slopes persist from sweep to sweep take longer steps."""

import copy
import pickle
from functools import cache

import numpy as np
import pytest
import torch

import cocd
from cocd.auto.block import Block
from cocd.auto.scales import Scales
from cocd.parts.layout import Place
from cocd.schedules import Cyclic

NOISY, PERSISTENT = 256, 64


@cache
def batch(step):
    """Where the noisy part of the loss is lowest, this time."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(NOISY, generator=generator, dtype=torch.float64)


class Training:
    """A tensor of noise, whose coordinates hold each other back, and one that they hold back."""

    lowest = 0.0  # of the second one

    def __init__(self, config=None, rate=1.0, compute_budget=4, **settings):
        self.u = torch.zeros(NOISY, dtype=torch.float64, requires_grad=True)
        self.v = torch.linspace(-3, 5, PERSISTENT, dtype=torch.float64).requires_grad_()
        groups = [{"params": [self.u]}, {"params": [self.v], "lr": rate}]
        self.optimizer = cocd.AutoCoCD(
            groups, compute_budget=compute_budget, config=config, **settings
        )
        self.steps = 0

    def noise(self):
        off = self.u - batch(self.steps)
        return off.sum() ** 2 + (off**2).sum()

    def loss(self):
        return self.noise() + ((self.v - self.lowest) ** 2).sum()

    def sweeps(self, sweeps):
        while self.optimizer.schedule.done < sweeps:
            self.optimizer.step(self.loss)
            self.steps += 1
        return self


def feed(scales, tensors, stale, fresh, sweep):
    """A sweep of fifty steps, each of which has a part of both tensors."""
    for step in range(50):
        own = slice(step, None, 50)
        seen = tensors[own], stale[own], fresh[own], np.ones(len(tensors[own]))
        scales.observe(*seen, sweep + step / 50)


def parameters(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


BLIND = cocd.AutoConfig(compared_until=0)


def test_the_tensor_whose_slopes_persist_takes_longer_steps_and_the_other_does_not():
    found = Training().sweeps(16)
    noisy, persistent = found.optimizer.scales
    assert noisy == 1 and persistent > 1
    blind = Training(BLIND).sweeps(16)
    assert blind.optimizer.scales == [1, 1]
    rest = [float((each.v.detach() ** 2).sum()) for each in (found, blind)]
    assert rest[0] < 0.5 * rest[1]


def test_nothing_is_compared_in_the_first_sweeps_or_after_the_last():
    found = Training().sweeps(2.9)
    assert found.optimizer.scales == [1, 1] and found.optimizer._learned.scales.sums
    before = Training(BLIND).sweeps(2.9)
    assert torch.equal(found.v, before.v)  # the search has not been told anything yet
    settled = found.sweeps(8.5).optimizer._learned.scales.state_dict()
    assert found.sweeps(12).optimizer._learned.scales.state_dict() == settled


def test_in_the_cyclic_order_each_tensor_has_a_length_and_no_scale():
    found = Training(schedule=Cyclic()).sweeps(9).optimizer
    assert found.scales == [1, 1] and not found._learned.scales.sums
    assert len(found._learned.lengths) == 2


@pytest.mark.parametrize("copied", ["deepcopy", "pickle", "state_dict"])
def test_scales_resume_to_the_bit_in_the_middle_of_a_sweep(copied):
    first, second = Training().sweeps(4.5), Training()
    with torch.no_grad():
        second.u.copy_(first.u)
        second.v.copy_(first.v)
    second.steps = first.steps
    if copied == "state_dict":
        second.optimizer.load_state_dict(first.optimizer.state_dict())
    else:
        remake = copy.deepcopy if copied == "deepcopy" else lambda o: pickle.loads(pickle.dumps(o))
        second.optimizer = remake(first.optimizer)
        second.u, second.v = parameters(second.optimizer)
    first.sweeps(9)
    second.sweeps(9)
    assert first.optimizer.scales == second.optimizer.scales != [1, 1]
    assert torch.equal(first.u, second.u) and torch.equal(first.v, second.v)


def test_a_state_is_a_copy():
    training = Training().sweeps(3.5)
    saved = training.optimizer.state_dict()
    before = copy.deepcopy(saved)
    training.sweeps(6)
    assert str(saved) == str(before)


def test_what_led_to_an_explosion_is_forgotten():
    training = Training().sweeps(9)
    assert training.optimizer.scales != [1, 1]
    with torch.no_grad():
        training.v += 1e4
    with pytest.warns(cocd.RestoreWarning):
        training.optimizer.step(training.loss)
        while not training.optimizer.restored:
            training.optimizer.step(training.loss)
    assert training.optimizer.scales == [1, 1]


@pytest.mark.parametrize("call", [3, -1])
def test_a_step_that_fails_has_compared_nothing(call):
    """While it probes, or in the last evaluation of its search."""
    training = Training().sweeps(3.5)
    before, evaluations = training.optimizer._learned.scales.state_dict(), []
    ahead = copy.deepcopy(training.optimizer)
    twin = Training()
    twin.steps = training.steps
    twin.u, twin.v = parameters(ahead)
    ahead.step(lambda: evaluations.append(1) or twin.loss())
    last = len(evaluations) if call < 0 else call

    def closure():
        closure.calls += 1
        if closure.calls == last:
            raise RuntimeError("simulator lost")
        return training.loss()

    closure.calls = 0
    with pytest.raises(RuntimeError, match="simulator"):
        training.optimizer.step(closure)
    assert training.optimizer._learned.scales.state_dict() == before


def test_what_is_measured_for_the_first_time_is_not_compared():
    training = Training().sweeps(5)
    late = torch.full((20,), 2.0, dtype=torch.float64, requires_grad=True)
    training.optimizer.add_param_group({"params": [late]})
    plain, training.loss = training.loss, lambda: plain() + (late**2).sum()
    n = NOISY + PERSISTENT + 20
    begun = training.optimizer.schedule.done
    while training.optimizer.schedule.done < begun + 0.9:  # every coordinate at most once
        training.optimizer.step(training.loss)
        training.steps += 1
        assert len(training.optimizer._learned.scales.sums) <= 2
    training.sweeps(begun + 1.9)
    assert training.optimizer._schedule.n == n and training.optimizer.scales[2] == 1
    assert training.optimizer._learned.scales.sums[2][1] > 0
    assert (late < 2).all()


def test_when_most_parameters_join_all_begins_anew():
    training = Training()
    training.v.requires_grad_(False)
    few = torch.ones(32, dtype=torch.float64, requires_grad=True)
    training.u.requires_grad_(False)
    optimizer = cocd.AutoCoCD([few, training.u, training.v], compute_budget=4)
    training.optimizer = optimizer
    plain, training.loss = training.loss, lambda: plain() + (few**2).sum()
    training.sweeps(30)
    training.u.requires_grad_(True)
    training.v.requires_grad_(True)
    optimizer.step(training.loss)
    begun = optimizer.schedule.done
    assert begun < 3 and optimizer._learned.scales.sweep == 4  # a whole sweep later
    _, noisy, persistent = training.sweeps(9).optimizer.scales
    assert persistent > 1 and noisy == 1


def test_l2_belongs_to_the_slope():
    """Where the penalty and the loss balance, the slopes of the loss alone persist for ever."""
    training = Training(l2=2.0)
    training.lowest = 2.0
    with torch.no_grad():
        training.v.fill_(1.0)
    assert training.sweeps(9).optimizer.scales == [1, 1]
    assert (training.v - 1).abs().max() < 0.01


def test_a_group_that_is_slow_by_wish_stays_slow():
    found, blind = (Training(config, rate=0.01).sweeps(9) for config in (None, BLIND))
    assert found.optimizer.scales == [1, 1] and torch.equal(found.v, blind.v)


def test_where_all_slopes_persist_no_tensor_is_told_apart():
    """Then curvature and search are what settles steps."""
    for budget in (4, NOISY + PERSISTENT):
        results = []
        for config in (None, BLIND):
            training = Training(config, compute_budget=budget)
            u, v = training.u, training.v
            with torch.no_grad():
                u.fill_(3.0)
            training.loss = lambda u=u, v=v: (u**2).sum() + 0.02 * (v**2).sum()
            results.append(training.sweeps(12))
        found, blind = results
        assert found.optimizer.scales == [1, 1]
        assert torch.equal(found.u, blind.u) and torch.equal(found.v, blind.v)


def test_scales_are_in_the_order_of_the_parameters_frozen_ones_included():
    training = Training()
    frozen = torch.zeros(3, requires_grad=False)
    training.optimizer = cocd.AutoCoCD([frozen, training.v, training.u], compute_budget=4)
    still, persistent, noisy = training.sweeps(9).optimizer.scales
    assert still == noisy == 1 and persistent > 1


def test_after_a_restore_a_whole_sweep_is_not_compared():
    """Slopes of the point that is given up are still in memory."""
    training = Training().sweeps(4.3)
    training.optimizer._learned.rollback.copy = [
        training.u.detach().clone(),
        training.v.detach().clone(),
    ]
    training.optimizer._learned.rollback.lowest = training.optimizer._learned.rollback.loss = 1e3
    training.optimizer._learned.rollback.rise = 2e3
    with torch.no_grad():
        training.v -= 1e4
    with pytest.warns(cocd.RestoreWarning):
        training.optimizer.step(training.loss)
    assert training.optimizer.restored == 1
    training.sweeps(5.9)
    assert training.optimizer._learned.scales.sums == [] and training.optimizer.scales == [1, 1]
    training.sweeps(6.5)
    assert training.optimizer._learned.scales.sums


def test_slots_are_on_the_cpu_whatever_the_default_device_is():
    training = Training(compute_budget=NOISY + PERSISTENT).sweeps(3)
    optimizer = training.optimizer
    block = optimizer._memory.block(optimizer._schedule, 40)
    expected = optimizer._memory.read(block)
    with torch.device("meta"):
        assert torch.equal(optimizer._memory.read(block), expected)


@pytest.mark.parametrize(("large", "beside"), [(1, 50), (1, 500), (20, 5000)])
def test_large_noise_does_not_make_a_small_tensor_stand_out(large, beside):
    """A few coordinates have a hundred times the noise of all others: r is as uncertain as they."""
    raised = 0
    for seed in range(200):
        rng, scales = np.random.default_rng(seed), Scales()
        tensors = np.repeat([0, 1], [50, beside])
        size = np.ones(len(tensors))
        size[:large] = 100
        stale, fresh = size * rng.normal(size=(2, len(tensors)))
        feed(scales, tensors, stale, fresh, 2.0)
        feed(scales, tensors, stale, fresh, 3.0)
        raised += scales.scales != [1, 1]
    assert raised <= 2


@pytest.mark.parametrize("size", [1e77, 1e-77, 1e-160])
def test_noise_of_any_size_is_noise(size):
    rng, scales = np.random.default_rng(0), Scales()
    tensors = np.repeat([0, 1], 50)
    for sweep in (2.0, 3.0, 4.0, 5.0):
        stale, fresh = size * rng.normal(size=(2, 100))
        feed(scales, tensors, stale, fresh, sweep)
    assert scales.of([0, 1]).tolist() == [1, 1]


def test_slopes_that_are_opposite_everywhere_lengthen_nothing():
    """One tensor's turn round less than the others': that is no reason for longer steps."""
    rng, scales = np.random.default_rng(0), Scales()
    tensors = np.repeat([0, 1], 100)
    for sweep in (2.0, 3.0):
        stale = rng.normal(size=200)
        fresh = np.where(tensors, -0.2, -1.0) * stale + 0.1 * rng.normal(size=200)
        feed(scales, tensors, stale, fresh, sweep)
    assert scales.scales == [1, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_one_wild_slope_does_not_decide(bad):
    """Not finite, or so large that its square is not: it is left out."""
    rng, scales = np.random.default_rng(0), Scales()
    tensors, signal = np.repeat([0, 1], 50), np.repeat([0.0, 1.0], 50)
    for sweep in (2.0, 3.0):
        stale, fresh = signal + (1 - 0.9 * signal) * rng.normal(size=(2, 100))
        stale[0] = fresh[0] = bad
        feed(scales, tensors, stale, fresh, sweep)
    assert scales.scales == [1.0, 1.5]


def test_a_scale_comes_back_when_slopes_turn_round_and_does_not_go_below_one():
    """Stale slopes point the other way: steps have become too long."""
    rng, scales = np.random.default_rng(0), Scales(scales=[1.0, 2.25])
    tensors, signal = np.repeat([0, 1], 50), np.repeat([0.0, 1.0], 50)
    seen = []
    for sweep in (2.0, 3.0, 4.0, 5.0):
        noise = (1 - 0.9 * signal) * rng.normal(size=(2, 100))
        feed(scales, tensors, noise[0] - signal, noise[1] + signal, sweep)
        seen.append(scales.scales[1])
    assert seen == [2.25, 1.5, 1.0, 1.0]


def test_where_nothing_is_known_nothing_follows():
    scales, nothing = Scales(), np.full(4, np.nan)
    for sweep in (2.0, 3.0, 4.0):
        scales.observe(np.zeros(4), nothing, nothing, nothing, sweep)
        scales.observe(np.zeros(4), np.zeros(4), np.zeros(4), np.zeros(4), sweep)
    assert scales.of([0, 7]).tolist() == [1, 1]


def test_remembered_slopes_of_a_block_are_read_in_its_order():
    x = torch.zeros(5, requires_grad=True)
    y = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    weights = torch.arange(1.0, 9.0)
    for params in ([x], [x, y]):
        optimizer = cocd.AutoCoCD(params, compute_budget=1)
        for _ in range(len(params) * 8):
            optimizer.step(lambda: (weights[:5] * x).sum() + (weights[5:] * y).sum())
        n = optimizer._schedule.n
        block = optimizer._memory.block(optimizer._schedule, n)
        places = [5 * s.part.tensor + i for s in block for i in range(s.part.start, s.part.stop)]
        assert sorted(places) == list(range(n))
        expected = optimizer.estimate().double()[places]
        assert torch.equal(optimizer._memory.read(block), expected)


def test_slopes_and_curvatures_are_of_the_objective_with_the_penalty():
    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    block = Block([x], [Place(0, [0, 1, 2])], {id(x): {"l2": 0.5, "eps": 0.3}})
    assert block.slopes(np.array([1.0, np.nan, 3.0])).tolist()[::2] == [1.5, 4.5]
    assert block.curvatures(np.array([1.0, -1.0, np.inf])).tolist() == [1.5, -0.5, np.inf]
    assert block.penalty() == 0.25 * 14
