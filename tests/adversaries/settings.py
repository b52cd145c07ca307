"""Forwards that read settings which change between steps."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .model import adversary


def _set(**values: Any) -> Callable[[Any], None]:
    return lambda model: vars(model).update(values)


@adversary(attributes=lambda: {"t": 1.0}, change=_set(t=3.0))
def temperature(m, x):
    return m.b(torch.tanh(m.a(x))) / m.t


@adversary(attributes=lambda: {"p": 0.1}, change=_set(p=0.6))
def dropout_probability(m, x):
    return m.b(F.dropout(torch.tanh(m.a(x)), m.p, training=m.training))


@adversary(
    attributes=lambda: {"options": {"scales": [1.0, 2.0]}},
    change=lambda m: m.options["scales"].__setitem__(1, 7.0),
)
def nested_settings(m, x):
    return m.b(torch.tanh(m.a(x))) * m.options["scales"][1]


@adversary(attributes=lambda: {"act": torch.tanh}, change=_set(act=torch.sigmoid))
def function_as_a_setting(m, x):
    return m.b(m.act(m.a(x)))


@adversary(attributes=lambda: {"zero": 0.0}, change=_set(zero=-0.0))
def minus_zero(m, x):
    return m.b(torch.tanh(m.a(x))) + torch.copysign(torch.ones(2, dtype=x.dtype), x[:, :2] * m.zero)


@adversary(attributes=lambda: {"mask": torch.ones(5)}, change=lambda m: m.mask[2:].zero_())
def tensor_that_users_change(m, x):
    return m.b(torch.tanh(m.a(x)) * m.mask)


GLOBAL = {"scale": 1.0}


@adversary(change=lambda m: GLOBAL.update(scale=GLOBAL["scale"] + 1.5))
def global_setting(m, x):
    return m.b(torch.tanh(m.a(x))) * GLOBAL["scale"]


@adversary(attributes=lambda: {"depth": 1}, change=_set(depth=3))
def number_of_loops(m, x):
    h = m.a(x)
    for _ in range(m.depth):
        h = torch.tanh(h)
    return m.b(h)


@adversary(change=lambda m: m.b.register_forward_hook(lambda module, args, out: out * 2))
def hook_of_a_layer(m, x):
    return m.b(torch.tanh(m.a(x)))


@adversary(change=lambda m: m.a.register_forward_pre_hook(lambda module, args: (args[0] + 1,)))
def pre_hook_of_a_layer(m, x):
    return m.b(torch.tanh(m.a(x)))


@adversary(change=lambda m: setattr(m.a, "forward", lambda x: F.linear(x, m.a.weight) * 2))
def forward_of_a_layer_is_replaced(m, x):
    return m.b(torch.tanh(m.a(x)))


@adversary(
    attributes=lambda: {"act": nn.LeakyReLU(0.01)},
    change=lambda m: vars(m.act).update(negative_slope=0.5),
)
def setting_of_a_layer(m, x):
    return m.b(m.act(m.a(x)))
