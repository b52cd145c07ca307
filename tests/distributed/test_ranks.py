"""Ranks that fail, and ranks that differ: all stop, and the one is named."""

import os

import pytest
import torch
import torch.distributed as dist
from helpers import Raising, frozen, world
from ranks import Died, run_ranks
from shared_runs import METHODS, batches, network
from torch import nn
from torch.nn.functional import mse_loss

import cocd
from cocd.distributed import RankError, Shard

# --- ranks that fail -------------------------------------------------------------------------


class Trouble(Exception):
    pass


def raise_trouble():
    raise Trouble("the disk is full\nand more")


def raise_interrupt():
    raise KeyboardInterrupt


def give_nothing():
    return None


def give_nan():
    return torch.tensor(torch.nan)


def failing(rank, name, who, at, fail):
    """Step 3 fails on rank `who` at its evaluation number `at`; then all go on."""
    model = network()
    optimizer = METHODS[name](model)
    shard = Shard(optimizer, check_every=1)
    seen = []
    for step, (x, y) in enumerate(batches(5), 1):
        closure = lambda x=x, y=y: mse_loss(model(x), y)  # noqa: E731
        if step == 3:
            before = world(optimizer, model)
            if rank == who:
                closure = Raising(closure, at, fail)
            try:
                optimizer.step(shard(closure))
            except BaseException as error:
                seen.append(f"{type(error).__name__}: {error}")
            seen.append(world(optimizer, model) == before)
        optimizer.step(shard(lambda x=x, y=y: mse_loss(model(x), y)))
    return seen, frozen(model.state_dict())


@pytest.mark.parametrize("name", ["cocd", "blocks over tensors", "SPSA"])
@pytest.mark.parametrize("at", [1, 3])
def test_a_rank_that_fails_stops_the_step_on_all(name, at):
    results = run_ranks(failing, 3, name, 1, at, raise_trouble)
    told = (
        "RankError: rank 1 of 3 failed at step 3: Trouble: the disk is full; "
        "no rank has moved its parameters"
    )
    own = "Trouble: the disk is full\nand more"
    assert [seen for seen, _ in results] == [[told, True], [own, True], [told, True]]
    assert len({str(model) for _, model in results}) == 1  # and they went on together


@pytest.mark.parametrize(
    ("fail", "own", "told"),
    [
        (raise_interrupt, "KeyboardInterrupt", "KeyboardInterrupt"),
        (give_nothing, "ValueError: closure must return the loss", "ValueError: closure must"),
    ],
)
@pytest.mark.parametrize("at", [1, 2])
def test_an_interrupt_or_a_bad_loss_on_one_rank_stops_all(fail, own, told, at):
    (first, _), (second, _) = run_ranks(failing, 2, "cocd", 0, at, fail)
    assert first[0].startswith(own) and first[1]
    assert second[0].startswith(f"RankError: rank 0 of 2 failed at step 3: {told}") and second[1]


def test_a_loss_that_is_not_finite_on_one_rank_alone_is_a_difference():
    results = run_ranks(failing, 2, "cocd", 1, 1, give_nan)
    for seen, _ in results:
        assert seen[0].startswith("RankError: rank 1 of 2 has a loss of nan at step 3, rank 0 of 2")
        assert "another batch" in seen[0] and seen[1]


def nowhere_finite(rank):
    x = torch.zeros(3, requires_grad=True)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=1)
    optimizer.step(Shard(optimizer)(lambda: (x / 0).sum()))


def test_a_loss_that_is_not_finite_on_all_ranks_raises_NonFiniteLoss():
    for error in run_ranks(nowhere_finite, 2):
        assert isinstance(error, cocd.NonFiniteLoss)


def dying(rank):
    dist.barrier()  # it must not die before the others have met it
    x = torch.zeros(8, requires_grad=True)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=8)
    die = Raising(lambda: x.square().sum(), 3, lambda: os._exit(1))
    optimizer.step(Shard(optimizer)(die if rank == 1 else lambda: x.square().sum()))


def test_a_rank_that_dies_does_not_leave_the_others_waiting():
    first, second, third = run_ranks(dying, 3)
    assert isinstance(second, Died)
    for error in (first, third):
        assert isinstance(error, RankError)
        assert str(error).startswith("the ranks cannot be reached")


# --- ranks that differ -----------------------------------------------------------------------


