"""AutoCoCD where something is odd: losses, precisions, frozen parameters, states, failures."""

import pytest
import torch
from torch import nn

import cocd
from cocd.auto.rollback import Rollback


def test_an_infinite_loss_is_forgotten():
    x = torch.tensor([3.0, 3.0], requires_grad=True)
    optimizer = cocd.AutoCoCD([x], compute_budget=2)
    calls = 0

    def closure():
        nonlocal calls
        calls += 1
        return ((x - 1) ** 2).sum() + (float("inf") if calls == 2 else 0.0)

    with pytest.warns(cocd.NonFiniteWarning):
        for _ in range(100):
            optimizer.step(closure)
    assert optimizer.skipped == 1 and (x - 1).abs().max() < 0.01


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_steps_of_half_precision_weights_do_not_raise_a_loss_in_single_precision(dtype):
    torch.manual_seed(0)
    target = torch.linspace(-0.5, 0.5, 64)
    x = torch.randn(64).to(dtype).requires_grad_()
    optimizer = cocd.AutoCoCD([x])

    def closure():
        return (x.detach().float() - target).square().sum() + 10

    for _ in range(150):
        before = float(closure())
        optimizer.step(closure)
        assert float(closure()) <= before + 1e-5
    assert float(closure()) - 10 < 0.02


def test_half_precision_weights_are_probed_at_the_whole_radius():
    x = torch.full((4,), 8.0, dtype=torch.bfloat16, requires_grad=True)
    optimizer = cocd.AutoCoCD([x], compute_budget=4)
    for _ in range(12):  # a radius of 0.02 would be lost in rounding
        optimizer.step(lambda: (x.float() - 8).square().sum() + 1)
    assert optimizer.estimate().abs().max() < 1e-6


def test_the_guard_knows_the_penalty():
    x = torch.full((400,), 3.01, dtype=torch.float64, requires_grad=True)
    optimizer = cocd.AutoCoCD([x], l2=1.0)
    for _ in range(150):
        optimizer.step(lambda: (x - 3).square().sum() / 2)
    assert abs(x.mean().item() - 1.5) < 0.05


def test_the_guard_leaves_frozen_parameters_alone():
    a, b = torch.ones(2, 2, requires_grad=True), torch.ones(4, requires_grad=True)
    optimizer = cocd.AutoCoCD([a, b], compute_budget=8)

    def closure():
        return (a**2).sum() + (b**2).sum() + 1

    for _ in range(60):
        optimizer.step(closure)
    b.requires_grad_(False).fill_(7.0)
    a.data = a.data + 1e3
    with pytest.warns(cocd.RestoreWarning):
        optimizer.step(closure)
    assert torch.equal(b, torch.full((4,), 7.0)) and a.abs().max() < 1


@pytest.mark.parametrize("steep", [1.0, 8.0, 1e6])
def test_without_any_curvature_the_radius_says_how_far(steep):
    x = torch.full((8,), 5.0, requires_grad=True)
    optimizer = cocd.AutoCoCD([x])
    for _ in range(60):
        optimizer.step(lambda: steep * x.abs().sum())
    assert (x < 4).all()


def test_a_rate_that_is_a_tensor():
    x, y = (torch.full((4,), 3.0, requires_grad=True) for _ in range(2))
    for p, lr in ((x, 1.0), (y, torch.tensor(1.0))):
        optimizer = cocd.AutoCoCD([p], lr=lr)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for _ in range(10):
            optimizer.step(lambda p=p: (p**2).sum())
            scheduler.step()
    assert torch.equal(x, y)


def test_max_evaluations_is_saved_and_looked_at_in_every_step():
    x = torch.full((4,), 5.0, requires_grad=True)
    optimizer = cocd.AutoCoCD([x], max_evaluations=100)
    for _ in range(10):
        optimizer.step(lambda: (x**2).sum())
    y = x.detach().clone().requires_grad_()
    other = cocd.AutoCoCD([y])
    other.load_state_dict(optimizer.state_dict())
    assert other.max_evaluations == 100
    for _ in range(10):
        optimizer.step(lambda: (x**2).sum())
        other.step(lambda: (y**2).sum())
    assert torch.equal(x, y)
    before, spent = x.clone(), optimizer.evaluations
    optimizer.max_evaluations = 0
    with pytest.raises(ValueError, match="max_evaluations must be"):
        optimizer.step(lambda: (x**2).sum())
    assert torch.equal(x, before) and optimizer.evaluations == spent


def test_a_step_that_fails_at_its_end_has_learned_nothing():
    x = torch.full((4,), 2.0, requires_grad=True)
    optimizer = cocd.AutoCoCD([x], compute_budget=2, lr=0.1)
    optimizer.step(lambda: (x.sum() - 1) ** 2)
    before = optimizer.state_dict()["state"]["cocd"]["lengths"]

    def refuse(block, fresh):
        raise RuntimeError("not now")

    optimizer._observers = (refuse,)
    with pytest.raises(RuntimeError, match="not now"):
        optimizer.step(lambda: (x.sum() - 1) ** 2)
    assert optimizer.state_dict()["state"]["cocd"]["lengths"] == before


