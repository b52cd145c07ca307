"""A traced run resumes to the bit, through public names alone."""

import copy
import itertools

import pytest
import torch
from helpers import frozen
from torch import nn
from torch.nn.functional import mse_loss

import cocd
from cocd.objective.kernels import dispatch


class Scaled(nn.Module):
    """A layer without a rule, whose parameters go to the batched engine."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 6))

    def forward(self, x):
        return torch.sin(x * self.scale)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 6), nn.Tanh(), Scaled(), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 2)
    )


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(16, 4, generator=generator), torch.randn(16, 2, generator=generator)


METHODS = {
    "CoCD": lambda model: cocd.CoCD(model.parameters(), 0.01, compute_budget=9, decay=0.9),
    "AutoCoCD": lambda model: cocd.AutoCoCD(model.parameters(), compute_budget=9),
    "directions": lambda model: cocd.baselines.SPSA(model.parameters(), 0.01, directions=10),
}


class Training:
    def __init__(self, method, net=network):
        self.model = net()
        self.optimizer = METHODS[method](self.model)
        self.objective = cocd.trace(self.model, mse_loss)
        self.step = 0

    def run(self, steps):
        for _ in range(steps):
            self.step += 1
            self.optimizer.step(self.objective(*batch(self.step)))

    def state(self):
        return copy.deepcopy(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "objective": self.objective.state_dict(),
                "random": torch.get_rng_state(),
                "step": self.step,
            }
        )

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.objective.load_state_dict(state["objective"])
        torch.set_rng_state(state["random"])
        self.step = state["step"]


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("method", METHODS)
def test_a_traced_run_resumes_to_the_bit_also_when_loaded_in_another_mode(method, mode):
    whole = Training(method)
    whole.run(30)
    saved = whole.state()
    whole.run(70)  # past the next check of the engines
    resumed = Training(method)
    getattr(resumed.model, mode)()
    resumed.load(saved)
    resumed.model.train()
    resumed.run(70)
    assert frozen(resumed.state()) == frozen(whole.state())


def test_an_objective_that_has_given_up_its_trace_stays_so_after_loading():
    count = itertools.count(1)

    class Changing(nn.Module):
        """Another function at every call: no trace can be right."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x) * next(count)

    model = Changing()
    objective = cocd.trace(model, mse_loss)
    with pytest.warns(cocd.EngineWarning):
        cocd.CoCD(model.parameters(), 1e-9, compute_budget=1).step(objective(*batch(0)))
    assert objective.engine_of("layer.weight") != "incremental"
    again = cocd.trace(model, mse_loss)
    again.load_state_dict(objective.state_dict())
    assert again.engine_of("layer.weight") == objective.engine_of("layer.weight")
    assert frozen(again.state_dict()) == frozen(objective.state_dict())


@pytest.mark.parametrize(
    "state", [None, {}, {"version": 0}, cocd.trace(nn.Linear(1, 1), mse_loss).state_dict()]
)
def test_a_state_of_something_else_is_refused_and_nothing_is_changed(state):
    objective = cocd.trace(network(), mse_loss)
    before = frozen(objective.state_dict())
    with pytest.raises(ValueError, match="state"):
        objective.load_state_dict(state)
    assert frozen(objective.state_dict()) == before


def test_accelerate_false_is_the_run_without_numba_and_leaves_others_alone():
    def losses(accelerate):
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh())
        torch.manual_seed(1)
        for p in model.parameters():
            nn.init.normal_(p)
        objective = cocd.trace(model, mse_loss, accelerate=accelerate)
        optimizer = cocd.CoCD(model.parameters(), 0.01, compute_budget=20)
        x = torch.linspace(-1, 1, 64).view(16, 4)
        return [float(optimizer.step(objective(x, torch.ones(16, 6)))) for _ in range(20)]

    assert losses(False) == pytest.approx(losses(True), rel=1e-5)
    with dispatch.disabled():
        expected = losses(True)
    assert losses(False) == expected
    assert dispatch.enabled() == dispatch.available()


@pytest.mark.parametrize("method", METHODS)
def test_next_evaluations_says_what_the_next_step_makes(method):
    training = Training(method)
    for _ in range(12):
        expected, before = training.optimizer.next_evaluations(), training.optimizer.evaluations
        training.run(1)
        spent = training.optimizer.evaluations - before
        assert spent <= expected if method == "AutoCoCD" else spent == expected
