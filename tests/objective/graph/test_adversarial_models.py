"""Models that do in their forward what a tracer does not expect.

Each is held to the same three promises: the loss that a step returns is the model's own, also in
the very step in which something changes; a step leaves model and generator as one evaluation of
the model would; and the differences are those of the closure, or a warning was given.
"""

import copy
import random
import warnings
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from adversaries import ADVERSARIES, GLOBAL, Adversary, Model, Packed, Spectral
from helpers import frozen
from torch import nn
from torch.nn import functional as F

import cocd
from cocd import EngineWarning
from cocd.objective.batched import call_model
from cocd.objective.closure import sequential
from cocd.parts.evaluation import Evaluations


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
    model = Packed().double()
    objective = cocd.trace(model, loss_of)
    with pytest.warns(EngineWarning, match="passes a PackedSequence to a call"):
        differences(model, objective(torch.randn(6, 4, dtype=torch.float64), TARGET), None)


def test_a_layer_that_reads_the_buffers_it_writes_is_named_as_the_reason():
    model = Spectral()
    with pytest.warns(EngineWarning, match="ParametrizedLinear writes into its buffers"):
        differences(model, cocd.trace(model, loss_of)(torch.randn(6, 4), TARGET.float()), None)
