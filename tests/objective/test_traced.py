"""Engines: which one is used, rules from outside, and what happens when a rule is wrong."""

import re
import warnings
from pathlib import Path

import pytest
import torch
from helpers import Raising, flat, world
from torch import nn
from zoo import build

import cocd
from cocd import EngineWarning, baselines
from cocd.objective import checks
from cocd.objective import traced_loss as closure_module
from cocd.objective.graph import propagation as incremental
from cocd.objective.registry import rules

ROOT = Path(__file__).parents[2]


def gradient(model, closure, **options):
    """Finite differences of all coordinates at once, and what the optimizer counted."""
    optimizer = baselines.FiniteDifference(model.parameters(), lr=0.0, eps=0.05, **options)
    optimizer.step(closure)
    return optimizer.estimate(), optimizer.evaluations


def assert_right(objective, case, atol=1e-10, **options):
    closure = objective(case.inputs, case.target)
    expected, evaluations = gradient(case.model, lambda: closure(), **options)
    found, counted = gradient(case.model, closure, **options)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=atol)
    assert counted == evaluations


@pytest.fixture
def registry(monkeypatch):
    """Rules that a test registers are gone after it."""
    monkeypatch.setattr(rules, "sources", dict(rules.sources))
    monkeypatch.setattr(rules, "flows", dict(rules.flows))


class Scale(nn.Module):
    def __init__(self, units):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(units, dtype=torch.float64))

    def forward(self, x):
        return x * self.scale


def scaled():
    case = build("mlp")
    case.model.insert(1, Scale(6))
    return case


# --- rules -------------------------------------------------------------------------------


def test_the_rule_in_contributing_works(registry):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "rules.source" in block]
    namespace = {}
    exec(example, namespace)
    case = build("mlp")
    case.model.insert(1, namespace["Scale"](6).double())
    objective = cocd.trace(case.model, case.loss_fn)
    assert_right(objective, case)
    assert "Scale.scale" in objective.explain()
    assert {objective.engine_of(name) for name, _ in case.model.named_parameters()} == {
        "incremental"
    }


def test_a_custom_layer_needs_no_rule():
    case = scaled()
    objective = cocd.trace(case.model, case.loss_fn)
    assert_right(objective, case)
    assert objective.engine_of("1.scale") == "incremental"


def test_a_wrong_source_is_found_out(registry):
    @cocd.rules.source(Scale, parameter="scale")
    def twice_as_far(call, moves):
        delta = 2 * call.args[0][:, moves.index].T * moves.steps[:, None]
        return cocd.rules.slab(call.out, 1, moves.index, 1, delta[:, :, None])

    case = scaled()
    objective = cocd.trace(case.model, case.loss_fn)
    sentence = r"1\.scale: the incremental engine disagrees .* on elem"
    with pytest.warns(EngineWarning, match=sentence):
        assert_right(objective, case)
    assert objective.engine_of("1.scale") == "batched"
    assert objective.engine_of("0.weight") == "incremental"
    assert_right(objective, case)  # without another warning


def test_a_wrong_flow_is_found_out(registry):
    @cocd.rules.flow(Scale)
    def passes_through(call, changes):
        return changes[0].with_delta(call.out, changes[0].delta())

    case = scaled()
    objective = cocd.trace(case.model, case.loss_fn)
    with pytest.warns(EngineWarning, match=r"0\.(weight|bias): the incremental engine disag"):
        assert_right(objective, case)
    assert objective.engine_of("0.weight") == objective.engine_of("0.bias") == "batched"
    assert objective.engine_of("1.scale") == objective.engine_of("3.weight") == "incremental"


@pytest.mark.parametrize("error", [KeyError("x"), AssertionError(), AttributeError("no")])
def test_a_rule_that_fails_is_replaced(registry, error):
    @cocd.rules.source(Scale, parameter="scale")
    def fails(call, moves):
        raise error

    case = scaled()
    objective = cocd.trace(case.model, case.loss_fn)
    with pytest.warns(EngineWarning, match=r"1\.scale: the incremental engine cannot follow it"):
        assert_right(objective, case)
    assert objective.engine_of("1.scale") == "batched"


