"""Engines are held against the closure: what is slower is not kept."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import cocd
from cocd import baselines
from cocd.objective import engine_timing, traced_loss
from cocd.objective.engine_timing import EngineTiming


class Clock:
    """Seconds that pass in probes and in the closure alone, as many as the test says."""

    def __init__(self, monkeypatch, probe, evaluation):
        self.time, self.probe, self.evaluation = 0.0, probe, evaluation
        original = traced_loss.loss_changes
        monkeypatch.setattr(engine_timing, "now", lambda tensor: self.time)
        monkeypatch.setattr(engine_timing, "_SECONDS", 0.02)

        def probing(run, plan, parameter, moves, *more):
            self.time += self.probe * moves.K
            return original(run, plan, parameter, moves, *more)

        monkeypatch.setattr(traced_loss, "loss_changes", probing)

    def objective(self, **options):
        def loss(output, target):
            self.time += self.evaluation
            return F.mse_loss(output, target)

        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        objective = cocd.trace(model, loss, **options)
        objective._loss = nn.MSELoss()  # which it is, but for the clock
        return objective


def run(objective, steps=1):
    x, y = torch.ones(3, 4), torch.zeros(3, 2)
    optimizer = baselines.FiniteDifference(objective.model.parameters(), lr=0.01, eps=0.1)
    return [float(optimizer.step(objective(x, y))) for _ in range(steps)]


def engines(objective):
    return {name: objective.engine_of(name) for name, _ in objective.model.named_parameters()}


def test_an_engine_that_is_slower_than_the_closure_is_not_kept(monkeypatch):
    objective = Clock(monkeypatch, probe=0.03, evaluation=0.01).objective()
    run(objective, steps=3)
    assert engines(objective)["0.weight"] == engines(objective)["2.weight"] == "sequential"
    assert "takes 3.0 times as long as the closure" in objective.explain()


def test_an_engine_that_is_faster_stays(monkeypatch):
    objective = Clock(monkeypatch, probe=0.01, evaluation=0.03).objective()
    run(objective, steps=3)
    assert set(engines(objective).values()) == {"incremental"}
    assert "3.0x" in objective.explain()


def test_an_engine_that_was_asked_for_stays(monkeypatch):
    objective = Clock(monkeypatch, probe=0.03, evaluation=0.01).objective(engine="incremental")
    run(objective, steps=3)
    assert set(engines(objective).values()) == {"incremental"}


def test_an_engine_is_timed_once(monkeypatch):
    clock = Clock(monkeypatch, probe=0.01, evaluation=0.03)
    objective = clock.objective()
    run(objective, steps=2)
    checks = objective.checks
    clock.probe = 1.0
    run(objective, steps=5)
    assert engines(objective)["0.weight"] == "incremental"
    assert objective.checks == checks


def test_the_decision_is_saved(monkeypatch):
    clock = Clock(monkeypatch, probe=0.03, evaluation=0.01)
    objective, other = clock.objective(), clock.objective()
    run(objective, steps=2)
    other.load_state_dict(objective.state_dict())
    assert engines(other) == engines(objective)
    clock.probe = 0.0001
    run(other, steps=3)
    assert engines(other)["0.weight"] == "sequential"


def test_little_is_too_little_to_decide_on():
    ours = EngineTiming(probes=31, seconds=9.0)
    assert not ours.is_due and ours.gain is None
    assert not EngineTiming(probes=32, seconds=0.001).is_due


def test_timing_costs_three_evaluations_a_tensor(monkeypatch):
    """Three evaluations for each tensor, once, beside the checks that there are anyway."""
    clock = Clock(monkeypatch, probe=0.01, evaluation=0.03)
    objective, fixed = clock.objective(), clock.objective(engine="incremental")
    run(objective, steps=4)
    run(fixed, steps=4)
    decided = sum(record.timing.decided for record in objective._records.values())
    assert decided >= 2 and objective.checks == fixed.checks + 3 * decided


@pytest.mark.parametrize("probes", [0, 5])
def test_time_of_no_probes_counts_for_nothing(probes):
    ours = EngineTiming()
    with ours.probing(probes, torch.zeros(1)):
        pass
    assert ours.probes == probes
