"""What users of torch expect of an optimizer: groups, names, growth, freezing, hooks."""

import pytest
import torch
from helpers import Twin, flat, frozen, quadratic, world
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import cocd


def leaf(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def run_beside(optimizer, twin, tensors, steps):
    """Steps of both; the same losses, weights, memory and costs are asserted at each."""
    for _ in range(steps):
        loss = optimizer.step(lambda: twin.f(torch.cat([t.flatten() for t in tensors])))
        assert float(loss) == pytest.approx(twin.step(), abs=1e-10)
        torch.testing.assert_close(flat(tensors), torch.from_numpy(twin.x), rtol=0, atol=1e-10)
        estimate = torch.from_numpy(twin.estimate())
        torch.testing.assert_close(optimizer.estimate(), estimate, rtol=0, atol=1e-10)
        assert optimizer.evaluations == twin.evaluations


# --- groups ------------------------------------------------------------------------------


@pytest.mark.parametrize("memory_budget", [None, 3])
@pytest.mark.parametrize("difference", ["central", "forward", "backward"])
def test_groups_have_their_own_lr_eps_decay_and_weight_decay(difference, memory_budget):
    a, b, c = leaf(1.0, -1.0), leaf(0.5), leaf(2.0, 0.0, 1.0)
    groups = [
        {"params": [a], "lr": 0.02, "eps": 0.3, "decay": 0.5, "weight_decay": 0.1},
        {"params": [b], "decay": 0.9},
        {"params": [c], "lr": 0.05, "eps": 0.01, "decay": 0.0},
    ]
    optimizer = cocd.CoCD(
        groups, lr=0.04, compute_budget=2, memory_budget=memory_budget, difference=difference
    )
    twin = Twin(
        quadratic(6),
        flat([a, b, c]).numpy(),
        B=2,
        m=memory_budget,
        difference=difference,
        lr=[0.02] * 2 + [0.04] + [0.05] * 3,
        eps=[0.3] * 2 + [0.1] + [0.01] * 3,
        decay=[0.5] * 2 + [0.9] + [0.0] * 3,
        weight_decay=[0.1] * 2 + [0.0] * 4,
    )
    run_beside(optimizer, twin, [a, b, c], 12)


def test_named_parameters_keep_their_names_and_errors_use_them():
    model = nn.Linear(2, 1)
    optimizer = cocd.CoCD(model.named_parameters(), lr=0.1, compute_budget=1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="my_expanded"):
        cocd.CoCD(
            [("my_expanded", torch.ones(1).expand(3).requires_grad_())], lr=0.1, compute_budget=1
        )


def test_options_of_the_whole_optimizer_are_refused_in_a_group():
    for name, value in [("compute_budget", 2), ("memory_budget", 2), ("difference", "forward")]:
        with pytest.raises(ValueError, match=name):
            cocd.CoCD([{"params": [leaf(1.0, 2.0)], name: value}], lr=0.1, compute_budget=1)


# --- parameters that join later ----------------------------------------------------------


@pytest.mark.parametrize("steps", range(9))
@pytest.mark.parametrize("memory_budget", [None, 3, 5], ids=["m=None", "m<n", "m=n given"])
def test_added_group_joins_at_the_end_and_nothing_remembered_is_lost(memory_budget, steps):
    a, b = leaf(1.0, -1.0, 0.5), leaf(2.0, 0.0)
    options = dict(lr=0.03, eps=0.1, decay=0.9)
    optimizer = cocd.CoCD([a, b], compute_budget=2, memory_budget=memory_budget, **options)
    twin = Twin(quadratic(5), flat([a, b]).numpy(), B=2, m=memory_budget, **options)
    run_beside(optimizer, twin, [a, b], steps)
    remembered = optimizer.estimate()

    c, own = leaf(1.0, 1.5, -0.5, 0.25), dict(lr=0.01, eps=0.2, decay=0.7)
    optimizer.add_param_group({"params": [c], **own})
    assert torch.equal(optimizer.estimate(), torch.cat([remembered, torch.zeros(4).double()]))
    twin.join(c.tolist(), **own)
    twin.f = quadratic(9, seed=1)
    run_beside(optimizer, twin, [a, b, c], 12)

    d = leaf(1.0)  # and once more, in the middle of the longer sweep
    optimizer.add_param_group({"params": [d]})
    twin.join([1.0], **options)
    twin.f = quadratic(10, seed=2)
    run_beside(optimizer, twin, [a, b, c, d], 12)


def test_added_group_of_another_dtype_gets_a_buffer_of_its_own():
    a, c = leaf(1.0, -1.0, 0.5), leaf(1.0, 0.25, dtype=torch.float32)
    f = quadratic(5)
    optimizer = cocd.CoCD([a], lr=0.03, compute_budget=2, memory_budget=2)
    optimizer.step(lambda: f(torch.cat([a, torch.zeros(2)])))
    remembered = optimizer.estimate()
    optimizer.add_param_group({"params": [c]})
    assert torch.equal(optimizer.estimate(), torch.cat([remembered, torch.zeros(2)]))
    for _ in range(2):
        optimizer.step(lambda: f(torch.cat([a, c.double()])))
    assert optimizer.estimate()[2:4].count_nonzero() == 0  # of 2, 3 | 4, 0 the last two stay
    assert optimizer.estimate()[[4, 0]].count_nonzero() == 2


def test_a_refused_group_leaves_the_optimizer_unchanged():
    a = leaf(1.0, -1.0)
    optimizer = cocd.CoCD([a], lr=0.1, compute_budget=1)
    optimizer.step(lambda: (a**2).sum())
    before = world(optimizer)
    refused = [
        {"params": [a]},
        {"params": [a.detach()[:1].requires_grad_()]},
        {"params": [leaf(1.0)], "eps": -1.0},
        {"params": [torch.ones(2, dtype=torch.complex64, requires_grad=True)]},
        {"params": [torch.ones(2, dtype=torch.int64)]},
        {"lr": 1.0},
    ]
    for group in refused:
        with pytest.raises(ValueError):
            optimizer.add_param_group(group)
        assert world(optimizer) == before


# --- freezing ----------------------------------------------------------------------------


@pytest.mark.parametrize("memory_budget", [None, 3])
def test_parameter_frozen_and_thawed_later(memory_budget):
    a, b = leaf(1.0, -1.0), leaf(0.5, 2.0, 1.0)
    options = dict(lr=0.03, eps=0.1, decay=0.9, weight_decay=0.1)
    optimizer = cocd.CoCD([a, b], compute_budget=2, memory_budget=memory_budget, **options)
    twin = Twin(quadratic(5), flat([a, b]).numpy(), B=2, m=memory_budget, **options)
    run_beside(optimizer, twin, [a, b], 4)
    a.requires_grad_(False)
    twin.fixed = {0, 1}
    fixed = frozen(a)
    for _ in range(4):  # its coordinates have their turns and cost nothing
        optimizer.step(lambda: twin.f(torch.cat([a, b])))
        twin.step()
        torch.testing.assert_close(flat([a, b]), torch.from_numpy(twin.x), rtol=0, atol=1e-10)
        assert optimizer.evaluations == twin.evaluations
        assert frozen(a) == fixed
    a.requires_grad_(True)
    twin.fixed = set()
    run_beside(optimizer, twin, [a, b], 8)
    assert optimizer.skipped == 0


@pytest.mark.parametrize("memory_budget", [None, 3])
def test_parameter_frozen_at_first_joins_at_the_end_when_thawed(memory_budget):
    a, b = leaf(1.0, -1.0), leaf(0.5, 2.0, 1.0)
    a.requires_grad_(False)
    f = quadratic(5)
    options = dict(lr=0.03, eps=0.1, decay=0.9)
    optimizer = cocd.CoCD([a, b], compute_budget=2, memory_budget=memory_budget, **options)
    # In the twin's order b comes first, because a joins the sweep last.
    twin = Twin(
        lambda x: f(torch.cat([a.detach(), x])), b.tolist(), B=2, m=memory_budget, **options
    )
    run_beside(optimizer, twin, [b], 4)
    a.requires_grad_(True)
    twin.join(a.tolist(), **options)
    for _ in range(8):
        optimizer.step(lambda: f(torch.cat([a, b])))
        twin.f = lambda x: f(torch.cat([x[3:], x[:3]]))
        twin.step()
        torch.testing.assert_close(flat([b, a]), torch.from_numpy(twin.x), rtol=0, atol=1e-10)
        g = torch.from_numpy(twin.estimate())
        torch.testing.assert_close(optimizer.estimate(), torch.cat([g[3:], g[:3]]))


def test_everything_frozen_costs_one_evaluation_and_moves_nothing():
    a = leaf(1.0, 2.0)
    optimizer = cocd.CoCD([a], lr=0.1, weight_decay=0.1, compute_budget=2)
    a.requires_grad_(False)
    before = frozen(a)
    assert optimizer.step(lambda: (a**2).sum()).item() == 5.0
    assert (frozen(a), optimizer.evaluations) == (before, 1)
    assert optimizer.estimate().shape == (0,)


# --- the rest of the interface -----------------------------------------------------------


def test_zero_grad_and_gradients_do_not_matter():
    a, b = leaf(1.0, 2.0), leaf(1.0, 2.0)
    a.grad = torch.full((2,), 7.0, dtype=torch.float64)
    left, right = cocd.CoCD([a], lr=0.1, compute_budget=1), cocd.CoCD([b], lr=0.1, compute_budget=1)
    for _ in range(3):
        left.step(lambda: (a**2).sum())
        right.step(lambda: (b**2).sum())
    assert torch.equal(a, b)
    assert a.grad.tolist() == [7.0, 7.0]
    left.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0.0, 0.0]
    left.zero_grad()
    assert a.grad is None
    assert torch.equal(left.estimate(), right.estimate())


