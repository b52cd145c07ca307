"""Forwards whose values leave torch."""

import numpy as np
import torch

from .model import adversary


@adversary(falls_back=True)
def divided_by_an_item(m, x):
    h = m.a(x)
    return m.b(h / h.abs().max().item())


@adversary(falls_back=True)
def through_numpy(m, x):
    return m.b(torch.from_numpy(np.tanh(m.a(x).numpy())))


@adversary(falls_back=True)
def through_a_list(m, x):
    return m.b(torch.tensor(m.a(x).tolist(), dtype=x.dtype))


@adversary()
def branch_on_an_activation(m, x):
    h = m.a(x)
    return m.b(torch.tanh(h) if h.sum() > -1e9 else h)


@adversary(falls_back=True)
def branch_that_a_probe_flips(m, x):
    h = m.a(x)
    return m.b(torch.tanh(h) if h.sum() > h.sum().item() - 1e-9 else h * 3)


@adversary()
def number_of_positive_units(m, x):
    return m.b(torch.tanh(m.a(x))) * (1 + int((x > 0).sum()))
