"""Every defect that was reproduced in the authors' code, as a test that this code has none."""

import copy
import pickle

import pytest
import torch
from helpers import Raising, Twin, flat, frozen, quadratic
from torch import nn

import cocd
from cocd.parts.layout import Layout
from cocd.parts.memory import Memory
from cocd.schedules import Cyclic


def slope(*coefficients):
    """A parameter of ones, and a linear loss whose derivatives are the coefficients."""
    x = torch.ones(len(coefficients), dtype=torch.float64, requires_grad=True)
    return x, lambda: x @ torch.tensor(coefficients, dtype=torch.float64)


def test_lr_schedulers_take_effect():
    x, loss = slope(4.0)
    optimizer = cocd.CoCD([x], lr=0.5, compute_budget=1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.25)
    optimizer.step(loss)
    scheduler.step()
    optimizer.step(loss)
    torch.testing.assert_close(x.detach(), torch.tensor([1 - 2 - 0.5], dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "value"), [("lr", 0.25), ("eps", 2.0), ("decay", 0.5), ("weight_decay", 0.5)]
)
def test_what_is_written_to_a_param_group_takes_effect(name, value):
    options = dict(lr=0.1, eps=0.1, decay=1.0, weight_decay=0.0)

    def run(**changed):
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        optimizer = cocd.CoCD([x], compute_budget=1, **options)
        for _ in range(2):
            optimizer.step(lambda: (x**4).sum())
            optimizer.param_groups[0].update(changed)
        return flat([x])

    twin = Twin(lambda x: (x**4).sum(), [1.0] * 3, B=1, **options)
    twin.step()
    twin.options[name][:] = value
    twin.step()
    torch.testing.assert_close(run(**{name: value}), torch.from_numpy(twin.x), rtol=1e-12, atol=0)
    assert not torch.equal(run(**{name: value}), run())


def test_load_state_dict_takes_effect_and_brings_budget_and_difference():
    x, loss = slope(1.0, 2.0, 3.0)
    saved = cocd.CoCD(
        [x], lr=0.5, eps=0.25, decay=0.5, weight_decay=0.125, compute_budget=2, difference="forward"
    )
    saved.step(loss)
    y, loss_y = slope(1.0, 2.0, 3.0)
    loaded = cocd.CoCD([y], lr=0.1, compute_budget=1)
    loaded.load_state_dict(saved.state_dict())
    assert (loaded.compute_budget, loaded.difference, loaded.evaluations) == (2, "forward", 3)
    y.data.copy_(x.data)
    saved.step(loss)
    loaded.step(loss_y)
    assert torch.equal(x, y)


def test_state_with_another_memory_budget_is_refused():
    x, loss = slope(*range(9))
    saved = cocd.CoCD([x], lr=0.1, memory_budget=8, compute_budget=1)
    saved.step(loss)
    other = cocd.CoCD([x], lr=0.1, memory_budget=4, compute_budget=1)
    with pytest.raises(ValueError, match=r"memory_budget=8.*memory_budget=4"):
        other.load_state_dict(saved.state_dict())


