"""`AutoCoCD(basis=...)`: probes and steps along the vectors of an orthonormal basis."""

import copy
import io
import warnings

import pytest
import torch
from helpers import frozen
from torch import nn
from torch.nn import functional as F

import cocd

BASES = ["identity", "hadamard", "rotation"]


def problem(basis, traced=False, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 2))
    x, y = torch.randn(32, 3), torch.randn(32, 2)
    optimizer = cocd.AutoCoCD(model.parameters(), basis=basis, **options)
    objective = cocd.trace(model, F.mse_loss)
    closure = objective(x, y) if traced else (lambda: F.mse_loss(model(x), y))
    return model, optimizer, closure


def run(optimizer, closure, steps):
    return [float(optimizer.step(closure)) for _ in range(steps)]


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("basis", BASES)
def test_training_lowers_the_loss_and_reports_the_loss_of_the_weights(basis):
    _, optimizer, closure = problem(basis)
    losses = run(optimizer, closure, 60)
    assert losses[-1] < 0.7 * losses[0]
    with torch.no_grad():
        now = float(closure())
    assert float(optimizer.step(closure)) == now  # to the bit: at x_t the loss sees x_t


def test_the_identity_takes_the_steps_of_no_basis_up_to_rounding():
    with_basis, optimizer, closure = problem("identity")
    run(optimizer, closure, 30)
    without, other, theirs = problem(None)
    run(other, theirs, 30)
    assert optimizer.evaluations == other.evaluations
    assert torch.allclose(flat(with_basis), flat(without), atol=1e-4)


def test_the_steps_in_a_rotation_are_those_of_the_rotated_problem():
    n = 6
    scales = torch.logspace(0, 3, n, dtype=torch.float64)
    rotation = cocd.basis.Rotation(n, seed=0)  # of the first parameter
    x = torch.ones(n, dtype=torch.float64, requires_grad=True)
    z = rotation.coefficients(x.detach()).requires_grad_()
    one = cocd.AutoCoCD([x], basis="rotation")
    other = cocd.AutoCoCD([z])
    for _ in range(20):
        one.step(lambda: (scales * x**2).sum())
        other.step(lambda: (scales * rotation.combine(z) ** 2).sum())
    assert torch.allclose(rotation.combine(z.detach()), x, atol=1e-8)
    assert torch.allclose(rotation.combine(other.estimate()), one.estimate(), atol=1e-6)


@pytest.mark.parametrize("basis", ["hadamard", "rotation"])
def test_a_traced_objective_gives_the_steps_of_the_closure(basis):
    one, optimizer, closure = problem(basis, compute_budget=5)
    run(optimizer, closure, 25)
    other, theirs, traced = problem(basis, traced=True, compute_budget=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(theirs, traced, 25)
    assert optimizer.evaluations == theirs.evaluations
    assert torch.allclose(flat(one), flat(other), atol=1e-3)


@pytest.mark.parametrize("basis", BASES)
def test_a_run_with_a_basis_resumes_to_the_bit(basis):
    model, optimizer, closure = problem(basis)
    run(optimizer, closure, 13)
    buffer = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], buffer)
    expected = run(optimizer, closure, 12), flat(model)
    again, resumed, theirs = problem(basis)
    run(resumed, theirs, 2)
    buffer.seek(0)
    weights, state = torch.load(buffer, weights_only=True)
    again.load_state_dict(weights)
    resumed.load_state_dict(state)
    assert run(resumed, theirs, 12) == expected[0]
    assert torch.equal(flat(again), expected[1])


def test_a_copy_goes_on_alike():
    x = torch.zeros(5, requires_grad=True)
    one = cocd.AutoCoCD([x], basis="hadamard")
    one.step(lambda: ((x - 1) ** 2).sum())
    x2, two = copy.deepcopy((x, one))
    for vector, method in ((x, one), (x2, two)):
        method.step(lambda v=vector: ((v - 1) ** 2).sum())
    assert torch.equal(x, x2)


