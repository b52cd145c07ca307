"""Losses along directions: from the first moved layer on, and what the closure gives."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from zoo import build

import cocd
from cocd import EngineWarning, baselines
from cocd.objective.graph import suffix

METHODS = {
    "MeZO": lambda params: baselines.MeZO(params, 0.05, eps=0.05, directions=2),
    "SPSA": lambda params: baselines.SPSA(params, 0.05, eps=0.05, directions=2),
    "ZO-SGD": lambda params: baselines.ZOSGD(params, 0.05, eps=0.05, directions=2),
}


def last_parameters(model):
    """Those of the last third of a model."""
    parameters = list(model.parameters())
    return parameters[-max(1, len(parameters) // 3) :]


def train(case, method, closure, steps=4):
    torch.manual_seed(1)
    optimizer = METHODS[method](last_parameters(case.model))
    losses = [float(optimizer.step(closure)) for _ in range(steps)]
    return losses, [p.detach().clone() for p in case.model.parameters()], optimizer.evaluations


@pytest.fixture
def outputs(monkeypatch):
    """How often a pass was made from the first moved layer on."""
    made = []
    original = suffix.Suffix.output
    monkeypatch.setattr(
        suffix.Suffix, "output", lambda self: (made.append(self), original(self))[1]
    )
    return made


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["llama_last_token", "llama_own_last_token", "dropout", "resnet"])
def test_directions_give_what_the_closure_gives(name, method, outputs):
    plain, traced = build(name), build(name)
    expected = train(plain, method, lambda: plain.loss_fn(plain.model(plain.inputs), plain.target))
    objective = cocd.trace(traced.model, traced.loss_fn)
    objective._stackable = False  # not many at once
    found = train(traced, method, objective(traced.inputs, traced.target))
    torch.testing.assert_close(found[:2], expected[:2], rtol=1e-8, atol=1e-9)
    assert found[2] == expected[2] == 16
    assert len(outputs) == 12 if "llama" in name else len(outputs) in (0, 12)


def test_nothing_before_the_first_moved_layer_is_computed_again(outputs):
    layers = [layer for _ in range(6) for layer in (nn.Linear(4, 4), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(4, 2))
    objective = cocd.trace(model, F.mse_loss)
    objective._stackable = False
    optimizer = baselines.MeZO(model[-1].parameters(), lr=0.1, directions=3)
    optimizer.step(objective(torch.randn(5, 4), torch.zeros(5, 2)))
    assert [len(made._nodes) for made in outputs] == [1] * 5


def convolutional():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(24, 3),
    )  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("training", [True, False])
def test_all_of_a_convolutional_network_is_perturbed(method, training, outputs):
    x, y = torch.randn(9, 1, 12, 12), torch.arange(9) % 3
    found = []
    for traced in (True, False):
        model = convolutional().train(training)
        closure = cocd.trace(model, F.cross_entropy)(x, y) if traced else None
        torch.manual_seed(1)
        optimizer = METHODS[method](model.parameters())
        losses = [
            float(optimizer.step(closure or (lambda m=model: F.cross_entropy(m(x), y))))
            for _ in range(3)
        ]
        found.append((losses, model.state_dict()))
    assert len(outputs) == 9
    torch.testing.assert_close(found[0], found[1], rtol=2e-4, atol=2e-5)


def test_where_nearly_all_is_computed_again_the_closure_is_asked(outputs):
    case = build("llama_last_token")
    objective = cocd.trace(case.model, case.loss_fn)
    baselines.MeZO(case.model.parameters(), lr=0.1).step(objective(case.inputs, case.target))
    assert not outputs


def test_a_wrong_pass_is_found_out(monkeypatch):
    case, twin = build("llama_last_token"), build("llama_last_token")
    objective = cocd.trace(case.model, case.loss_fn)
    original = suffix.Suffix.output
    monkeypatch.setattr(suffix.Suffix, "output", lambda self: (1.1 * original(self)[0],))
    with pytest.warns(EngineWarning, match="cannot be evaluated from the first moved layer on"):
        found = train(case, "MeZO", objective(case.inputs, case.target))
    expected = train(twin, "MeZO", lambda: twin.loss_fn(twin.model(twin.inputs), twin.target))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_its_verdict_is_saved():
    case = build("llama_last_token")
    objective = cocd.trace(case.model, case.loss_fn)
    objective._suffixes = False
    other = cocd.trace(copy.deepcopy(case.model), case.loss_fn)
    other.load_state_dict(objective.state_dict())
    assert not other._suffixes
