"""Forwards that draw random numbers."""

import random

import numpy as np
import torch

from .model import adversary


@adversary()
def noise_of_a_fixed_shape(m, x):
    return m.b(torch.tanh(m.a(x)) + torch.randn(6, 5, dtype=x.dtype))


@adversary()
def noise_like_an_activation(m, x):
    h = m.a(x)
    return m.b(h + 0.1 * torch.randn_like(h))


@adversary()
def layer_drop(m, x):
    h = m.a(x)
    if torch.rand(()) > 0.5:
        h = torch.tanh(h)
    return m.b(h)


@adversary()
def bernoulli_of_an_activation(m, x):
    return m.b(m.a(x) * torch.bernoulli(torch.ones(6, 5, dtype=x.dtype) / 2))


@adversary(attributes=lambda: {"generator": torch.Generator().manual_seed(1)})
def generator_of_its_own(m, x):
    return m.b(torch.tanh(m.a(x)) + torch.randn(5, generator=m.generator, dtype=x.dtype))


@adversary(attributes=lambda: {"generator": np.random.default_rng(1)})
def generator_of_numpy(m, x):
    return m.b(torch.tanh(m.a(x)) * m.generator.uniform())


@adversary(falls_back=True)
def random_of_python(m, x):
    return m.b(torch.tanh(m.a(x)) * random.random())
