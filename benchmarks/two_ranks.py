"""Two real ranks on this machine: what an exchange takes, and what a step takes of each of them.

Steps are measured in time of the processor: with one thread that is the time they take when nothing
else runs, also on a machine where something does.
"""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from cocd.distributed import Shard
from cocd.distributed.ranks import Ranks
from cocd.parts.schedule import Cyclic

from .lane import Lane
from .workloads import Workload


class Plan(NamedTuple):
    """What the two ranks measure."""

    words: Sequence[int]  # sizes of exchanges, in words of 8 bytes a rank
    repeats: int
    lanes: Sequence[tuple[str, Workload]]  # shared steps through these engines
    positions: int  # of the flat vector, where such steps are made
    rounds: int


class Found(NamedTuple):
    """Seconds of an exchange by size, and processor seconds of a shared step by lane."""

    exchanges: list[float]
    steps: list[float]


def measure(plan: Plan) -> Found:
    """Start two processes of one thread each, let them measure, give back the first one's times."""
    context = _context()
    with tempfile.TemporaryDirectory() as folder:
        place = (Path(folder) / "store").as_uri()
        pipe, theirs = context.Pipe(duplex=False)
        ranks = [
            context.Process(target=_rank, args=(theirs, place, rank, plan), daemon=True)
            for rank in (0, 1)
        ]
        for process in ranks:
            process.start()
        theirs.close()
        try:
            found = pickle.loads(pipe.recv_bytes())
            assert isinstance(found, Found)
            return found
        except EOFError:
            raise RuntimeError("the two ranks ended before they had measured anything") from None
        finally:
            for process in ranks:
                process.join(10)
                process.kill()
                process.join()


def _context() -> Any:
    """How to start ranks: forked from a server that has imported all there is to import, once."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._dynamo"])  # optimizers load the latter
    return context


def _rank(pipe: Connection, place: str, rank: int, plan: Plan) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)  # as every rank must
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    ranks = Ranks(None)
    exchanges = [_exchange(ranks, words, plan.repeats) for words in plan.words]
    steps = [_step(ranks, engine, workload, plan) for engine, workload in plan.lanes]
    if rank == 0:
        pipe.send_bytes(pickle.dumps(Found(exchanges, steps)))
    pipe.close()
    dist.barrier()
    dist.destroy_process_group()


def _exchange(ranks: Ranks, words: int, repeats: int) -> float:
    """Seconds that a tenth of many exchanges in a row, as `Shard` makes them, do not need.

    Whatever else runs on the machine only adds to the others.
    """
    message = torch.zeros(words, dtype=torch.int64)
    times = []
    for _ in range(repeats + 10):
        started = perf_counter()
        ranks.gather(message)
        times.append(perf_counter() - started)
    return sorted(times[10:])[repeats // 10]  # the first ones open connections


def _step(ranks: Ranks, engine: str, workload: Workload, plan: Plan) -> float:
    """What a step takes of the slower of the two ranks, on average over the flat vector."""
    lane = Lane(engine, workload.model(), workload.loss, workload.data(), workload.settings)
    # Checksums have a time of their own, and are rare.
    shard = Shard(lane.optimizer, check_every=10**9)
    budget = workload.compute_budget
    mine = seconds(lane, budget, positions(lane.n, budget, plan.positions), plan.rounds, shard)
    words = torch.tensor(mine, dtype=torch.float64).view(torch.int64)
    return ranks.gather(words).view(torch.float64).amax(0).mean().item()


def seconds(
    lane: Lane,
    budget: int,
    places: Sequence[int],
    rounds: int,
    share: Callable[[Any], Any] = lambda closure: closure,
) -> list[float]:
    """Processor seconds of a step at each of some places: the fastest of some rounds."""
    schedule = lane.optimizer._schedule
    assert isinstance(schedule, Cyclic)
    lane.optimizer.compute_budget = budget

    def step(place: int) -> float:
        schedule.count = place
        started = process_time()
        lane.optimizer.step(share(lane.objective(*lane.data)))
        return process_time() - started

    times = [[step(place) for place in places] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


def positions(n: int, budget: int, count: int) -> list[int]:
    """Where blocks of `budget` begin that are spread evenly over n coordinates.

    >>> positions(100, 10, 4)
    [0, 30, 60, 90]
    """
    last = max(n - budget, 0)
    return [round(last * k / max(count - 1, 1)) for k in range(count)]
