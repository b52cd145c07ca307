"""CoherentGradient: the estimate in p.grad, for any torch optimizer to step with."""

import copy

import pytest
import torch
from helpers import Raising, flat, frozen, parameters, quadratic, world
from torch import nn

import cocd


def leaves(*shapes, dtypes=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    dtypes = dtypes or [torch.float64] * len(shapes)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]


def loss_of(tensors):
    f = quadratic(sum(t.numel() for t in tensors))
    return lambda: f(flat(tensors))


def gradients(tensors):
    return flat([t.grad for t in tensors])


# --- p.grad is the estimate --------------------------------------------------------------


@pytest.mark.parametrize("memory_budget", [None, 7, 3])
@pytest.mark.parametrize("dtypes", [None, [torch.float64, torch.bfloat16, torch.float32]])
def test_p_grad_equals_the_estimate_after_every_call(dtypes, memory_budget):
    tensors = leaves((2, 2), (2,), (), dtypes=dtypes)
    gradient = cocd.CoherentGradient(
        tensors, eps=0.25, compute_budget=2, memory_budget=memory_budget, decay=0.5
    )
    loss = loss_of(tensors)
    for step in range(1, 9):
        assert float(gradient(loss)) == float(loss())
        assert [t.grad.dtype for t in tensors] == [t.dtype for t in tensors]
        assert [t.grad.shape for t in tensors] == [t.shape for t in tensors]
        # bfloat16 gradients are rounded on their way, the estimate keeps them in the widest dtype
        atol = 0 if dtypes is None else 0.05
        torch.testing.assert_close(gradients(tensors), gradient.estimate(), rtol=0, atol=atol)
        assert gradient.evaluations == 5 * step
    assert gradients(tensors).count_nonzero() == (memory_budget or 7)


def test_an_existing_gradient_tensor_is_reused():
    (x,) = leaves((3,))
    x.grad = held = torch.full((3,), 9.0, dtype=torch.float64)
    gradient = cocd.CoherentGradient([x], eps=0.1, compute_budget=1, memory_budget=2)
    gradient(loss_of([x]))
    assert x.grad is held
    assert held[1:].tolist() == [0.0, 0.0]


def test_channels_last_parameters():
    (x,) = leaves((2, 3, 2, 2))
    y = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    assert not y.is_contiguous()
    for tensor in (x, y):
        gradient = cocd.CoherentGradient([tensor], eps=0.1, compute_budget=24)
        gradient(loss_of([tensor]))
        assert torch.equal(flat([tensor.grad]), gradient.estimate())
    assert torch.equal(x.grad, y.grad)
    assert y.grad.is_contiguous(memory_format=torch.channels_last)


def test_frozen_parameters_get_no_gradient():
    x, y = leaves((2,), (2,))
    gradient = cocd.CoherentGradient([x, y], eps=0.1, compute_budget=4)
    y.requires_grad_(False)
    gradient(loss_of([x, y]))
    assert y.grad is None and x.grad is not None
    assert gradient.evaluations == 5


# --- writes from outside -----------------------------------------------------------------

WRITES = {
    "clip_grad_norm_": lambda x: nn.utils.clip_grad_norm_([x], 1e-3),
    "clip_grad_value_": lambda x: nn.utils.clip_grad_value_([x], 1e-3),
    "zero_grad": lambda x: torch.optim.SGD([x], lr=0.1).zero_grad(set_to_none=False),
    "in place": lambda x: x.grad[0].mul_(2),
}


@pytest.mark.parametrize("write", WRITES)
def test_writes_do_not_damage_the_memory_of_a_copy(write):
    (x,) = leaves((4,))
    gradient = cocd.CoherentGradient([x], eps=0.1, compute_budget=1)
    twin = copy.deepcopy(gradient)
    for _ in range(6):
        gradient(loss_of([x]))
        WRITES[write](x)
        twin(loss_of(parameters(twin)))
        assert torch.equal(gradient.estimate(), twin.estimate())


def test_the_memory_survives_failed_calls_growth_and_copies():
    x, y = leaves((4,), (2,))
    y.requires_grad_(False)
    gradient = cocd.CoherentGradient([x, y], eps=0.1, compute_budget=2)
    for _ in range(3):
        gradient(loss_of([x, y]))
    y.requires_grad_(True)  # joins during a call that fails
    with pytest.raises(ValueError, match="None"):
        gradient(Raising(loss_of([x, y]), 2, lambda: None))
    gradient(loss_of([x, y]))
    assert torch.equal(gradients([x, y]), gradient.estimate())
    gradient.add_param_group({"params": (more := leaves((2,)))})
    twin = copy.deepcopy(gradient)
    for estimator in (gradient, twin):
        tensors = parameters(estimator)
        estimator(loss_of(tensors))
        assert torch.equal(gradients(tensors), estimator.estimate())
    assert more[0].grad is not None


def test_CoherentGradient_is_no_optimizer_and_has_no_step():
    gradient = cocd.CoherentGradient(leaves((3,)))
    assert not isinstance(gradient, torch.optim.Optimizer) and not hasattr(gradient, "step")
    assert repr(gradient).startswith("CoherentGradient (")


# --- in the hands of other optimizers ----------------------------------------------------


@pytest.mark.parametrize("memory_budget", [None, 3])
@pytest.mark.parametrize("decay", [0.0, 0.9, 1.0])
def test_sgd_on_the_estimate_is_cocd(decay, memory_budget):
    ours, theirs = leaves((2, 2), (3,)), leaves((2, 2), (3,))
    options = dict(eps=0.1, compute_budget=2, memory_budget=memory_budget, decay=decay)
    optimizer = cocd.CoCD(ours, lr=0.05, **options)
    gradient = cocd.CoherentGradient(theirs, **options)
    sgd = torch.optim.SGD(theirs, lr=0.05)
    loss, twin_loss = loss_of(ours), loss_of(theirs)
    for _ in range(15):
        assert float(optimizer.step(loss)) == float(gradient(twin_loss))
        sgd.step()
        assert frozen(ours) == frozen(theirs)
        assert torch.equal(optimizer.estimate(), gradient.estimate())
    assert optimizer.evaluations == gradient.evaluations == 75


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.5),
        lambda p: torch.optim.SGD(p, lr=0.05, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.05),
        lambda p: torch.optim.RMSprop(p, lr=0.02),
    ],
    ids=["momentum", "foreach", "AdamW", "RMSprop"],
)
def test_any_torch_optimizer_descends_on_the_estimate(make):
    x = torch.full((4,), 2.0, dtype=torch.float64, requires_grad=True)
    gradient = cocd.CoherentGradient([x], eps=0.1, compute_budget=2)
    optimizer = make([x])
    for _ in range(300):
        gradient(lambda: ((x - 1) ** 2).sum())
        optimizer.step()
    assert (x - 1).abs().max() < 0.05


def test_estimator_resumes_bit_for_bit():
    tensors = leaves((3,), (2,))
    gradient = cocd.CoherentGradient(tensors, eps=0.1, compute_budget=2, memory_budget=4)
    gradient(loss_of(tensors))
    resumed = cocd.CoherentGradient(leaves((3,), (2,)), eps=0.5, compute_budget=1, memory_budget=4)
    resumed.load_state_dict(gradient.state_dict())
    for _ in range(4):
        gradient(loss_of(tensors))
        resumed(loss_of(parameters(resumed)))
    assert world(resumed) == world(gradient)
    assert frozen(gradients(parameters(resumed))) == frozen(gradients(tensors))