def test_a_state_of_another_basis_is_refused():
    _, optimizer, closure = problem("hadamard")
    run(optimizer, closure, 2)
    _, other, _ = problem(None)
    with pytest.raises(ValueError, match="basis='hadamard', this optimizer has basis=None"):
        other.load_state_dict(optimizer.state_dict())


def test_without_a_basis_nothing_is_wrapped_and_older_states_load(monkeypatch):
    def refuse(*args):
        raise AssertionError("a loss was wrapped")

    monkeypatch.setattr("cocd.optim.coordinate.Coefficients.__init__", refuse)
    model, optimizer, closure = problem(None)
    run(optimizer, closure, 3)
    state = optimizer.state_dict()
    del state["state"]["cocd"]["basis"]  # as it was saved before there were bases
    weights = copy.deepcopy(model.state_dict())
    expected = run(optimizer, closure, 3)
    again, resumed, theirs = problem(None)
    again.load_state_dict(weights)
    resumed.load_state_dict(state)
    assert run(resumed, theirs, 3) == expected


def test_an_exception_leaves_weights_and_state_alone():
    model, optimizer, closure = problem("rotation")
    run(optimizer, closure, 3)
    before = frozen([model.state_dict(), optimizer.state_dict()])
    for failing_at in (0, 1, 9, 40):
        calls = iter(range(100))

        def failing(calls=calls, last=failing_at):
            if next(calls) == last:
                raise RuntimeError("no")
            return closure()

        with pytest.raises(RuntimeError, match="no"):
            run(optimizer, failing, 5)
        if failing_at < 9:
            now = frozen([model.state_dict(), optimizer.state_dict()])
            now[1]["state"]["cocd"]["evaluations"] = before[1]["state"]["cocd"]["evaluations"]
            assert now == before


def test_a_frozen_tensor_stays_to_the_bit_and_joins_when_it_is_unfrozen():
    model, optimizer, closure = problem("hadamard")
    model[0].weight.requires_grad_(False)
    before = model[0].weight.detach().clone()
    run(optimizer, closure, 5)
    assert torch.equal(model[0].weight, before)
    model[0].weight.requires_grad_(True)
    run(optimizer, closure, 20)
    assert not torch.equal(model[0].weight, before)


def test_weights_that_are_changed_between_steps_are_taken_as_they_are():
    model, optimizer, closure = problem("hadamard")
    run(optimizer, closure, 5)
    with torch.no_grad():
        model[0].weight.mul_(1.5)
        now = float(closure())
    assert float(optimizer.step(closure)) == now


def test_l2_is_that_of_the_weights():
    x = torch.full((4,), 2.0, requires_grad=True)
    optimizer = cocd.AutoCoCD([x], basis="hadamard", l2=1.0)
    run(optimizer, lambda: (x[0] - 3) ** 2 / 2, 80)
    assert torch.allclose(x, torch.tensor([1.5, 0.0, 0.0, 0.0]), atol=0.05)


def test_what_reset_is_given_is_what_estimate_returns():
    _, optimizer, _ = problem("rotation")
    known = torch.linspace(-1, 1, 44)
    optimizer.reset(known)
    assert torch.allclose(optimizer.estimate(), known, atol=1e-6)


@pytest.mark.parametrize(
    ("basis", "size", "message"),
    [("fourier", 3, "basis must be one of"), ("rotation", 10_001, "use Hadamard")],
)
def test_a_basis_that_cannot_be_is_refused(basis, size, message):
    with pytest.raises(ValueError, match=message):
        cocd.AutoCoCD([torch.zeros(size, requires_grad=True)], basis=basis)


def test_a_sharded_closure_is_refused_before_anything_changes():
    model, optimizer, closure = problem("hadamard")

    class Shared(cocd.objective.closure.ClosureLoss):
        def is_shared(self):
            return True

    before = frozen(model.state_dict())
    with pytest.raises(ValueError, match="basis cannot be combined with"):
        optimizer.step(Shared(closure))
    assert frozen(model.state_dict()) == before
