"""Models that do in their forward what a tracer does not expect.

Each is held to the same three promises: the loss that a step returns is the model's own, also in
the very step in which something changes; a step leaves model and generator as one evaluation of
the model would; and the differences are those of the closure, or a warning was given.
"""

import contextlib
import copy
import random
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import frozen
from torch import nn
from torch.nn import functional as F

import cocd
from cocd import EngineWarning
from cocd.objective.batched import call_model
from cocd.objective.closure import sequential
from cocd.parts.evaluation import Evaluations


class Model(nn.Module):
    """Two layers, and whatever `forward` does with them."""

    def __init__(self, forward: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        self.way = forward
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 2)
        for name, value in attributes.items():
            if name.startswith("buffer_"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.way(self, *args, **kwargs)


@dataclass
class Adversary:
    """A model, what is changed between two steps, and whether the engine may give up."""

    build: Callable[[], nn.Module]
    change: Callable[[Any], None] = lambda model: None
    falls_back: bool = False  # with a warning
    inputs: Any = field(default_factory=lambda: torch.randn(6, 4, dtype=torch.float64))


ADVERSARIES: dict[str, Adversary] = {}


def adversary(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a forward."""
    attributes = options.pop("attributes", dict)

    def register(forward: Callable[..., Any]) -> Callable[..., Any]:
        ADVERSARIES[forward.__name__] = Adversary(lambda: Model(forward, **attributes()), **options)
        return forward

    return register


# --- attributes, buffers and containers that the forward writes ------------------------------


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


# --- values that are read ---------------------------------------------------------------------


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


# --- random numbers ---------------------------------------------------------------------------


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


# --- values that leave torch ------------------------------------------------------------------


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


# --- names and writes -------------------------------------------------------------------------


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


# --- the promises -----------------------------------------------------------------------------


def loss_of(output: Any, target: torch.Tensor) -> torch.Tensor:
    output = output["out"] if isinstance(output, dict) else output
    return F.mse_loss(output, target)


TARGET = torch.linspace(-1, 1, 12, dtype=torch.float64).view(6, 2)


def made(case: Adversary) -> nn.Module:
    torch.manual_seed(0)
    GLOBAL["scale"] = 1.0
    return case.build().double()


def left(model: nn.Module) -> Any:
    """Everything that a forward could leave behind, tensors by their bits."""
    own = {
        name: {k: v for k, v in vars(m).items() if k not in ("_modules", "way") and "hook" not in k}
        for name, m in model.named_modules()
        if not isinstance(m, torch.jit.ScriptModule)
    }
    return frozen((_readable(own), torch.get_rng_state()))


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _readable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return [_readable(v) for v in value]
    if isinstance(value, set):
        return sorted(map(str, value))
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, SimpleNamespace):
        return vars(value)
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value if isinstance(value, (int, float, str, type(None))) else str(type(value))


@pytest.mark.parametrize("name", ADVERSARIES)
def test_a_step_returns_the_models_own_loss_and_leaves_what_one_evaluation_leaves(name):
    case = ADVERSARIES[name]
    model, twin = made(case), made(case)
    objective = cocd.trace(model, loss_of)
    optimizer = cocd.CoCD(model.parameters(), lr=0.0, eps=0.05, compute_budget=7)
    scale = GLOBAL["scale"]
    for step in range(4):
        torch.manual_seed(step), random.seed(step)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EngineWarning)
            found = optimizer.step(objective(case.inputs, TARGET))
        mine = left(model)
        torch.manual_seed(step), random.seed(step)
        with torch.no_grad():
            expected = loss_of(call_model(twin, case.inputs), TARGET)
        assert float(found) == float(expected)
        assert mine == left(twin)
        if step == 1:
            case.change(model)
            now, GLOBAL["scale"] = GLOBAL["scale"], scale
            case.change(twin)
            GLOBAL["scale"] = now
    copy.deepcopy(model.state_dict())


def differences(model: nn.Module, closure: Any, of: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(5), random.seed(5)
    found = {}
    with Evaluations(closure, None, (), lambda count: None) as evaluate:
        loss = evaluate(prepare=True)
        for name, p in model.named_parameters():
            index = list(range(0, p.numel(), 3))
            found[name] = (of or evaluate.bound.differences)(
                evaluate, loss, p, index, 0.05, "central"
            ).first
    return found


@pytest.mark.parametrize("name", ADVERSARIES)
def test_differences_are_those_of_the_closure_or_there_is_a_warning(name):
    case = ADVERSARIES[name]
    model, twin = made(case), made(case)
    objective = cocd.trace(model, loss_of)
    for step in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = differences(model, objective(case.inputs, TARGET), None)
        warned = any(issubclass(w.category, EngineWarning) for w in caught)
        if step == 0:
            assert warned == case.falls_back, [str(w.message) for w in caught]
        if name == "random_of_python":  # which differs from evaluation to evaluation
            return
        expected = differences(
            twin, lambda: loss_of(call_model(twin, case.inputs), TARGET), sequential
        )
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
        case.change(model)
        now, GLOBAL["scale"] = GLOBAL["scale"], 1.0
        case.change(twin)
        GLOBAL["scale"] = now


def test_there_are_at_least_30_adversarial_models():
    assert len(ADVERSARIES) >= 30


def scaled(m, x):
    x /= 2
    x[:, 0] += 1
    return m.b(torch.tanh(m.a(x)))


@pytest.mark.parametrize("method", [cocd.CoCD, cocd.AutoCoCD, cocd.baselines.SPSA])
def test_a_forward_that_writes_into_its_batch_does_so_once_a_step(method):
    model, twin = (made(Adversary(lambda: Model(scaled))) for _ in range(2))
    x = torch.randn(6, 4, dtype=torch.float64)
    copy_of_x = x.clone()
    objective = cocd.trace(model, loss_of)
    optimizer = method(model.parameters(), lr=1e-3)
    with torch.no_grad():
        expected = loss_of(twin(copy_of_x), TARGET)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EngineWarning)
        found = optimizer.step(objective(x, TARGET))
    assert torch.equal(x, copy_of_x)
    torch.testing.assert_close(float(found), float(expected), rtol=1e-5, atol=0)


def test_differences_of_a_forward_that_writes_into_its_batch_are_right():
    model, twin = (made(Adversary(lambda: Model(scaled))) for _ in range(2))
    x = torch.randn(6, 4, dtype=torch.float64)
    found = differences(model, cocd.trace(model, loss_of)(x.clone(), TARGET), None)
    expected = differences(twin, lambda: loss_of(twin(x.clone()), TARGET), sequential)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_a_packed_sequence_is_named_as_the_reason():
    with pytest.warns(EngineWarning, match="passes a PackedSequence to a call"):
        differences(Packed().double(), cocd.trace(Packed().double(), loss_of)(
            torch.randn(6, 4, dtype=torch.float64), TARGET), None)  # fmt: skip


def test_a_layer_that_reads_the_buffers_it_writes_is_named_as_the_reason():
    model = Spectral()
    with pytest.warns(EngineWarning, match="ParametrizedLinear writes into its buffers"):
        differences(model, cocd.trace(model, loss_of)(torch.randn(6, 4), TARGET.float()), None)