def test_a_rule_may_leave_a_case_to_the_engine(registry):
    cocd.rules.source(Scale, parameter="scale")(lambda call, moves: None)
    cocd.rules.flow(Scale)(lambda call, changes: None)
    case = scaled()
    objective = cocd.trace(case.model, case.loss_fn)
    assert_right(objective, case)
    assert "vmap of Scale" in objective.explain()


# --- the choice --------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["incremental", "batched", "sequential"])
@pytest.mark.parametrize("name", ["lenet", "resnet", "dropout", "embedding"])
def test_an_engine_can_be_forced(name, engine):
    case = build(name)
    objective = cocd.trace(case.model, case.loss_fn, engine=engine)
    torch.manual_seed(0)
    optimizer = cocd.CoCD(case.model.parameters(), lr=0.1, eps=0.05, compute_budget=20)
    for _ in range(4):
        optimizer.step(objective(case.inputs, case.target))
    twin = build(name)
    torch.manual_seed(0)
    plain = cocd.CoCD(twin.model.parameters(), lr=0.1, eps=0.05, compute_budget=20)
    for _ in range(4):
        plain.step(lambda: twin.loss_fn(twin.model(twin.inputs), twin.target))
    torch.testing.assert_close(
        flat(case.model.parameters()), flat(twin.model.parameters()), rtol=1e-9, atol=1e-9
    )
    assert {objective.engine_of(key) for key, _ in case.model.named_parameters()} == {engine}


def test_an_engine_that_is_asked_for_and_cannot_says_so():
    case = build("control_flow")
    objective = cocd.trace(case.model, case.loss_fn, engine="batched")
    with pytest.warns(EngineWarning, match=r"a\.(weight|bias): the batched engine cannot"):
        assert_right(objective, case)


