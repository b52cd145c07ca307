"""Forwards that write in place, name tensors anew, or hide their calls."""

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .model import ADVERSARIES, Adversary, Model, adversary


@adversary()
def rows_are_assigned(m, x):
    out = torch.zeros(len(x), 5, dtype=x.dtype)
    for i in range(0, len(x), 2):
        out[i : i + 2] = torch.tanh(m.a(x[i : i + 2]))
    return m.b(out)


@adversary()
def written_in_place(m, x):
    h = m.a(x)
    h += 1
    h.mul_(0.5).tanh_()
    h[:, 0] = 0
    return m.b(h)


@adversary(falls_back=True)
def written_through_a_view(m, x):
    h = m.a(x)
    h.view(-1).relu_()
    return m.b(h)


@adversary(falls_back=True)
def written_through_a_view_and_read_alone(m, x):
    h = m.a(x)
    out = m.b(torch.tanh(h))
    h[:, 1:3].mul_(3)
    return out + torch.sin(h)[:, 1:3]


@adversary(falls_back=True)
def written_through_a_view_and_read_by_a_layer(m, x):
    h = m.a(x)
    out = m.b(torch.tanh(h))
    h[:, 1:3].mul_(3)
    return out + nn.Tanh()(h)[:, 1:3]


@adversary(falls_back=True)
def given_written_through_a_view_and_read_alone(m, x):
    held = torch.zeros(len(x), 5, dtype=x.dtype)
    held[:, 1:3].copy_(m.a(x)[:, 1:3])
    return m.b(torch.tanh(m.a(x))) + torch.sin(held)[:, 1:3]


@adversary(falls_back=True)
def row_taken_before_it_is_filled(m, x):
    out = torch.zeros(2, *x.shape[:1], 5, dtype=x.dtype)
    first = out[0]
    first.copy_(m.a(x))
    return m.b(out.sum(0))


@adversary(falls_back=True)
def parameter_made_of_an_activation(m, x):
    return m.b(nn.Parameter(m.a(x)))


@adversary(attributes=lambda: {"hidden": []})
def weights_out_of_sight(m, x):
    if not m.hidden:
        m.hidden.extend([m.a.weight, m.a.bias])
    return m.b(torch.tanh(F.linear(x, *m.hidden)))


@adversary()
def the_same_layer_twice(m, x):
    h = torch.tanh(m.a(x))
    return m.b(torch.tanh(m.a(h[:, :4]))) + h[:, 3:]


@adversary()
def view_of_a_weight(m, x):
    return m.b(torch.tanh(x[:, :2] @ m.a.weight[:, :2].T + m.a.weight.detach()[:, 3]))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def backward(ctx, grad):
        raise NotImplementedError


@adversary()
def function_of_autograd(m, x):
    return m.b(Square.apply(m.a(x)))


@adversary(falls_back=True)
def vmap_inside(m, x):
    return m.b(torch.func.vmap(torch.tanh)(m.a(x)))


@adversary()
def fails_inside_and_recovers(m, x):
    h = m.a(x)
    with contextlib.suppress(RuntimeError):
        m.b(h[:, :3])
    return m.b(torch.tanh(h))


@adversary(inputs={"x": torch.randn(6, 4, dtype=torch.float64), "unused": None})
def keywords_and_named_outputs(m, x, unused=None, scale=2.0):
    h = torch.tanh(m.a(x))
    return {"out": m.b(h) * scale, "extra": (h, {"x": x})}


def _with_children(forward: Callable[..., Any], **children: Callable[[], nn.Module]) -> Adversary:
    return Adversary(lambda: Model(forward, **{name: make() for name, make in children.items()}))


def _script() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(nn.Linear(5, 5))


ADVERSARIES["scripted_child"] = _with_children(lambda m, x: m.b(m.c(m.a(x))), c=_script)
ADVERSARIES["scripted_child"].falls_back = True


def _scripted_function() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(_softsign)


def _softsign(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs())


SCRIPTED = _scripted_function()


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.r, self.b = nn.GRU(2, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x):
        lengths = torch.tensor([2, 2, 1, 1, 1, 1])
        packed = nn.utils.rnn.pack_padded_sequence(x.view(6, 2, 2), lengths, batch_first=True)
        out, last = self.r(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return self.b(last[0] + padded.sum(1))


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5))
        self.b = nn.Linear(5, 2)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


ADVERSARIES["spectral_norm"] = Adversary(Spectral, falls_back=True)
ADVERSARIES["spectral_norm_in_eval_mode"] = Adversary(
    lambda: Spectral().eval(), change=lambda model: model.train()
)
ADVERSARIES["packed_sequence"] = Adversary(Packed, falls_back=True)


@adversary(falls_back=True)
def scripted_function(m, x):
    return m.b(SCRIPTED(m.a(x)))
