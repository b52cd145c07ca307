"""Every architecture of the zoo, every parameter: the engines give what the closure gives."""

from contextlib import nullcontext

import pytest
import torch
from helpers import frozen
from zoo import ZOO, build

import cocd
from cocd.objective.batched import call_model
from cocd.objective.closure import sequential
from cocd.objective.kernels import dispatch as kernels
from cocd.parts.evaluation import Evaluations

EPS = 0.05
DIFFERENCES = ("central", "forward", "backward")
architectures = pytest.mark.parametrize("name", ZOO)


def coordinates(model, count):
    """A few random coordinates of every parameter, in random order."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randperm(p.numel(), generator=generator)[:count].tolist()
        for name, p in model.named_parameters()
    }


def probes(closure, model, index, eps, difference, of=sequential):
    """The loss, and differences by name, with the number of evaluations that was counted."""
    counts = []
    torch.manual_seed(2)
    with Evaluations(closure, None, (), counts.append) as evaluate:
        loss = evaluate(prepare=True)
        found = {
            name: of(evaluate, loss, p, index[name], eps, difference)
            for name, p in model.named_parameters()
        }
    return loss, found, counts


def both(case, objective, index, eps, difference):
    """The same probes by the engines and one by one."""
    closure = objective(case.inputs, case.target)
    plain = lambda: closure()  # noqa: E731  (an ordinary closure, which knows no engines)
    expected = probes(plain, case.model, index, eps, difference)
    found = probes(closure, case.model, index, eps, difference, closure.differences)
    return expected, found


def assert_engines(case, objective):
    """Each parameter was probed by the engine that the zoo names, by a rule where it says so."""
    engines = {}
    for name, record in objective._records.items():
        without = record.plan is not None and record.plan.rule.startswith("vmap")
        engines[name] = "without a rule" if without else objective.engine_of(name)
    assert engines == {name: case.engine(name) for name, _ in case.model.named_parameters()}


@architectures
@pytest.mark.parametrize("difference", DIFFERENCES)
def test_differences_are_those_of_the_closure(name, difference):
    case = build(name)
    objective = cocd.trace(case.model, case.loss_fn)
    index = coordinates(case.model, 5)
    (loss, expected, counts), (same, found, counted) = both(case, objective, index, EPS, difference)
    assert_engines(case, objective)
    assert counted == counts
    assert same == pytest.approx(loss, rel=1e-12)
    noise = 16 * torch.finfo(torch.float64).eps * max(1, abs(loss))  # all there is at slope 0
    for parameter, (first, second) in expected.items():
        scale = first.abs().max().item()
        torch.testing.assert_close(found[parameter].first, first, rtol=0, atol=1e-9 * scale + noise)
        assert (second is None) == (found[parameter].second is None)
        if second is not None:
            torch.testing.assert_close(
                found[parameter].second, second, rtol=0, atol=1e-9 * scale + 2 * noise
            )


@architectures
@pytest.mark.parametrize("accelerated", [False, True])
def test_float32_differs_by_rounding_alone(name, accelerated):
    case = build(name, torch.float32)
    objective = cocd.trace(case.model, case.loss_fn)
    index = coordinates(case.model, 4)
    with nullcontext() if accelerated else kernels.disabled():
        (loss, expected, _), (_, found, _) = both(case, objective, index, EPS, "central")
    assert_engines(case, objective)
    # Each of the two losses is a few roundings off, each of up to half a unit of the loss; the
    # quotient divides by the distance of the two points.
    bound = 8 * torch.finfo(torch.float32).eps * max(1, abs(loss)) / (2 * EPS)
    for parameter, (first, _) in expected.items():
        error = (found[parameter].first - first).abs().max().item() / (2 * EPS)
        assert error <= bound, parameter


def train(model, closure):
    """20 steps; all that a run leaves behind."""
    n = sum(p.numel() for p in model.parameters())
    optimizer = cocd.CoCD(
        model.parameters(), lr=0.02, eps=EPS, decay=0.9, compute_budget=min(n // 20 + 1, 12)
    )
    torch.manual_seed(3)
    losses = [float(optimizer.step(closure)) for _ in range(20)]
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return losses, weights, optimizer.estimate(), dict(model.named_buffers()), optimizer.evaluations


@architectures
def test_trajectories_are_those_of_the_closure(name):
    plain, traced = build(name), build(name)

    def loss():
        return plain.loss_fn(call_model(plain.model, plain.inputs), plain.target)

    losses, weights, estimate, buffers, evaluations = train(plain.model, loss)
    after = torch.get_rng_state()
    objective = cocd.trace(traced.model, traced.loss_fn)
    found = train(traced.model, objective(traced.inputs, traced.target))
    torch.testing.assert_close(torch.tensor(found[0]), torch.tensor(losses), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found[1], weights, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        found[2], estimate, rtol=0, atol=1e-9 * (1 + estimate.abs().max().item())
    )
    torch.testing.assert_close(found[3], buffers, rtol=1e-9, atol=1e-12)
    assert found[4] == evaluations
    assert torch.equal(torch.get_rng_state(), after)


@architectures
def test_a_step_changes_buffers_and_generator_as_one_evaluation(name):
    case, twin = build(name), build(name)
    torch.manual_seed(4)
    with torch.no_grad():
        twin.loss_fn(call_model(twin.model, twin.inputs), twin.target)
    buffers, generator = frozen(dict(twin.model.named_buffers())), torch.get_rng_state()
    torch.manual_seed(4)
    objective = cocd.trace(case.model, case.loss_fn)
    cocd.CoCD(case.model.parameters(), lr=0.0, compute_budget=3).step(
        objective(case.inputs, case.target)
    )
    assert frozen(dict(case.model.named_buffers())) == buffers
    assert torch.equal(torch.get_rng_state(), generator)
