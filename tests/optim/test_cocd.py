"""Property-based: over shapes, groups, dtypes and budgets CoCD is the reference."""

from itertools import islice, pairwise

import pytest
import torch
from helpers import flat, frozen, parameters, quadratic
from hypothesis import given, settings
from hypothesis import strategies as st

import cocd
from cocd import reference
from cocd.parts.layout import boxes
from cocd.schedules import Cyclic

TOLERANCE = {
    torch.float64: 1e-11, torch.float32: 1e-4, torch.float16: 3e-2, torch.bfloat16: 0.2
}  # fmt: skip
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
MEMORY = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() else t,
    "strided": lambda t: torch.stack([t, t + 1], dim=-1)[..., 0],
}


@st.composite
def problems(draw, dtypes):
    """Tensors in groups, with budgets 1 <= B <= m <= n."""
    dtype = draw(st.sampled_from(dtypes))
    shapes = draw(st.lists(SHAPES, min_size=1, max_size=4))
    if not any(torch.Size(shape).numel() for shape in shapes):
        shapes.append((2,))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    tensors = [
        draw(st.sampled_from(sorted(MEMORY)).map(MEMORY.get))(
            torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)
        ).requires_grad_()
        for shape in shapes
    ]
    cuts = draw(st.lists(st.integers(0, len(tensors)), max_size=2).map(sorted))
    edges = [0, *cuts, len(tensors)]
    groups = [{"params": tensors[a:b]} for a, b in pairwise(edges) if a < b]
    n = sum(t.numel() for t in tensors)
    m = draw(st.integers(1, n))
    B = draw(st.integers(1, m))
    return tensors, groups, n, m, B


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    problem=problems([torch.float64]),
    gamma=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    difference=st.sampled_from(["central", "forward", "backward"]),
    weight_decay=st.sampled_from([0.0, 0.1]),
)
def test_trajectory_state_and_count_equal_the_reference(problem, gamma, difference, weight_decay):
    tensors, groups, n, m, B = problem
    f, x0 = quadratic(n), flat(tensors).numpy()
    options = dict(lr=0.02, eps=0.25, weight_decay=weight_decay, difference=difference)
    expected = reference.cocd(
        lambda x: float(f(torch.from_numpy(x))), x0, B=B, m=m, gamma=gamma, **options
    )
    optimizer = cocd.CoCD(groups, compute_budget=B, memory_budget=m, decay=gamma, **options)
    for state in islice(expected, min(3 * n // B + 1, 25)):
        loss = optimizer.step(lambda: f(flat(tensors)))
        close = dict(rtol=0, atol=TOLERANCE[torch.float64])
        torch.testing.assert_close(flat(tensors), torch.from_numpy(state.x), **close)
        torch.testing.assert_close(optimizer.estimate(), torch.from_numpy(state.g), **close)
        assert float(loss) == pytest.approx(state.loss, abs=1e-10)
        assert optimizer.evaluations == state.evaluations


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    problem=problems([torch.float16, torch.bfloat16, torch.float32]),
    gamma=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_trajectory_in_lower_precision_stays_near_the_reference(problem, gamma):
    tensors, groups, n, m, B = problem
    f, x0 = quadratic(n), flat(tensors).numpy()
    tolerance = TOLERANCE[tensors[0].dtype]
    expected = reference.cocd(
        lambda x: float(f(torch.from_numpy(x))), x0, lr=0.02, eps=0.5, B=B, m=m, gamma=gamma
    )
    optimizer = cocd.CoCD(groups, lr=0.02, eps=0.5, compute_budget=B, memory_budget=m, decay=gamma)
    for state in islice(expected, 12):
        optimizer.step(lambda: f(flat(tensors)))
        expected_x = torch.from_numpy(state.x)
        torch.testing.assert_close(flat(tensors), expected_x, rtol=tolerance / 4, atol=tolerance)
        assert optimizer.evaluations == state.evaluations


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problem=problems(list(TOLERANCE)), eps=st.floats(1e-2, 1e3))
def test_lr_zero_is_bit_identical(problem, eps):
    tensors, groups, n, m, B = problem
    before = frozen(tensors)
    optimizer = cocd.CoCD(groups, lr=0.0, eps=eps, compute_budget=B, memory_budget=m)
    for _ in range(n // B + 1):
        optimizer.step(lambda: flat(tensors).sin().sum())
    assert frozen(tensors) == before


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problem=problems(list(TOLERANCE)), steps=st.integers(0, 6))
def test_a_loaded_state_continues_bit_for_bit(problem, steps):
    tensors, groups, n, m, B = problem
    options = dict(lr=0.02, eps=0.5, compute_budget=B, memory_budget=m, decay=0.9)
    f = quadratic(n)
    optimizer = cocd.CoCD(groups, **options)
    for _ in range(steps):
        optimizer.step(lambda: f(flat(tensors)))
    copies = [
        {"params": [p.detach().clone().requires_grad_() for p in group["params"]]}
        for group in groups
    ]
    resumed = cocd.CoCD(copies, **options)
    resumed.load_state_dict(optimizer.state_dict())
    for _ in range(4):
        optimizer.step(lambda: f(flat(tensors)))
        resumed.step(lambda: f(flat(parameters(resumed))))
    assert frozen(flat(parameters(resumed))) == frozen(flat(tensors))
    assert frozen(resumed.state_dict()) == frozen(optimizer.state_dict())


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_boxes_cover_a_stretch_once_and_in_order(data):
    shape = data.draw(st.lists(st.integers(1, 4), max_size=4).map(tuple))
    n = torch.Size(shape).numel()
    start = data.draw(st.integers(0, n - 1))
    stop = data.draw(st.integers(start + 1, n))
    whole = torch.arange(n).view(shape)
    covered = torch.cat([whole[box].flatten() for box in boxes(shape, start, stop)])
    assert covered.tolist() == list(range(start, stop))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=4),
    st.integers(0, 12),
)
def test_the_order_of_the_past_stays_known_when_coordinates_join(n, growth, last):
    """Refreshes told one by one against the schedule's arithmetic."""
    schedule, order, cursor = Cyclic(n), [], 0

    def refresh(count):
        nonlocal cursor
        for _ in range(count):
            order.append(cursor)
            cursor = (cursor + 1) % schedule.n
        schedule.advance(count)

    for count, more in growth:
        refresh(count)
        schedule.grow((schedule.n + more,))
    refresh(last)
    told = [i for a, b in schedule.refreshed(0, len(order)) for i in range(a, b)]
    assert told == order
    late = [i for a, b in schedule.refreshed(len(order) // 2, len(order)) for i in range(a, b)]
    assert late == order[len(order) // 2 :]
    assert schedule.next(1) == [(cursor, cursor + 1)]
