"""`memory_limit` bounds what the probes evaluated at once hold, whatever the engine."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import cocd
from cocd import baselines
from cocd.objective.peak_memory import PeakMemory

MIB = 1 << 20


class Tied(nn.Module):
    """Embedding and head in one, so that outputs are far larger than inputs."""

    def __init__(self, words, units):
        super().__init__()
        self.table, self.mix = nn.Embedding(words, units), nn.Linear(units, units)
        self.head = nn.Linear(units, words, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.mix(self.table(tokens))))


def token_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def peaks(objective, inputs, target):
    """Of the closure, of a first step and of a second one."""
    model, found = objective.model, []
    closure = objective(inputs, target)
    optimizer = baselines.RandomCoordinate(model.parameters(), 0.0, eps=0.01, compute_budget=24)
    with torch.no_grad():
        for call in (closure, lambda: optimizer.step(closure), lambda: optimizer.step(closure)):
            with PeakMemory() as held:
                call()
            found.append(held.peak)
    return found


@pytest.mark.parametrize("engine", [None, "incremental", "batched", "sequential"])
@pytest.mark.parametrize("limit", [4 * MIB, 16 * MIB])
def test_the_limit_holds_on_a_tied_language_model(engine, limit):
    torch.manual_seed(0)
    tokens = torch.randint(1000, (4, 16))
    objective = cocd.trace(Tied(1000, 16), token_loss, engine=engine, memory_limit=limit)
    closure, first, second = peaks(objective, tokens, tokens.roll(-1, 1))
    assert max(first, second) <= closure + limit
    if engine in ("incremental", "batched"):
        assert max(first, second) > limit / 4  # and is made use of


def test_without_a_limit_a_large_vocabulary_stays_within_bounds():
    torch.manual_seed(0)
    tokens = torch.randint(5000, (8, 16))
    objective = cocd.trace(Tied(5000, 64), token_loss)
    closure, first, second = peaks(objective, tokens, tokens.roll(-1, 1))
    assert max(first, second) <= closure + 256 * MIB


def test_whole_passes_that_do_not_fit_are_left_to_the_closure():
    model = nn.Sequential(nn.Linear(4, 50), nn.Tanh(), nn.Linear(50, 50), nn.Linear(50, 2))
    objective = cocd.trace(model, F.mse_loss, memory_limit=1000)
    x, y = torch.randn(64, 4), torch.randn(64, 2)
    with torch.no_grad():
        objective(x, y).prepare(lambda: None)
    for record in objective._records.values():
        record.engine, record.plan = "batched", None
    baselines.FiniteDifference(model.parameters(), 0.1).step(objective(x, y))
    assert {r.engine for r in objective._records.values()} == {"sequential"}
    assert "memory_limit holds fewer than two of its passes" in objective.explain()


def test_views_and_what_is_freed_count_once():
    base = torch.zeros(1000)
    with PeakMemory() as held:
        x = base + 1
        y = x.view(10, 100).t()
        del x
        z = torch.ones(500)
        del y, z
        base.view(-1)
        torch.ones(1500)
    assert held.peak == 6000
