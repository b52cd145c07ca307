"""Any order with any memory: estimates lie at their own coordinates."""

import copy
import re
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import frozen

import cocd
from cocd.schedules import Cyclic, Random, Schedule, Spread

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def example():
    """The schedule that CONTRIBUTING.md defines."""
    section = CONTRIBUTING.read_text(encoding="utf-8").split("## Add a schedule")[1]
    names = {}
    exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], names)
    return names["Backwards"]


class Often(Schedule):
    """Every other refresh is of coordinate 0."""

    def order(self, start, stop, n):
        for k in range(start, stop):
            i = 0 if k % 2 else (k // 2) % n
            yield i, i + 1


class EvenAlone(Schedule):
    """A subset of the coordinates."""

    @property
    def size(self):
        return (self.n + 1) // 2

    def order(self, start, stop, n):
        for k in range(start, stop):
            i = 2 * (k % ((n + 1) // 2))
            yield i, i + 1


Backwards = example()
ORDERS = {"Cyclic": Cyclic, "Spread": Spread, "Backwards": Backwards, "repeating": Often}


def coordinates(schedule, start, stop):
    return [i for a, b in schedule.refreshed(start, stop) for i in range(a, b)]


def f(x):
    """No two coordinates alike, and slopes that change on the way."""
    scale = torch.arange(1.0, len(x) + 1, dtype=x.dtype)
    return (scale * x).sum() + (scale * x**2).sum() / 2


def expected_run(order, n, m, B, gamma, lr, eps, steps):
    """The paper's FIFO of m pairs, the coordinates in any order; the estimate after each step."""
    x, memory = np.zeros(n), deque(maxlen=m)
    loss = lambda x: float(f(torch.from_numpy(x)))  # noqa: E731
    for step in range(steps):
        block = coordinates(order, step * B, (step + 1) * B)
        fresh = []
        for i in block:
            e = np.zeros(n)
            e[i] = eps
            fresh.append((i, (loss(x + e) - loss(x - e)) / (2 * eps)))
        memory = deque([(i, gamma * g) for i, g in memory] + fresh, maxlen=m)
        g = np.zeros(n)
        for i, g_i in memory:  # of a coordinate that comes twice the latest counts
            g[i] = g_i
        x = x - lr * g
        yield x, g


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_equals_the_fifo_for_every_budget(name):
    for n in range(1, 7):
        for m in range(1, n + 1):
            for B in range(1, m + 1):
                cut = n // 2
                parts = [torch.zeros(k, dtype=torch.float64) for k in (cut, n - cut)]
                parts = [p.requires_grad_() for p in parts]
                options = {"lr": 0.01, "eps": 0.1, "decay": 0.9}
                optimizer = cocd.CoCD(
                    parts, compute_budget=B, memory_budget=m, schedule=ORDERS[name](), **options
                )
                steps = 3 * n // B + 3
                for x, g in expected_run(ORDERS[name](n), n, m, B, 0.9, 0.01, 0.1, steps):
                    optimizer.step(lambda parts=parts: f(torch.cat(parts)))
                    if m < n or name != "repeating":  # all n have a place of their own
                        np.testing.assert_allclose(optimizer.estimate(), g, rtol=0, atol=1e-10)
                        np.testing.assert_allclose(torch.cat(parts).detach(), x, atol=1e-12)


def test_the_example_in_contributing_remembers_at_the_right_coordinates():
    x = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    slopes = torch.arange(1.0, 7.0, dtype=torch.float64)
    optimizer = cocd.CoCD([x], 0.1, compute_budget=2, memory_budget=3, schedule=Backwards())
    optimizer.step(lambda: slopes @ x)
    assert optimizer.estimate().round(decimals=9).tolist() == [0, 0, 0, 0, 5, 6]
    optimizer.step(lambda: slopes @ x)
    assert optimizer.estimate().round(decimals=9).tolist() == [0, 0, 3, 4, 5, 0]


@pytest.mark.parametrize("name", ORDERS)
def test_estimates_stay_at_their_coordinates_when_parameters_join(name):
    """With a ring, over two dtypes: each estimate is the slope of its own coordinate."""
    x, y = torch.zeros(5, requires_grad=True), torch.zeros(4, requires_grad=True)
    z = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    a, b, c = torch.arange(1.0, 6.0), torch.arange(6.0, 10.0), torch.arange(10.0, 13.0).double()
    loss = lambda: a @ x + b @ y + (c @ z).float()  # noqa: E731
    optimizer = cocd.CoCD([x, z], 1e-3, compute_budget=2, memory_budget=5, schedule=ORDERS[name]())
    truth = torch.cat([a.double(), c])
    for step in range(9):
        if step == 4:
            optimizer.add_param_group({"params": [y]})
            truth = torch.cat([a.double(), c, b.double()])
        optimizer.step(loss)
        found = optimizer.estimate()
        known = found != 0
        assert 1 <= int(known.sum()) <= 5
        torch.testing.assert_close(found[known], truth[known], rtol=1e-3, atol=0)


@pytest.mark.parametrize("name", [*ORDERS, "Random"])
def test_a_run_resumes_to_the_bit_with_any_order(name):
    def build():
        torch.manual_seed(0)
        model = torch.nn.Linear(5, 3)
        schedule = {**ORDERS, "Random": Random}[name]()
        memory = None if name == "Random" else 7
        return model, cocd.CoCD(
            model.parameters(), 0.1, compute_budget=4, memory_budget=memory, schedule=schedule
        )

    def run(model, optimizer, steps):
        for _ in range(steps):
            optimizer.step(lambda: model(torch.ones(2, 5)).square().mean())

    model, optimizer = build()
    run(model, optimizer, 5)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    run(model, optimizer, 6)
    again, resumed = build()
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    run(again, resumed, 6)
    assert frozen(again.state_dict()) == frozen(model.state_dict())
    assert frozen(resumed.state_dict()) == frozen(optimizer.state_dict())


def test_a_state_of_another_order_is_refused():
    x = torch.zeros(4, requires_grad=True)
    saved = cocd.CoCD([x], 0.1, compute_budget=1).state_dict()
    with pytest.raises(ValueError, match="schedule Cyclic, this optimizer has Spread"):
        cocd.CoCD([x], 0.1, compute_budget=1, schedule=Spread()).load_state_dict(saved)


def test_the_schedule_that_is_passed_is_left_alone_and_serves_several_optimizers():
    schedule = Cyclic()
    for n in (4, 6):
        x = torch.ones(n, requires_grad=True)
        optimizer = cocd.CoCD([x], 0.1, compute_budget=2, schedule=schedule)
        optimizer.step(lambda x=x: x.sum())
        assert (optimizer.schedule.n, optimizer.schedule.count) == (n, 2)
    assert (schedule.n, schedule.count) == (0, 0)


def test_an_order_on_a_subset_leaves_the_others_alone():
    x = torch.ones(7, dtype=torch.float64, requires_grad=True)
    optimizer = cocd.CoCD([x], 0.3, compute_budget=2, schedule=EvenAlone())
    for _ in range(60):
        optimizer.step(lambda: (x**2).sum())
    assert x.abs().max() == 1 and (x[1::2] == 1).all() and (x[::2].abs() < 1e-2).all()
    with pytest.raises(ValueError, match="compute_budget=5 is more than the 4 coordinates"):
        cocd.CoCD([x], 0.3, compute_budget=5, schedule=EvenAlone())


@pytest.mark.parametrize(
    "make",
    [
        lambda p, s: cocd.CoCD(p, 0.1, compute_budget=2, schedule=s),
        lambda p, s: cocd.AutoCoCD(p, compute_budget=2, schedule=s),
        lambda p, s: cocd.CoherentGradient(p, eps=0.1, compute_budget=2, schedule=s),
        lambda p, s: cocd.baselines.BCCD(p, 0.1, compute_budget=2, schedule=s),
    ],
    ids=["CoCD", "AutoCoCD", "CoherentGradient", "BCCD"],
)
def test_every_coordinate_method_takes_a_schedule(make):
    x = torch.zeros(6, requires_grad=True)
    optimizer = make([x], Backwards())
    blocks = [coordinates(optimizer.schedule, k, k + 2) for k in (0, 2)]
    assert blocks == [[5, 4], [3, 2]]


def test_an_order_that_does_not_know_its_past_is_refused_with_a_small_memory():
    x = torch.zeros(6, requires_grad=True)
    with pytest.raises(ValueError, match="Random cannot; use memory_budget=None"):
        cocd.CoCD([x], 0.1, compute_budget=2, memory_budget=3, schedule=Random())
    with pytest.raises(ValueError, match="schedule must be a cocd"):
        cocd.CoCD([x], 0.1, compute_budget=2, schedule="cyclic")


def test_a_subclass_with_another_order_does_not_inherit_the_promise_not_to_repeat():
    class Stuck(Cyclic):
        def order(self, start, stop, n):
            return [(0, 1)] * (stop - start)

    assert Stuck.repeats and not Cyclic.repeats and not Spread.repeats
    assert not type("Same", (Cyclic,), {}).repeats


@pytest.mark.parametrize("by", ["random", "magnitude"])
@pytest.mark.parametrize("budget", [None, 4])
def test_auto_cocd_on_a_mask_moves_the_coordinates_of_the_mask_alone(by, budget):
    x = torch.linspace(1, 2, 40, dtype=torch.float64).requires_grad_()
    before = x.detach().clone()
    schedule = cocd.schedules.Masked(Spread(), ratios=[0.75], by=by)
    optimizer = cocd.AutoCoCD([x], compute_budget=budget, schedule=schedule)
    for _ in range(60):
        optimizer.step(lambda: (x**2).sum())
    moved = x.detach() != before
    assert int(moved.sum()) == optimizer.schedule.size == 10
    assert x.detach()[moved].abs().max() < 0.1
    if by == "magnitude":
        assert moved[-10:].all()
