"""`cocd.distributed` on real ranks: every rank goes the way of one process."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from helpers import frozen
from ranks import run_ranks
from shared_runs import METHODS, batches, coordinates, network, optimize
from torch import nn
from torch.nn.functional import mse_loss

import cocd
from cocd.baselines import SPSA
from cocd.distributed import RankError, Shard
from cocd.objective import ForwardedLoss

EXAMPLE = Path(__file__).parents[2] / "examples" / "distributed_digits.py"


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


# --- the way of one process ------------------------------------------------------------------


def all_methods(rank):
    return {name: frozen(optimize(make, Shard)) for name, make in METHODS.items()}


@pytest.fixture(scope="module", params=[2, 3])
def sharded(request):
    results = run_ranks(all_methods, request.param)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@pytest.mark.parametrize("name", METHODS)
def test_every_rank_goes_the_way_of_one_process_to_the_bit(name, sharded):
    alone = frozen(optimize(METHODS[name]))
    for result in sharded:
        assert result[name] == alone


TRACED = {
    "cocd": (coordinates(cocd.CoCD, compute_budget=11, decay=0.9), None),
    "cocd, batched": (coordinates(cocd.CoCD, compute_budget=11, decay=0.9), "batched"),
    "cocd, sequential": (coordinates(cocd.CoCD, compute_budget=11, decay=0.9), "sequential"),
    "AutoCoCD": (lambda model: cocd.AutoCoCD(model.parameters(), compute_budget=11), None),
    "random directions": (coordinates(SPSA, directions=40), None),
}


def traced(rank, name):
    make, engine = TRACED[name]
    return optimize(
        make, Shard, closure_of=lambda model: cocd.trace(model, mse_loss, engine=engine)
    )


@pytest.mark.parametrize("name", TRACED)
def test_traced_objectives_go_the_same_way_to_rounding(name):
    make, engine = TRACED[name]
    alone = optimize(make, closure_of=lambda model: cocd.trace(model, mse_loss, engine=engine))
    first, second = run_ranks(traced, 2, name)
    assert frozen(first) == frozen(second)  # among each other they agree to the bit
    assert first["evaluations"] == alone["evaluations"]
    assert first["losses"] == pytest.approx(alone["losses"], rel=1e-4)
    for mine, theirs in zip(first["model"].values(), alone["model"].values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


class Spy(ForwardedLoss):
    """Takes down what it is asked."""

    def __init__(self, inner):
        super().__init__(inner)
        self.asked = set()

    def quickly(self):
        self.asked.add("quickly")
        return super().quickly()

    def losses_at(self, *args):
        self.asked.add("losses_at")
        return super().losses_at(*args)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda model: cocd.AutoCoCD(model.parameters(), compute_budget=5), "quickly"),
        (coordinates(SPSA, directions=20), "losses_at"),
    ],
    ids=["AutoCoCD's trial points", "random directions"],
)
def test_a_sharded_objective_keeps_its_fast_path(make, expected, one_rank):
    model, (x, y) = network(), batches(1)[0]
    optimizer, objective = make(model), cocd.trace(model, mse_loss)
    spy = Spy(objective(x, y))
    optimizer.step(Shard(optimizer)(spy))
    assert expected in spy.asked


def resumed(rank, saved, name):
    return frozen(optimize(METHODS[name], Shard, resume=copy.deepcopy(saved)))


@pytest.mark.parametrize("name", ["groups and a ring", "SPSA"])
def test_a_run_resumes_on_another_number_of_ranks(name):
    whole = optimize(METHODS[name])
    saved = {**optimize(METHODS[name], steps=4), "losses": []}
    for result in run_ranks(resumed, 3, saved, name):
        assert {**result, "losses": None} == frozen({**whole, "losses": None})


def some_not_finite(rank):
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 7).requires_grad_()
    optimizer = cocd.CoCD([x], lr=0.1, eps=0.3, compute_budget=5)
    share = (lambda closure: closure) if rank is None else Shard(optimizer)
    with pytest.warns(cocd.NonFiniteWarning):
        for _ in range(4):
            optimizer.step(share(lambda: x.square().sum() / (x < 1.1).all()))
    return optimizer.skipped, optimizer.evaluations, frozen(x), frozen(optimizer.state_dict())


def test_probes_that_are_not_finite_are_skipped_on_every_rank():
    alone = some_not_finite(None)
    assert alone[0] > 0
    assert run_ranks(some_not_finite, 2) == [alone, alone]


def one_closure(rank):
    model = network()
    optimizer = METHODS["cocd"](model)
    ((x, y),) = batches(1)
    share = (lambda closure: closure) if rank is None else Shard(optimizer, check_every=2)
    closure = share(lambda: mse_loss(model(x), y))
    losses = [float(optimizer.step(closure)) for _ in range(5)]
    return losses, frozen(model.state_dict()), optimizer.evaluations


def test_a_sharded_closure_may_be_used_for_many_steps():
    alone = one_closure(None)
    assert run_ranks(one_closure, 2) == [alone, alone]


# --- what crosses the network ----------------------------------------------------------------


def traffic(rank, inputs, budget):
    sent = []
    gather = dist.all_gather
    dist.all_gather = lambda found, words, **options: (
        sent.append(words.numel()),
        gather(found, words, **options),
    )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(inputs, 1), nn.Linear(1, 1), nn.Linear(1, 1))  # 6 tensors
    optimizer = cocd.CoCD(model.parameters(), lr=1e-3, compute_budget=budget)
    shard = Shard(optimizer)
    x, y = torch.ones(2, inputs), torch.zeros(2, 1)
    for _ in range(4):  # the second block of the small model lies in all six
        sent.append("step")
        optimizer.step(shard(lambda: mse_loss(model(x), y)))
    return sent


@pytest.mark.parametrize("inputs", [10, 10_000])
def test_one_exchange_of_the_probes_numbers_whatever_n_is(inputs):
    # 8 words of header and 2 for each of the 4 coordinates that a rank has at most; the first
    # step does not know yet how many there will be.
    for sent in run_ranks(traffic, 2, inputs, 7):
        assert sent == ["step", 8, 8, "step", 16, "step", 16, "step", 16]


# --- groups ----------------------------------------------------------------------------------


def in_a_subgroup(rank):
    pair, single = dist.new_group([1, 2]), dist.new_group([0])
    result = frozen(optimize(METHODS["cocd"], lambda o: Shard(o, single if rank == 0 else pair)))
    try:
        Shard(METHODS["cocd"](network()), pair)
    except ValueError as error:
        return result, str(error)
    ((x, y),) = batches(1)
    model = network()
    optimizer = METHODS["cocd"](model)
    try:
        optimizer.step(Shard(optimizer, pair)(lambda: mse_loss(model(x + rank), y)))
    except RankError as error:
        return result, str(error)


def test_a_subgroup_shares_among_its_members():
    results = run_ranks(in_a_subgroup, 3)
    alone = frozen(optimize(METHODS["cocd"]))
    assert [result for result, _ in results] == [alone] * 3
    assert results[0][1].startswith("group: this process, global rank 0, is not in it")
    for _, message in results[1:]:
        assert message.startswith("rank 1 of 2 (global rank 2) has a loss of")
        assert "rank 0 of 2 (global rank 1)" in message


# --- arguments -------------------------------------------------------------------------------


def test_without_a_process_group():
    optimizer = cocd.CoCD([torch.zeros(2, requires_grad=True)], lr=0.1, compute_budget=1)
    with pytest.raises(ValueError, match=r"init_process_group first, in a script started by torch"):
        Shard(optimizer)


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield cocd.CoCD([torch.zeros(2, requires_grad=True)], lr=0.1, compute_budget=1)
    dist.destroy_process_group()


def test_what_cannot_work_is_refused(alone):
    with pytest.raises(ValueError, match="optimizer must be one of cocd, got SGD"):
        Shard(torch.optim.SGD(alone.param_groups, lr=0.1))
    with pytest.raises(ValueError, match="check_every must be a whole number of at least 1, got 0"):
        Shard(alone, check_every=0)
    shard = Shard(alone)
    assert (shard.rank, shard.size, shard.steps) == (0, 1, 0)
    with pytest.raises(ValueError, match=r"closure must be a function .* got 3; call shard"):
        shard(3)
    with pytest.raises(ValueError, match="not sharded yet"):
        shard(shard(lambda: 0.0))


# --- the example -----------------------------------------------------------------------------


def test_the_example_runs_under_torchrun():
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(EXAMPLE)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words, "--steps", "6"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"2 ranks, 6 steps of 64 coordinates: loss \d", done.stdout)
    assert "774 evaluations" in done.stdout