def test_frozen_parameters_do_not_make_every_block_central():
    a, b = (torch.ones(32, requires_grad=True) for _ in "ab")
    optimizer = cocd.AutoCoCD([a, b], compute_budget=8)
    counts = []
    for i in range(56):
        if i == 2:
            a.requires_grad_(False)
        before = optimizer.evaluations
        optimizer.step(lambda: (a**2).sum() + (b**2).sum())
        counts.append(optimizer.evaluations - before)
    assert counts[0] == 2 * 8 + 3
    assert counts[16:24] == counts[48:56] == [4 + 3] * 8  # half of a block is frozen


def test_the_curvature_is_kept_on_the_cpu_whatever_the_default_device():
    x = torch.ones(8, requires_grad=True)
    with torch.device("meta"):
        optimizer = cocd.AutoCoCD([x])
        for _ in range(3):
            optimizer.step(lambda: (x**2).sum())
    assert {values.device.type for values in optimizer._learned.curvature.tensors} == {"cpu"}


def test_a_state_of_another_method_is_refused_whole():
    model = nn.Linear(4, 8)
    saved = cocd.AutoCoCD(model.parameters()).state_dict()
    del saved["state"]["cocd"]["rollback"]
    optimizer = cocd.AutoCoCD(model.parameters(), compute_budget=3)
    with pytest.raises(ValueError, match="state_dict has no rollback"):
        optimizer.load_state_dict(saved)
    assert optimizer.compute_budget == 3


@pytest.mark.parametrize("mean", [0.1, 0.2, 0.3])
def test_noise_around_nothing_is_not_taken_for_an_explosion(mean):
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(1, requires_grad=True)

    def is_lost(rollback, loss, there=torch.nan):
        with torch.no_grad():
            verdict = rollback.check(loss, [x], lambda: there)
            rollback.observe(loss, verdict, [x], 10)
            if verdict == "lost":
                rollback.restore([x])
        return verdict == "lost"

    found = Rollback()
    for loss in torch.randn(5_000, generator=generator).tolist():
        assert not is_lost(found, mean + loss)
    found = Rollback.from_state(found.state_dict(), cocd.AutoConfig())
    with pytest.warns(cocd.RestoreWarning):
        assert any(is_lost(found, 100.0, there=0.0) for _ in range(20))
    for loss in torch.randn(2_000, generator=generator).tolist():
        assert not is_lost(found, mean + loss)
    assert any(is_lost(found, float("inf"), there=0.0) for _ in range(20))


def test_a_step_that_fails_in_its_search_counts_nothing():
    x = torch.tensor([3.0, 3.0], requires_grad=True)
    optimizer = cocd.AutoCoCD([x], compute_budget=2)
    calls = 0

    def closure():
        nonlocal calls
        calls += 1
        if calls == 6:  # base, four probes, and the first along the step
            raise OSError("the device is gone")
        return ((x - 1) ** 2).sum() + (float("inf") if calls == 2 else 0.0)

    with pytest.raises(OSError, match="gone"):
        optimizer.step(closure)
    assert calls == 6 and optimizer.skipped == 0 and x.tolist() == [3.0, 3.0]


def test_the_part_of_a_step_goes_on_falling_when_a_short_memory_grows():
    x = torch.ones(8, requires_grad=True)
    optimizer = cocd.AutoCoCD([x], compute_budget=2, memory_budget=4)
    for _ in range(40):
        optimizer.step(lambda: (x**2).sum())
    assert optimizer._schedule.done == 10
    part = optimizer._learned.part(optimizer.schedule.done)
    y = torch.ones(2, requires_grad=True)
    optimizer.add_param_group({"params": [y]})
    optimizer.step(lambda: (x**2).sum() + (y**2).sum())
    assert optimizer._schedule.done == 82 / 10
    assert optimizer._learned.part(optimizer.schedule.done) < 1.1 * part

    again = cocd.AutoCoCD([{"params": [x]}, {"params": [y]}], compute_budget=2, memory_budget=4)
    again.load_state_dict(optimizer.state_dict())
    assert again._learned.part(82 / 10) == optimizer._learned.part(82 / 10)


END = cocd.AutoConfig(end_sweeps=0.0)


@pytest.mark.parametrize("announced", [12, 13, 14])
def test_near_the_end_a_step_is_shortened_once(announced):
    """The first step makes 2 x 4 + 1 evaluations and two along its way."""
    moved = []
    for most in (None, announced):
        x = torch.ones(4, dtype=torch.float64, requires_grad=True)
        optimizer = cocd.AutoCoCD([x], compute_budget=4, max_evaluations=most, config=END)
        optimizer.step(lambda x=x: (x**2).sum())
        assert optimizer.evaluations == 11
        moved.append(1 - x.detach())
    left = (1 - 11 / announced) / 0.3
    assert moved[1].tolist() == pytest.approx((left * moved[0]).tolist(), rel=1e-12)


def test_steps_shrink_at_the_end_only_where_noise_has_limited_many_sweeps():
    for sweeps, shrunk in ((50, False), (150, True)):
        x = torch.ones(4, dtype=torch.float64, requires_grad=True)
        optimizer = cocd.AutoCoCD([x], max_evaluations=4)
        optimizer._learned.budget.age = sweeps
        y = x.detach().clone().requires_grad_()
        other = cocd.AutoCoCD([y])
        other._learned.budget.age = sweeps
        optimizer.step(lambda x=x: (x**2).sum())
        other.step(lambda y=y: (y**2).sum())
        assert torch.equal(x, y) != shrunk