def test_parameter_groups_and_named_parameters_work():
    a, b = (torch.ones(1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    groups = [
        {"params": [("a", a)], "lr": 0.5, "eps": 0.5},
        {"params": [("b", b)], "weight_decay": 0.5},
    ]
    optimizer = cocd.CoCD(groups, lr=0.25, compute_budget=2)
    optimizer.step(lambda: (a + 2 * b).sum())
    assert optimizer.param_groups[0]["param_names"] == ["a"]
    assert a.item() == pytest.approx(1 - 0.5, abs=1e-14)
    assert b.item() == pytest.approx(1 - 0.25 * 0.5 - 0.25 * 2, abs=1e-14)


def test_parameters_of_a_group_added_later_are_trained():
    x, _ = slope(1.0)
    y, _ = slope(1.0)
    optimizer = cocd.CoCD([x], lr=0.5, compute_budget=1)
    optimizer.add_param_group({"params": [y]})
    for _ in range(2):
        optimizer.step(lambda: (x + 2 * y).sum())
    assert flat([x, y]).tolist() == pytest.approx([0, 0], abs=1e-14)


def test_parameters_without_requires_grad_are_not_trained():
    x, y = torch.ones(2, requires_grad=True), torch.ones(2)
    before = frozen(y)
    optimizer = cocd.CoCD([x, y], lr=0.5, weight_decay=0.5, compute_budget=2)
    optimizer.step(lambda: (x + y).sum())
    assert frozen(y) == before
    assert optimizer.evaluations == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_perturbed_weights_come_back_bit_for_bit(dtype):
    x = (0.02 * torch.randn(40, generator=torch.Generator().manual_seed(0))).to(dtype)
    x.requires_grad_()
    before = frozen(x)
    optimizer = cocd.CoCD([x], lr=0.0, eps=1.0, compute_budget=40)
    optimizer.step(lambda: (x.float() ** 2).sum())
    assert frozen(x) == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_exception_inside_the_closure_leaves_no_weight_perturbed(error):
    def fail():
        raise error

    x, loss = slope(1.0, 2.0)
    before = frozen(x)
    optimizer = cocd.CoCD([x], lr=0.1, eps=1.0, compute_budget=2)
    with pytest.raises(error):
        optimizer.step(Raising(loss, 3, fail))
    assert frozen(x) == before
    assert optimizer.evaluations == 3


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_nan_loss_does_not_poison_the_buffer(decay):
    x, loss = slope(1.0, 2.0)
    optimizer = cocd.CoCD([x], lr=0.1, decay=decay, compute_budget=2)
    with pytest.warns(cocd.NonFiniteWarning):
        optimizer.step(Raising(loss, 2, lambda: float("nan")))
    assert optimizer.estimate().tolist() == pytest.approx([0.0, 2.0])
    optimizer.step(loss)
    assert optimizer.estimate().tolist() == pytest.approx([1.0, 2.0])


def test_compute_budget_above_the_number_of_coordinates_is_refused():
    with pytest.raises(ValueError, match="compute_budget=3"):
        cocd.CoCD([torch.ones(2, requires_grad=True)], lr=0.1, compute_budget=3)


def test_compute_budget_above_the_memory_budget_is_refused():
    with pytest.raises(ValueError, match=r"compute_budget=3.*memory_budget=2"):
        cocd.CoCD([torch.ones(4, requires_grad=True)], lr=0.1, compute_budget=3, memory_budget=2)


def test_batch_norm_statistics_are_updated_once_and_at_the_unperturbed_weights():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    x = torch.randn(8, 3)
    twin = copy.deepcopy(model)
    twin(x)
    cocd.CoCD(model.parameters(), lr=0.1, eps=1.0, compute_budget=5).step(
        lambda: (model(x) ** 3).sum()
    )
    assert frozen(dict(model.named_buffers())) == frozen(dict(twin.named_buffers()))


def test_dropout_masks_are_the_same_in_all_evaluations():
    x = torch.ones(50, requires_grad=True)
    masks = []

    def loss():
        masks.append(nn.functional.dropout(torch.ones(50)))
        return (masks[-1] * x).sum()

    cocd.CoCD([x], lr=0.1, compute_budget=4).step(loss)
    assert len(masks) == 9
    assert all(torch.equal(mask, masks[0]) for mask in masks)


def test_buffer_of_float64_parameters_is_float64():
    x, loss = slope(1 / 3)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=1)
    optimizer.step(loss)
    assert optimizer.estimate().dtype == torch.float64
    assert optimizer.estimate().item() == pytest.approx(1 / 3, abs=1e-14)


def test_state_dict_does_not_share_memory_with_the_live_buffer():
    x, loss = slope(1.0, 2.0)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=1)
    optimizer.step(loss)
    saved = optimizer.state_dict()
    before = frozen(saved)
    optimizer.step(loss)
    assert frozen(saved) == before


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_deepcopy_and_pickle_keep_the_state(clone):
    x, loss = slope(1.0, 2.0)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=1)
    optimizer.step(loss)
    twin = clone(optimizer)
    assert torch.equal(twin.estimate(), optimizer.estimate())
    assert twin.estimate().tolist() == pytest.approx([1.0, 0.0])
    assert frozen(twin.state_dict()) == frozen(optimizer.state_dict())


