"""`cocd.distributed` on real ranks: the way of one process, and what happens when one differs."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from helpers import Raising, frozen, world
from ranks import Died, run_ranks
from torch import nn
from torch.nn.functional import mse_loss

import cocd
from cocd.baselines import BCCD, SPSA, ZOSGD, EvolutionStrategy, FiniteDifference, MeZO
from cocd.baselines import RandomCoordinate as Randomly
from cocd.distributed import RankError, Shard
from cocd.objective import ForwardedLoss

EXAMPLE = Path(__file__).parents[2] / "examples" / "distributed_digits.py"
STEPS = 9


def network():
    """43 parameters in 6 tensors; random numbers and buffers are in play."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 2)
    )


def batches(count=STEPS):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 3, generator=generator), torch.randn(8, 2, generator=generator))
        for _ in range(count)
    ]


def optimize(make, shard=None, *, closure_of=None, steps=STEPS, resume=None):
    """Train a little; everything that must not depend on who evaluated what."""
    model = network()
    optimizer = make(model)
    if resume:
        model.load_state_dict(resume["model"])
        optimizer.load_state_dict(resume["optimizer"])
        torch.set_rng_state(resume["random"])
    share = (lambda closure: closure) if shard is None else shard(optimizer)
    closure_of = closure_of or (lambda model: lambda x, y: lambda: mse_loss(model(x), y))
    closure_of = closure_of(model)
    take = optimizer if isinstance(optimizer, cocd.CoherentGradient) else optimizer.step
    adam = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for x, y in batches(steps)[resume["step"] if resume else 0 :]:
        losses.append(float(take(share(closure_of(x, y)))))
        if take is optimizer:
            adam.step()
    return {
        "losses": losses,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "evaluations": optimizer.evaluations,
        "step": steps,
    }


def coordinates(kind, **options):
    options = {"lr": 0.01, "eps": 0.1, **options}
    return lambda model: kind(model.parameters(), **options)


def two_groups(model):
    groups = [
        {"params": model[0].parameters(), "eps": 0.2},
        {"params": model[4].parameters(), "decay": 0.5},
    ]
    return cocd.CoCD(groups, lr=0.01, compute_budget=7, memory_budget=20, decay=0.9)


def gradient(model):
    return cocd.CoherentGradient(model.parameters(), eps=0.1, compute_budget=4)


def half_frozen(model):
    model[0].requires_grad_(False)
    optimizer = cocd.CoCD(model.parameters(), lr=0.01, compute_budget=6)
    model[1].requires_grad_(False)  # keeps its place in the sweep, and costs nothing
    return optimizer


METHODS = {
    "cocd": coordinates(cocd.CoCD, compute_budget=5, decay=0.9),
    "fewer probes than ranks": coordinates(cocd.CoCD, compute_budget=1),
    "blocks over tensors": coordinates(cocd.CoCD, compute_budget=31),
    "forward": coordinates(cocd.CoCD, compute_budget=5, difference="forward"),
    "backward": coordinates(cocd.CoCD, compute_budget=5, difference="backward"),
    "groups and a ring": two_groups,
    "frozen tensors": half_frozen,
    "estimator": gradient,
    "AutoCoCD": lambda model: cocd.AutoCoCD(model.parameters()),
    "AutoCoCD, a budget of 5": lambda model: cocd.AutoCoCD(model.parameters(), compute_budget=5),
    "BCCD": coordinates(BCCD, compute_budget=5),
    "FiniteDifference": coordinates(FiniteDifference),
    "RandomCoordinate": coordinates(Randomly, compute_budget=6),
    "SPSA": coordinates(SPSA, directions=4),
    "SPSA, one pair": coordinates(SPSA, directions=1),
    "ZOSGD": coordinates(ZOSGD, directions=3),
    "MeZO": coordinates(MeZO, directions=3),
    "EvolutionStrategy": coordinates(EvolutionStrategy, directions=4, shaping="rank"),
}


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
def test_so_does_one_that_is_interrupted_or_returns_nonsense(fail, own, told, at):
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


def test_a_loss_that_is_not_finite_on_all_ranks_is_what_it_always_is():
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
def test_so_does_one_whose_optimizer_differs(change):
    # The parameters differ from step 4 on, and with them the loss; step 3 was made by all.
    for when, message, unchanged in run_ranks(differing, 2, "cocd", 1, change, 8, 1):
        assert when == 3 and unchanged
        assert message.startswith("rank 1 of 2 differs from rank 0 of 2 in the optimizer's state")


def test_so_does_one_whose_buffers_differ():
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