def differing(rank, name, who, change, steps=8, check_every=4, closure_of=None):
    """Rank `who` is changed before step 3; what is raised, and when."""
    model = network()
    model.register_parameter("unused", nn.Parameter(torch.zeros(3)))
    optimizer = METHODS[name](model)
    shard = Shard(optimizer, check_every=check_every)
    closure_of = (closure_of or (lambda model: lambda x, y: lambda: mse_loss(model(x), y)))(model)
    for step, (x, y) in enumerate(batches(steps), 1):
        if step == 3 and rank == who:
            x = change(model, optimizer, x)
        before = world(optimizer, model)
        try:
            optimizer.step(shard(closure_of(x, y)))
        except RankError as error:
            return step, str(error), world(optimizer, model) == before
    return None


def another_batch(model, optimizer, x):
    return x.flip(1)


def another_weight(model, optimizer, x):
    with torch.no_grad():
        model[0].weight[0, 0] += 1e-3
    return x


def an_unused_weight(model, optimizer, x):
    with torch.no_grad():
        model.unused[1] = -0.0
    return x


def another_estimate(model, optimizer, x):
    if hasattr(optimizer, "_memory"):
        optimizer._memory.buffers[0][0] += 1e-3
    else:
        optimizer._generator = torch.Generator().manual_seed(5).get_state()
    return x


def another_lr(model, optimizer, x):
    optimizer.param_groups[0]["lr"] = 0.0
    return x


def another_seed(model, optimizer, x):
    torch.manual_seed(9)
    return x


def other_statistics(model, optimizer, x):
    model[1].running_mean += 1
    return x


def trace_it(model):
    return cocd.trace(model, mse_loss)


@pytest.mark.parametrize("name", ["cocd", "ZOSGD"])
@pytest.mark.parametrize(
    ("change", "step", "said"),
    [
        (another_batch, 3, "from the same parameters: it has another batch"),
        (another_weight, 3, "differs from rank 0 of 3 in the parameters, found at step 3"),
        (an_unused_weight, 5, "differs from rank 0 of 3 in the parameters, found at step 5; seed"),
        (another_seed, 3, "in the random numbers, found at step 3; call torch.manual_seed"),
    ],
)
def test_a_rank_that_differs_stops_all_and_is_named(name, change, step, said):
    for when, message, unchanged in run_ranks(differing, 3, name, 1, change):
        assert when == step and unchanged
        assert message.startswith("rank 1 of 3 ") and said in message
        assert message.endswith("no rank has moved its parameters")


@pytest.mark.parametrize("change", [another_estimate, another_lr])
def test_a_rank_whose_optimizer_differs_stops_all(change):
    # The parameters differ from step 4 on, and with them the loss; step 3 was made by all.
    for when, message, unchanged in run_ranks(differing, 2, "cocd", 1, change, 8, 1):
        assert when == 3 and unchanged
        assert message.startswith("rank 1 of 2 differs from rank 0 of 2 in the optimizer's state")


def test_a_rank_whose_buffers_differ_stops_all():
    args = ("cocd", 1, other_statistics, 8, 4, trace_it)
    for when, message, _ in run_ranks(differing, 2, *args):
        assert when == 5 and "in the module buffers, found at step 5" in message


def test_the_odd_one_of_three_may_be_the_first():
    for when, message, _ in run_ranks(differing, 3, "cocd", 0, another_batch):
        assert when == 3 and message.startswith("rank 0 of 3 has a loss of ")


def differing_options(rank):
    model = network()
    optimizer = cocd.CoCD(model.parameters(), lr=0.01, compute_budget=4 + rank)
    shard = Shard(optimizer)
    ((x, y),) = batches(1)
    optimizer.step(shard(lambda: mse_loss(model(x), y)))


def missing_a_step(rank):
    model = network()
    optimizer = cocd.CoCD(model.parameters(), lr=0.01, compute_budget=4)
    shard = Shard(optimizer)
    for step, (x, y) in enumerate(batches(3)):
        if step == 1 and rank == 1:
            optimizer.step(lambda x=x, y=y: mse_loss(model(x), y))
        else:
            optimizer.step(shard(lambda x=x, y=y: mse_loss(model(x), y)))


def test_ranks_that_do_not_make_the_same_calls_are_told():
    for error in run_ranks(differing_options, 2):
        assert isinstance(error, RankError)
        assert "rank 1 of 2 differs from rank 0 of 2 in the optimizer's state" in str(error)
    for error in run_ranks(missing_a_step, 2):
        assert isinstance(error, RankError)
        assert "rank 1 of 2 differs from rank 0 of 2 in the parameters, found at step 2" in str(
            error
        )