def test_a_profiler_sees_the_steps():
    a = torch.ones(2, requires_grad=True)
    optimizer = cocd.CoCD([a], lr=0.1, compute_budget=1)
    optimizer.step(lambda: a.square().sum())
    with torch.profiler.profile() as profile:
        optimizer.step(lambda: a.square().sum())
    assert "Optimizer.step#CoCD.step" in {event.name for event in profile.events()}


def test_step_hooks_for_all_optimizers_run():
    a, calls = torch.ones(2, requires_grad=True), []
    optimizer = cocd.CoCD([a], lr=0.1, compute_budget=1)
    optimizer.step(lambda: a.square().sum())
    handle = register_optimizer_step_post_hook(lambda *_: calls.append("post"))
    optimizer.step(lambda: a.square().sum())
    handle.remove()
    optimizer.step(lambda: a.square().sum())
    assert calls == ["post"]


def test_step_hooks_run_around_every_step():
    a, calls = leaf(1.0), []
    optimizer = cocd.CoCD([a], lr=0.25, compute_budget=1)
    before = optimizer.register_step_pre_hook(lambda *_: calls.append(("pre", a.item())))
    optimizer.register_step_post_hook(lambda *_: calls.append(("post", round(a.item(), 12))))
    optimizer.step(lambda: 2 * a.sum())
    before.remove()
    optimizer.step(lambda: 2 * a.sum())
    assert calls == [("pre", 1.0), ("post", 0.5), ("post", 0.0)]


