import copy

import pytest
import torch
from helpers import frozen

import cocd
from cocd.schedules import Cyclic, Masked, Prioritised, Random, Spread

A = torch.arange(1.0, 13.0)


def problem(schedule, **options):
    x = torch.zeros(12, requires_grad=True)
    settings = {"lr": 0.0, "eps": 0.1, "compute_budget": 2, "schedule": schedule, **options}
    return x, cocd.CoCD([x], **settings)


def coordinates(blocks):
    return [i for start, stop in blocks for i in range(start, stop)]


def probed(optimizer, x, steps):
    found = []
    for _ in range(steps):
        B = optimizer.compute_budget
        before = optimizer.schedule.count
        optimizer.step(lambda: A @ x)
        found.append(coordinates(optimizer.schedule.refreshed(before, before + B)))
    return found


@pytest.mark.parametrize("inner", [Cyclic(), Spread(), Random(seed=1)])
def test_a_masked_order_visits_its_coordinates_and_no_other(inner):
    x, optimizer = problem(Masked(inner, [0.5], seed=3), compute_budget=3, decay=1.0)
    for _ in range(8):
        optimizer.step(lambda: A @ x)
    known = optimizer.estimate().nonzero().flatten().tolist()
    assert optimizer.schedule.size == 6
    assert len(known) == 6 if not isinstance(inner, Random) else len(known) <= 6
    assert torch.allclose(optimizer.estimate()[known], A[known], atol=1e-3)


def test_ratios_hold_in_each_tensor_and_may_be_those_of_zo_grasp():
    sizes = (10, 4, 6)
    mask = Masked(Cyclic(), {"a": 0.5, "b": 1.0, "c": 0.0}, seed=0)
    mask.grow(sizes)
    visited = coordinates(mask.next(mask.size))
    assert sum(i < 10 for i in visited) == 5
    assert not any(10 <= i < 14 for i in visited)
    assert visited[-6:] == list(range(14, 20))


def test_the_mask_is_redrawn_after_redraw_sweeps():
    mask = Masked(Cyclic(), [0.5], redraw=2, seed=0)
    mask.grow((40,))
    sweeps = [coordinates(mask.refreshed(20 * k, 20 * (k + 1))) for k in range(6)]
    assert sweeps[0] == sweeps[1] != sweeps[2] == sweeps[3] != sweeps[4] == sweeps[5]


@pytest.mark.parametrize("forget", [False, True])
def test_a_redraw_keeps_or_forgets_the_slopes_of_the_last_mask(forget):
    x, optimizer = problem(Masked(Cyclic(), [0.5], redraw=1, forget=forget, seed=0))
    first = {i for block in probed(optimizer, x, 3) for i in block}
    second = {i for block in probed(optimizer, x, 1) for i in block}
    assert second != first
    assert set(optimizer.estimate().nonzero().flatten().tolist()) == (
        second if forget else first | second
    )


def test_a_mask_by_magnitude_holds_the_largest_weights_of_each_tensor():
    a = torch.tensor([0.1, -3.0, 2.0, 0.2], requires_grad=True)
    b = torch.tensor([9.0, 8.0], requires_grad=True)
    mask = Masked(Cyclic(), [0.5, 0.5], by="magnitude", redraw=1)
    optimizer = cocd.CoCD([a, b], lr=0.0, eps=0.1, compute_budget=3, schedule=mask)
    optimizer.step(lambda: a.sum() + b.sum())
    assert optimizer.estimate().nonzero().flatten().tolist() == [1, 2, 4]
    b.data[1] = -10.0
    optimizer.step(lambda: a.sum() + b.sum())
    assert optimizer.estimate().nonzero().flatten().tolist() == [1, 2, 4, 5]


def test_a_prioritised_order_visits_everything_once_in_each_cycle():
    x, optimizer = problem(Prioritised(share=0.25, sweeps=2), compute_budget=3)
    cycle = probed(optimizer, x, 6)
    assert cycle == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [9, 10, 11], [9, 10, 11]]
    assert probed(optimizer, x, 1) == [[0, 1, 2]]


