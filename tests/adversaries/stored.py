"""Forwards that write attributes, buffers and containers."""

from collections import deque
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from .model import ADVERSARIES, Adversary, adversary


@adversary(attributes=lambda: {"mu": torch.zeros(5, dtype=torch.float64)})
def running_mean_as_an_attribute(m, x):
    h = torch.tanh(m.a(x))
    m.mu = 0.9 * m.mu + 0.1 * h.mean(0)
    return m.b(h - m.mu.detach())


@adversary(attributes=lambda: {"mu": torch.ones(4, dtype=torch.float64)})
def running_mean_in_place(m, x):
    m.mu.mul_(0.9).add_(0.1 * x.mean(0))
    return m.b(torch.tanh(m.a(x - m.mu)))


@adversary(attributes=lambda: {"mu": torch.ones(4, dtype=torch.float64)})
def running_mean_through_data(m, x):
    m.mu.data.mul_(0.9).add_(0.1 * x.mean(0))
    return m.b(torch.tanh(m.a(x - m.mu)))


@adversary(attributes=lambda: {"buffer_mu": torch.ones(4, dtype=torch.float64)})
def running_mean_as_a_buffer(m, x):
    m.buffer_mu = 0.9 * m.buffer_mu + 0.1 * x.mean(0)
    return m.b(torch.tanh(m.a(x - m.buffer_mu)))


@adversary(attributes=lambda: {"last": None})
def cached_activation(m, x):
    m.last = torch.tanh(m.a(x))
    return m.b(m.last)


@adversary(attributes=lambda: {"seen": []})
def list_that_collects(m, x):
    h = torch.tanh(m.a(x))
    m.seen.append(h)
    return m.b(h) * len(m.seen)


@adversary(attributes=lambda: {"stats": {"calls": 0}, "recent": deque(maxlen=3), "kinds": set()})
def containers_of_several_kinds(m, x):
    m.stats["calls"] += 1
    m.recent.append(m.stats["calls"])
    m.kinds.add(x.shape)
    return m.b(torch.tanh(m.a(x))) / (1 + m.stats["calls"] + sum(m.recent))


@adversary(attributes=lambda: {"state": SimpleNamespace(count=0)})
def counter_in_an_object(m, x):
    m.state.count += 1
    return m.b(torch.tanh(m.a(x))) * m.state.count


@adversary(attributes=lambda: {"calls": 0})
def another_branch_at_every_other_call(m, x):
    m.calls += 1
    h = m.a(x)
    return m.b(torch.tanh(h) if m.calls % 2 else torch.sigmoid(h))


@adversary(attributes=lambda: {"scale": np.ones(1)})
def array_that_is_written(m, x):
    m.scale += 0.5
    return m.b(torch.tanh(m.a(x))) * float(m.scale[0])


@adversary(attributes=lambda: {"registered": False})
def buffer_that_appears_on_the_way(m, x):
    h = torch.tanh(m.a(x))
    if not hasattr(m, "late"):
        m.register_buffer("late", torch.full((5,), 0.5, dtype=torch.float64))
    return m.b(h * m.late)


class StatefulRNN(nn.Module):
    """Carries its hidden state from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out, self.hidden = nn.GRUCell(4, 3), nn.Linear(3, 2), None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden = self.cell(x, None if self.hidden is None else self.hidden.detach())
        return self.out(self.hidden)


ADVERSARIES["stateful_rnn"] = Adversary(StatefulRNN)