def test_incremental_or_nothing():
    case = build("mlp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(case.model)
    objective = cocd.trace(scripted, case.loss_fn, engine="incremental")
    before = flat(case.model.parameters())
    with pytest.raises(
        ValueError, match=r"engine='incremental' is not possible: .* outside Python"
    ):
        assert_right(objective, case)
    assert torch.equal(flat(case.model.parameters()), before)


def test_bad_arguments_are_refused():
    model, loss = nn.Linear(1, 1), nn.MSELoss()
    for message, call in {
        "model must be a torch module, got function": lambda: cocd.trace(flat, loss),
        "loss_fn must be a function": lambda: cocd.trace(model, 3),
        "engine must be": lambda: cocd.trace(model, loss, engine="fast"),
        "memory_limit must be a whole number of bytes above 0, got 0": lambda: cocd.trace(
            model, loss, memory_limit=0
        ),
        "memory_limit must be a whole number of bytes above 0, got True": lambda: cocd.trace(
            model, loss, memory_limit=True
        ),
        "accelerate must be True or False, got 'no'": lambda: cocd.trace(
            model, loss, accelerate="no"
        ),
        r"got the class MSELoss; write MSELoss\(\)": lambda: cocd.trace(model, nn.MSELoss),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("name", ["lenet", "resnet", "transformer_encoder", "unknown_loss"])
def test_a_small_memory_limit_gives_the_same_numbers(name):
    case = build(name)
    objective = cocd.trace(case.model, case.loss_fn, memory_limit=1)
    assert_right(objective, case)
    assert {objective.engine_of(key) for key, _ in case.model.named_parameters()} == {"incremental"}


@pytest.mark.parametrize("name", ["embedding", "embedding_bag"])
def test_rows_that_the_batch_does_not_use_cost_nothing(name, monkeypatch):
    case = build(name)
    used = set(case.inputs[:2].unique().tolist())
    assert len(used) < 9
    case = case._replace(inputs=case.inputs[:2], target=case.target[:2])
    objective, probed = cocd.trace(case.model, case.loss_fn), []

    def counted(run, plan, parameter, moves, *more, original=incremental.propagate):
        rows = {i // parameter.shape[-1] for i in moves.index}
        probed.append(plan.entry != 1 or rows <= used)
        return original(run, plan, parameter, moves, *more)

    monkeypatch.setattr(incremental, "propagate", counted)
    assert_right(objective, case)
    assert probed and all(probed)


def test_checks_are_counted_apart():
    case = build("mlp")
    objective = cocd.trace(case.model, case.loss_fn)
    _, evaluations = gradient(case.model, objective(case.inputs, case.target))
    n = sum(p.numel() for p in case.model.parameters())
    assert evaluations == 2 * n + 1
    assert objective.checks == 1 + 2 * sum(min(3, p.numel()) for p in case.model.parameters())
    assert f"evaluations spent on checks: {objective.checks}" in objective.explain()


def test_a_rule_that_goes_wrong_later_is_noticed_later(monkeypatch):
    case = build("mlp")
    objective = cocd.trace(case.model, case.loss_fn)
    optimizer = cocd.CoCD(case.model.parameters(), lr=0.0, compute_budget=5)
    closure = objective(case.inputs, case.target)
    for _ in range(3):
        optimizer.step(closure)
    first = objective.checks

    def wrong(*args, original=closure_module.loss_changes):
        return original(*args) + 0.01 * args[3].steps.double()

    monkeypatch.setattr(closure_module, "loss_changes", wrong)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(checks.RECHECK):
            optimizer.step(closure)
    assert objective.checks > first
    (message,) = {str(w.message).split(":")[1].split(" on ")[0] for w in seen}
    assert message == " the incremental engine disagrees with the closure"


# --- optimizers --------------------------------------------------------------------------

OPTIMIZERS = {
    "BCCD": lambda p: baselines.BCCD(p, lr=0.1, compute_budget=7),
    "FiniteDifference": lambda p: baselines.FiniteDifference(p, lr=0.1),
    "RandomCoordinate": lambda p: baselines.RandomCoordinate(p, lr=0.1, compute_budget=7, seed=1),
    "SPSA": lambda p: baselines.SPSA(p, lr=0.01, seed=1),
    "MeZO": lambda p: baselines.MeZO(p, lr=0.01, seed=1),
    "EvolutionStrategy": lambda p: baselines.EvolutionStrategy(p, lr=0.01, directions=2, seed=1),
    "forward": lambda p: cocd.CoCD(p, lr=0.1, compute_budget=7, difference="forward"),
}


@pytest.mark.parametrize("method", OPTIMIZERS)
def test_every_optimizer_takes_the_objective(method):
    results = []
    for traced in (False, True):
        case = build("batch_norm_1d")
        objective = cocd.trace(case.model, case.loss_fn)
        optimizer = OPTIMIZERS[method](case.model.parameters())
        for _ in range(3):
            closure = objective(case.inputs, case.target)
            optimizer.step(closure if traced else lambda c=closure: c())
        results.append((flat(case.model.parameters()), optimizer.evaluations))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-9, atol=1e-9)
    assert results[0][1] == results[1][1]


def test_parameters_outside_the_model_are_probed_one_by_one():
    case = build("loss_with_parameters")
    objective = cocd.trace(case.model, case.loss_fn)
    everything = nn.ModuleList([case.model, case.loss_fn])
    assert_right(objective, case._replace(model=everything))


@pytest.mark.parametrize("at", [2, 5])
def test_after_an_exception_everything_is_as_before(at):
    case = build("dropout")
    failing = Raising(lambda: None, at, lambda: (_ for _ in ()).throw(RuntimeError("no disk")))

    def loss_fn(y, target):
        failing()
        return y.pow(2).mean()

    objective = cocd.trace(case.model, loss_fn)
    optimizer = cocd.CoCD(case.model.parameters(), lr=0.1, compute_budget=9)
    before = world(optimizer, case.model)
    with pytest.raises(RuntimeError, match="no disk"):
        optimizer.step(objective(case.inputs, case.target))
    assert world(optimizer, case.model) == before