def test_a_prioritised_order_by_magnitude_takes_the_largest_weights():
    x, optimizer = problem(Prioritised(share=0.25, sweeps=1, by="magnitude"), compute_budget=3)
    x.data[[1, 4, 7]] = torch.tensor([5.0, -6.0, 7.0])
    assert probed(optimizer, x, 5)[-1] == [1, 4, 7]


SELECTIONS = {
    "masked": lambda: Masked(Spread(), [0.5], redraw=1, seed=2),
    "masked random": lambda: Masked(Random(seed=5), [0.5], redraw=2, seed=2),
    "masked by magnitude": lambda: Masked(Cyclic(), [0.5], by="magnitude", redraw=1),
    "prioritised": lambda: Prioritised(share=0.25, sweeps=2),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_run_resumes_to_the_bit(name):
    def build():
        torch.manual_seed(0)
        x = torch.randn(12).requires_grad_()
        options = {"lr": 0.01, "eps": 0.1, "compute_budget": 2, "decay": 0.9}
        return x, cocd.CoCD([x], schedule=SELECTIONS[name](), **options)

    x, optimizer = build()
    y, other = build()
    for _ in range(7):
        optimizer.step(lambda: (A * x**2).sum())
    y.data.copy_(x)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for _ in range(9):
        optimizer.step(lambda: (A * x**2).sum())
        other.step(lambda: (A * y**2).sum())
    assert frozen([y, other.state_dict()]) == frozen([x, optimizer.state_dict()])


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_step_that_fails_leaves_the_order_alone(name):
    x, optimizer = problem(SELECTIONS[name]())
    probed(optimizer, x, 5)
    before = frozen([optimizer.schedule.state_dict(), optimizer.estimate()])
    with pytest.raises(RuntimeError, match="no"):
        optimizer.step(lambda: (_ for _ in ()).throw(RuntimeError("no")))
    assert frozen([optimizer.schedule.state_dict(), optimizer.estimate()]) == before


@pytest.mark.parametrize("name", ["masked", "prioritised"])
def test_parameters_may_join(name):
    x, optimizer = problem(SELECTIONS[name]())
    probed(optimizer, x, 4)
    late = torch.zeros(3, requires_grad=True)
    optimizer.add_param_group({"params": [late]})
    for _ in range(30):
        optimizer.step(lambda: A @ x + late.sum())
    assert torch.allclose(optimizer.estimate()[-3:], torch.ones(3), atol=1e-3)


@pytest.mark.parametrize("memory_budget", [2, 4])
def test_a_random_mask_works_with_a_ring_of_memory(memory_budget):
    mask = Masked(Cyclic(), [0.5], redraw=1, seed=0)
    x, optimizer = problem(mask, memory_budget=memory_budget)
    for _ in range(7):
        optimizer.step(lambda: A @ x)
    count = optimizer.schedule.count
    last = coordinates(optimizer.schedule.refreshed(count - memory_budget, count))
    expected = torch.zeros(12)
    expected[last] = A[last]
    assert torch.allclose(optimizer.estimate(), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Masked(Cyclic(), [1.5]), "ratios must be numbers from 0 to 1, got 1.5"),
        (lambda: Masked(Cyclic(), 0.5), "ratios must hold a number for each tensor, got 0.5"),
        (lambda: Masked(Cyclic(), [0.5], by="luck"), "by must be"),
        (lambda: Masked(Cyclic(), [0.5], redraw=0), "redraw must be"),
        (lambda: Prioritised(share=0.0, sweeps=1), "share must be above 0"),
        (lambda: Prioritised(share=0.5, sweeps=0), "sweeps must be"),
        (lambda: problem(Masked(Cyclic(), [1.0])), "leave no coordinate"),
        (lambda: problem(Masked(Cyclic(), [0.9])), "compute_budget=2"),
        (lambda: problem(Prioritised(share=0.5, sweeps=1), memory_budget=4), "memory"),
    ],
)
def test_what_cannot_work_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
