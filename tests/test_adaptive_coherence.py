"""AutoCoCD's scales: tensors whose slopes persist from sweep to sweep take longer steps."""

import copy
import pickle
from functools import cache

import numpy as np
import pytest
import torch

import cocd
from cocd._block import damped
from cocd._coherence import Coherence

NOISY, PERSISTENT = 256, 64


@cache
def batch(step):
    """Where the noisy part of the loss is lowest, this time."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(NOISY, generator=generator, dtype=torch.float64)


class Training:
    """A tensor of noise, whose coordinates hold each other back, and one that they hold back."""

    def __init__(self, kind=cocd.AutoCoCD, **settings):
        self.u = torch.zeros(NOISY, dtype=torch.float64, requires_grad=True)
        self.v = torch.linspace(-3, 5, PERSISTENT, dtype=torch.float64).requires_grad_()
        self.optimizer = kind([self.u, self.v], compute_budget=20, **settings)
        self.steps = 0

    def loss(self):
        off = self.u - batch(self.steps)
        return off.sum() ** 2 + (off**2).sum() + (self.v**2).sum()

    def sweeps(self, sweeps):
        while self.optimizer._done() < sweeps:
            self.optimizer.step(self.loss)
            self.steps += 1
        return self


class Blind(cocd.AutoCoCD):
    _COMPARED = 0


def test_the_tensor_whose_slopes_persist_takes_longer_steps_and_the_other_does_not():
    found = Training().sweeps(16)
    noisy, persistent = found.optimizer.scales
    assert noisy == 1 and persistent > 1
    blind = Training(Blind).sweeps(16)
    assert blind.optimizer.scales == [1, 1]
    rest = [float((each.v.detach() ** 2).sum()) for each in (found, blind)]
    assert rest[0] < 0.5 * rest[1]


def test_nothing_is_compared_in_the_first_sweeps_or_after_the_last():
    found = Training().sweeps(2.9)
    assert found.optimizer.scales == [1, 1] and found.optimizer._coherence.sums
    before = Training(Blind).sweeps(2.9)
    assert torch.equal(found.v, before.v)  # the search has not been told anything yet
    settled = found.sweeps(9).optimizer._coherence.state_dict()
    assert found.sweeps(12).optimizer._coherence.state_dict() == settled


def test_in_the_order_of_the_tensors_each_has_a_length_of_its_own_instead():
    found = Training(order="cyclic").sweeps(9).optimizer
    assert found.scales == [1, 1] and not found._coherence.sums and len(found._lengths) == 2


@pytest.mark.parametrize("copied", ["deepcopy", "pickle", "state_dict"])
def test_it_is_kept_to_the_bit_in_the_middle_of_a_sweep(copied):
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
        second.u, second.v = second.optimizer.param_groups[0]["params"]
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


def test_a_state_from_before_there_were_scales_is_taken():
    saved = Training().sweeps(5).optimizer.state_dict()
    del saved["state"]["cocd"]["coherence"]
    found = Training().optimizer
    found.load_state_dict(saved)
    assert found.scales == [1, 1]


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


def test_a_step_that_fails_has_compared_nothing():
    training = Training().sweeps(3.5)
    before = training.optimizer._coherence.state_dict()

    def closure():
        closure.calls += 1
        if closure.calls == 12:
            raise RuntimeError("simulator lost")
        return training.loss()

    closure.calls = 0
    with pytest.raises(RuntimeError, match="simulator"):
        training.optimizer.step(closure)
    assert training.optimizer._coherence.state_dict() == before


def test_parameters_that_join_begin_with_a_scale_of_one():
    training = Training().sweeps(5)
    before = training.optimizer.scales
    late = torch.full((8,), 2.0, dtype=torch.float64, requires_grad=True)
    training.optimizer.add_param_group({"params": [late]})
    plain, training.loss = training.loss, lambda: plain() + (late**2).sum()
    for _ in range(40):
        training.optimizer.step(training.loss)
        training.steps += 1
    assert training.optimizer.scales[2] == 1 and len(before) == 2
    assert (late < 2).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_one_wild_slope_does_not_decide(bad):
    """Not finite, or so large that its square is not: it is left out."""
    rng, coherence = np.random.default_rng(0), Coherence()
    tensors, signal = np.repeat([0, 1], 50), np.repeat([0.0, 1.0], 50)
    for sweep in (2.0, 3.0):
        stale, fresh = signal + (1 - 0.9 * signal) * rng.normal(size=(2, 100))
        stale[0] = fresh[0] = bad
        coherence.learn(tensors, stale, fresh, np.ones(100), sweep)
    assert coherence.scales == [1.0, 1.5]


def test_a_scale_comes_back_when_slopes_turn_round_and_does_not_go_below_one():
    """Stale slopes point the other way: steps have become too long."""
    rng, coherence = np.random.default_rng(0), Coherence(scales=[1.0, 2.25])
    tensors, signal = np.repeat([0, 1], 50), np.repeat([0.0, 1.0], 50)
    seen = []
    for sweep in (2.0, 3.0, 4.0, 5.0):
        noise = (1 - 0.9 * signal) * rng.normal(size=(2, 100))
        coherence.learn(tensors, noise[0] - signal, noise[1] + signal, np.ones(100), sweep)
        seen.append(coherence.scales[1])
    assert seen == [2.25, 1.5, 1.0, 1.0]


def test_where_nothing_is_known_nothing_follows():
    coherence, nothing = Coherence(), np.full(4, np.nan)
    for sweep in (2.0, 3.0, 4.0):
        coherence.learn(np.zeros(4), nothing, nothing, nothing, sweep)
        coherence.learn(np.zeros(4), np.zeros(4), np.zeros(4), np.zeros(4), sweep)
    assert coherence.of([0, 7]).tolist() == [1, 1]
    assert np.isnan(damped(nothing, 0.1)).all()


def test_a_block_is_read_as_it_is_remembered():
    x = torch.zeros(5, requires_grad=True)
    y = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    weights = torch.arange(1.0, 9.0)
    for params in ([x], [x, y]):
        optimizer = cocd.AutoCoCD(params, compute_budget=1)
        for _ in range(len(params) * 8):
            optimizer.step(lambda: (weights[:5] * x).sum() + (weights[5:] * y).sum())
        n = optimizer._schedule.n
        block = optimizer._memory.block(optimizer._schedule, n)
        places = [5 * s.run.tensor + i for s in block for i in range(s.run.start, s.run.stop)]
        assert sorted(places) == list(range(n))
        expected = optimizer.estimate().double()[places]
        assert torch.equal(optimizer._memory.read(block), expected)
