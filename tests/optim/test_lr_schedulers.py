"""Every scheduler of torch takes effect, and moves lr alone."""

import pytest
import torch
from helpers import frozen
from torch.optim import lr_scheduler

import cocd

MAKE = {
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ExponentialLR(o, 0.9), lr_scheduler.ConstantLR(o, 0.5, total_iters=2)]
    ),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.5, total_iters=2),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(
        o, base_lr=0.1, max_lr=1.0, step_size_up=2, cycle_momentum=False
    ),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.5),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t)),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.25, total_iters=4),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [1, 3], 0.5),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda t: 0.5),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(
        o, max_lr=1.0, total_steps=7, cycle_momentum=False
    ),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, total_iters=5),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=1),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.ConstantLR(o, 0.5, total_iters=9), lr_scheduler.ExponentialLR(o, 0.5)],
        milestones=[2],
    ),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
}


def test_no_scheduler_is_forgotten():
    assert set(MAKE) == set(lr_scheduler.__all__) - {"LRScheduler"}


@pytest.mark.parametrize("lr", [0.5, torch.tensor(0.5)], ids=["float", "tensor"])
@pytest.mark.parametrize("name", sorted(MAKE))
def test_scheduler_takes_effect(name, lr):
    """The same rates as for SGD; with slope 1 every coordinate moves by exactly the rate."""
    lr = lr.clone() if isinstance(lr, torch.Tensor) else lr
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    twin = torch.ones(2, dtype=torch.float64, requires_grad=True)
    optimizer = cocd.CoCD([x], lr=lr, compute_budget=2, decay=0.9, eps=0.25)
    sgd = torch.optim.SGD([twin], lr=0.5)
    ours, theirs = MAKE[name](optimizer), MAKE[name](sgd)
    plateau = [1.0] if name == "ReduceLROnPlateau" else []  # the metric, which never improves
    rates = []
    for _ in range(6):
        start = x.detach().clone()
        rates.append(float(optimizer.param_groups[0]["lr"]))
        assert rates[-1] == pytest.approx(sgd.param_groups[0]["lr"], rel=1e-6)
        optimizer.step(lambda: x.sum())
        torch.testing.assert_close(
            start - x.detach(), torch.full_like(start, rates[-1]), rtol=0, atol=1e-12
        )
        sgd.step()
        ours.step(*plateau)
        theirs.step(*plateau)
    assert len(set(rates)) > 1
    assert (optimizer.param_groups[0]["decay"], optimizer.param_groups[0]["eps"]) == (0.9, 0.25)


def test_scheduler_and_optimizer_resume_together():
    def build():
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        optimizer = cocd.CoCD([x], lr=torch.tensor(0.1), decay=0.9, compute_budget=1)
        return x, optimizer, lr_scheduler.ExponentialLR(optimizer, 0.5)

    def advance(x, optimizer, scheduler, steps):
        for _ in range(steps):
            optimizer.step(lambda: (x**2).sum())
            scheduler.step()

    x, optimizer, scheduler = build()
    advance(x, optimizer, scheduler, 2)
    saved, at = (optimizer.state_dict(), scheduler.state_dict()), x.detach().clone()
    before = frozen(saved[0])
    advance(x, optimizer, scheduler, 3)
    assert frozen(saved[0]) == before  # although the rate is a tensor, filled in place

    y, resumed, schedule = build()
    y.data.copy_(at)
    resumed.load_state_dict(saved[0])
    schedule.load_state_dict(saved[1])
    advance(y, resumed, schedule, 3)
    assert frozen(y) == frozen(x)
    assert frozen(resumed.state_dict()) == frozen(optimizer.state_dict())
