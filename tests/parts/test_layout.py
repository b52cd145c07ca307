"""Virtual flattening: whatever the shapes, strides and dtypes, one flat vector in place."""

import numpy as np
import pytest
import torch
from helpers import Twin, flat, frozen, quadratic
from torch import nn
from torch.profiler import ProfilerActivity, profile

import cocd

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def filled(*shape: int, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def gap(tensor):
    """A view that is cut from a larger tensor, with strides in every dimension."""
    larger = torch.full([2 * size for size in tensor.shape], 77.0, dtype=tensor.dtype)
    view = larger[tuple(slice(1, None, 2) for _ in tensor.shape)]
    view.copy_(tensor)
    return view


LAYOUTS = {
    "plain": lambda: [filled(5)],
    "0-d": lambda: [filled(), filled(), filled(3)],
    "empty": lambda: [filled(0), filled(3), filled(2, 0, 4), filled(2)],
    "channels_last": lambda: [filled(2, 3, 2, 1).contiguous(memory_format=torch.channels_last)],
    "channels_last_3d": lambda: [
        filled(1, 2, 2, 1, 3).contiguous(memory_format=torch.channels_last_3d)
    ],
    "transposed": lambda: [filled(3, 4).t(), filled(2)],
    "permuted": lambda: [filled(2, 3, 2).permute(2, 0, 1)],
    "strided": lambda: [gap(filled(7)), gap(filled(2, 3))],
    "interleaved": lambda: (lambda base: [base[::2], base[1::2]])(filled(10)),
    "flipped size-1": lambda: [filled(1, 4, 1).transpose(0, 1), filled(1, 1)],
    "rows of one matrix": lambda: list(filled(3, 3).unbind(0)),
    "columns of one matrix": lambda: list(filled(3, 3).unbind(1)),
}


@pytest.mark.parametrize("difference", ["central", "forward"])
@pytest.mark.parametrize("budgets", [(1, None), (2, None), (2, 3), (3, 4)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_gives_the_trajectory_of_the_flat_vector(layout, budgets, difference):
    B, m = budgets
    tensors = [t.requires_grad_() for t in LAYOUTS[layout]()]
    start = flat(tensors)
    options = dict(lr=0.03, eps=0.1, decay=0.8, weight_decay=0.1)
    twin = Twin(quadratic(len(start)), start.numpy(), B=B, m=m, difference=difference, **options)
    optimizer = cocd.CoCD(
        tensors, compute_budget=B, memory_budget=m, difference=difference, **options
    )
    for _ in range(3 * len(start) // B + 1):
        optimizer.step(lambda: twin.f(flat(tensors)))
        twin.step()
        torch.testing.assert_close(flat(tensors), torch.from_numpy(twin.x), rtol=0, atol=1e-11)
        estimate = torch.from_numpy(twin.estimate())
        torch.testing.assert_close(optimizer.estimate(), estimate, rtol=0, atol=1e-11)
    assert optimizer.evaluations == twin.evaluations


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strided_parameters_leave_what_lies_between_alone(dtype):
    larger = torch.full((4, 6), 2.0, dtype=dtype)
    x = larger[::2, 1::2].requires_grad_()
    optimizer = cocd.CoCD([x], lr=0.1, eps=0.5, compute_budget=4, weight_decay=0.5)
    for _ in range(5):
        optimizer.step(lambda: x.double().sin().sum())
    inside = torch.zeros(4, 6, dtype=torch.bool)
    inside[::2, 1::2] = True
    assert (larger[~inside] == 2).all() and (larger[inside] != 2).all()


@pytest.mark.parametrize("m", [None, 12, 7, 3])
@pytest.mark.parametrize("B", [1, 3])
def test_several_dtypes_together_follow_one_order(B, m):
    """Each weight in its own precision; the FIFO of m is common to all of them."""
    kinds = [torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.float32]
    shapes = [(3,), (2,), (2, 2), (), (2,)]
    tensors = [
        filled(*shape, dtype=dtype, seed=i).requires_grad_()
        for i, (shape, dtype) in enumerate(zip(shapes, kinds, strict=True))
    ]
    options = dict(lr=0.03, eps=0.5, decay=0.8)
    dtypes = [t.dtype for t in tensors for _ in range(t.numel())]
    twin = Twin(quadratic(12), flat(tensors).numpy(), B=B, m=m, dtypes=dtypes, **options)
    optimizer = cocd.CoCD(tensors, compute_budget=B, memory_budget=m, **options)
    for _ in range(3 * 12 // B):
        loss = float(optimizer.step(lambda: twin.f(flat(tensors))))
        assert loss == pytest.approx(twin.step(), abs=1e-12)
        estimate = torch.from_numpy(twin.estimate())
        torch.testing.assert_close(optimizer.estimate(), estimate, rtol=1e-5, atol=1e-6)
        # The next step from the same weights: one that is rounded twice may differ in a last bit.
        expected, twin.x = torch.from_numpy(twin.x), flat(tensors).numpy()
        torch.testing.assert_close(flat(tensors), expected, rtol=2**-7, atol=1e-6)
    assert optimizer.estimate().dtype == torch.float64


def test_buffers_have_at_least_single_precision():
    for dtype, kept in zip(DTYPES, [torch.float32] * 3 + [torch.float64], strict=True):
        optimizer = cocd.CoCD([filled(2, dtype=dtype).requires_grad_()], lr=0.1, compute_budget=1)
        (buffer,) = optimizer.state_dict()["state"]["cocd"]["memory"]["buffers"]
        assert (buffer.dtype, buffer.shape) == (kept, (2,))
        assert optimizer.estimate().dtype == dtype


# --- what counts once, and what is refused -----------------------------------------------


def test_tied_and_repeated_parameters_count_once():
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    optimizer = cocd.CoCD([x, x, x], lr=0.1, compute_budget=2)
    optimizer.step(lambda: (x**2).sum())
    assert optimizer.estimate().shape == (2,)
    named = cocd.CoCD([("a", x), ("b", x)], lr=0.1, compute_budget=1)
    assert named.param_groups[0]["param_names"] == ["a"]

    embedding, head = nn.Embedding(3, 2), nn.Linear(2, 3, bias=False)
    head.weight = embedding.weight
    tied = cocd.CoCD([*embedding.parameters(), *head.parameters()], lr=0.1, compute_budget=6)
    before = embedding.weight.detach().clone()
    tied.step(lambda: head(embedding(torch.tensor([0, 1, 2]))).sum())
    assert tied.evaluations == 13
    assert (head.weight != before).all() and head.weight is embedding.weight


def test_a_parameter_in_two_groups_is_refused_by_torch():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="more than one parameter group"):
        cocd.CoCD([{"params": [x]}, {"params": [x]}], lr=0.1, compute_budget=1)


BASE = torch.zeros(12)
SHARED = np.zeros(12, dtype=np.float32)
OVERLAPS = {
    "the same memory": [BASE.detach(), BASE.detach()],
    "a part": [BASE.detach(), BASE[3:5]],
    "across": [BASE[:7], BASE[6:]],
    "strided": [BASE[::2], BASE[::3]],
    "another dtype": [BASE[:4], BASE.view(torch.float16)[7:9]],
    "expanded": [torch.zeros(1).expand(4)],
    "expanded rows": [torch.zeros(3).expand(2, 3)],
    "overlapping windows": [torch.zeros(6).unfold(0, 3, 1)],
    "one NumPy array": [torch.from_numpy(SHARED), torch.from_numpy(SHARED[4:6])],
    "inside a gap": [torch.from_numpy(SHARED[::3]), torch.from_numpy(SHARED[3:4])],
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_overlapping_parameters_are_refused(name):
    tensors = [t.detach().requires_grad_() for t in OVERLAPS[name]]
    with pytest.raises(ValueError, match=r"params: .* shares memory"):
        cocd.CoCD(tensors, lr=0.1, compute_budget=1)
    with pytest.raises(ValueError, match=r"params: .* shares memory"):
        cocd.CoCD([{"params": [t]} for t in tensors], lr=0.1, compute_budget=1)


def test_neighbours_in_one_storage_are_accepted():
    whole = torch.arange(12.0)
    parts = [whole[:3], whole[3:4], whole[4:12:2], whole[5:12:2], torch.from_numpy(SHARED[2:4])]
    optimizer = cocd.CoCD([p.requires_grad_() for p in parts], lr=0.1, compute_budget=14)
    assert optimizer.estimate().shape == (14,)


# --- nothing of size n -------------------------------------------------------------------


def largest_allocation(function):
    """In bytes, as torch's allocator tells it: casts inside an operation count too."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    events = profiler.profiler.kineto_results.events()
    return max(event.nbytes() for event in events if event.name() == "[memory]")


def test_the_measure_sees_a_cast_inside_an_operation():
    x, y = torch.ones(100_000, dtype=torch.bfloat16), torch.ones(100_000)
    assert largest_allocation(lambda: x.add_(y)) == 400_000
    assert largest_allocation(lambda: [y.add_(y), torch.ones(10)]) < 1000


@pytest.mark.parametrize("memory_budget", [None, 500_000, 64])
@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x,
        lambda x: x.view(1000, 1000).t(),
        lambda x: x.view(100, 10, 40, 25).contiguous(memory_format=torch.channels_last),
        lambda x: x.double(),
        lambda x: x.bfloat16(),
    ],
    ids=["plain", "transposed", "channels_last", "float64", "bfloat16"],
)
def test_a_step_allocates_nothing_of_size_n(layout, memory_budget):
    x = layout(torch.ones(1_000_000)).requires_grad_()
    optimizer = cocd.CoCD(
        [x], lr=0.1, decay=0.9, weight_decay=0.1, compute_budget=4, memory_budget=memory_budget
    )
    optimizer.step(lambda: 1.0)
    before = frozen(x)
    # The vector has at least 2,000,000 bytes; bfloat16 weights are updated piece by piece.
    assert largest_allocation(lambda: optimizer.step(lambda: 1.0)) <= 300_000
    assert frozen(x) != before  # by weight decay: the step did its work