def test_weight_decay_reaches_every_coordinate():
    x, loss = slope(0.0, 0.0, 0.0, 0.0)
    cocd.CoCD([x], lr=0.5, weight_decay=0.5, memory_budget=1, compute_budget=1).step(loss)
    assert x.tolist() == [0.75] * 4


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.transpose(0, 3).contiguous().transpose(0, 3),
        lambda x: torch.stack([x, x], dim=-1)[..., 1],
    ],
    ids=["channels_last", "transposed", "strided"],
)
def test_non_contiguous_parameters_are_trained(layout):
    x = layout(torch.ones(2, 3, 2, 2, dtype=torch.float64)).requires_grad_()
    assert not x.is_contiguous()
    f = quadratic(24)
    twin = Twin(f, [1.0] * 24, B=5, lr=0.05, eps=0.1)
    optimizer = cocd.CoCD([x], lr=0.05, eps=0.1, compute_budget=5)
    for _ in range(6):
        optimizer.step(lambda: f(x.flatten()))
        twin.step()
    torch.testing.assert_close(flat([x]), torch.from_numpy(twin.x), rtol=0, atol=1e-11)


ACCELERATORS = ["cuda"] if torch.cuda.is_available() else []


@pytest.mark.parametrize("device", ["cpu", *ACCELERATORS])
def test_parameters_on_several_devices_are_trained(device):
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    y = torch.ones(2, dtype=torch.float64, device=device, requires_grad=True)
    optimizer = cocd.CoCD([x, y], lr=0.5, compute_budget=2)
    for _ in range(2):
        optimizer.step(lambda: x.sum() + 2 * y.sum().cpu())
    assert flat([x, y.cpu()]).tolist() == pytest.approx([0, 0, 0, 0], abs=1e-14)


def test_every_device_has_a_buffer_of_its_own():
    # The meta device stands for a second one, which not every machine has.
    tensors = [torch.zeros(2), torch.zeros(3, device="meta"), torch.zeros(1)]
    memory = Memory(Layout(tensors), None)
    assert [(b.device.type, len(b)) for b in memory.buffers] == [("cpu", 3), ("meta", 3)]
    segments = memory.block(Cyclic(6), 6)
    assert [(s.buffer, s.slot, len(s.part)) for s in segments] == [(0, 0, 2), (1, 0, 3), (0, 2, 1)]


def test_empty_tensors_are_accepted():
    x, loss = slope(1.0)
    optimizer = cocd.CoCD([torch.zeros(0, 3, requires_grad=True), x], lr=0.5, compute_budget=1)
    optimizer.step(loss)
    assert x.item() == pytest.approx(0.5)
    assert optimizer.estimate().shape == (1,)


def test_step_returns_the_loss_before_the_update():
    x, loss = slope(1.0, 2.0)
    returned = cocd.CoCD([x], lr=0.1, compute_budget=1).step(loss)
    assert isinstance(returned, torch.Tensor)
    assert returned.item() == 3.0


@pytest.mark.parametrize(
    ("difference", "evaluations"), [("central", 9), ("forward", 5), ("backward", 5)]
)
def test_one_sided_differences_cost_one_evaluation_a_coordinate(difference, evaluations):
    x, loss = slope(1.0, 2.0, 3.0, 4.0, 5.0)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=4, difference=difference)
    optimizer.step(loss)
    assert optimizer.evaluations == evaluations


@pytest.mark.parametrize("name", ["OneCycleLR", "CyclicLR"])
def test_schedulers_that_cycle_momentum_cannot_overwrite_gamma(name):
    x, loss = slope(1.0)
    optimizer = cocd.CoCD([x], lr=0.1, decay=0.7, compute_budget=1)
    scheduler = getattr(torch.optim.lr_scheduler, name)
    limits = (
        {"max_lr": 0.2, "total_steps": 5} if name == "OneCycleLR" else {"base_lr": 0.1, "max_lr": 1}
    )
    with pytest.raises(ValueError, match="momentum"):
        scheduler(optimizer, **limits, cycle_momentum=True)
    assert "momentum" not in optimizer.param_groups[0]
    cycling = scheduler(optimizer, **limits, cycle_momentum=False)
    optimizer.step(loss)
    cycling.step()
    assert optimizer.param_groups[0]["decay"] == 0.7