@pytest.mark.parametrize("enabled", [True, False])
def test_autograd_is_off_during_evaluations_and_restored_afterwards(enabled):
    a, seen = leaf(1.0, 2.0), []

    def loss():
        seen.append(torch.is_grad_enabled())
        return (a**2).sum()

    with torch.set_grad_enabled(enabled):
        returned = cocd.CoCD([a], lr=0.1, compute_budget=1).step(loss)
        assert torch.is_grad_enabled() is enabled
    assert seen == [False] * 3
    assert not returned.requires_grad
    assert a.requires_grad and a.grad is None and a.is_leaf


def test_a_model_cast_after_the_optimizer_was_built_is_noticed():
    model = nn.Linear(2, 1)
    optimizer = cocd.CoCD(model.parameters(), lr=0.1, compute_budget=1)
    model.double()
    with pytest.raises(ValueError, match="float64"):
        optimizer.step(lambda: model(torch.ones(1, 2).double()).sum())


def test_budget_written_between_two_steps_takes_effect():
    a = leaf(*range(6))
    optimizer = cocd.CoCD([a], lr=0.1, compute_budget=1)
    optimizer.compute_budget = 4
    optimizer.step(lambda: (a**2).sum())
    assert optimizer.evaluations == 9
    optimizer.compute_budget = 7
    with pytest.raises(ValueError, match="compute_budget=7"):
        optimizer.step(lambda: (a**2).sum())
