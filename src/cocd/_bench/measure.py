"""The engines beside each other on a workload: one row for each.

A step's cost depends on which coordinates it probes. The incremental engine therefore runs real
steps over a whole cycle of all coordinates (ResNet-20: a block of every tensor, weighted by the
tensor's size); the other two, whose cost hardly depends on the coordinate, run blocks at evenly
spaced places of the flat vector, which weights each tensor by its size by itself.

The engines take turns, a few steps at a time, so that a noisy machine slows all of them, and
where there is time for several rounds the median of each block's times counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from ..errors import EngineWarning
from .lane import Lane, Step
from .memory import peak_extra_bytes
from .workloads import Workload

Row = dict[str, Any]
Report = Callable[[str, float], None]  # what is being done, and the share that is done

_TURNS = 8  # parts of a round between which the engines alternate


@dataclass(frozen=True)
class Effort:
    """How much to measure: `samples` blocks where a sample will do, at most `rounds` of all."""

    samples: int
    rounds: int
    sample_only: bool = False  # no whole cycles


FULL = Effort(samples=24, rounds=5)
QUICK = Effort(samples=6, rounds=1, sample_only=True)


class Block(NamedTuple):
    """Coordinates that one step probes, and how many of all it stands for."""

    position: int
    size: int
    weight: float


def cycle(n: int, budget: int) -> list[Block]:
    """Every coordinate once, as training visits them.

    >>> [block.position for block in cycle(10, 4)]
    [0, 4, 8]
    """
    return [Block(start, budget, 1.0) for start in range(0, n, budget)]


def spread(n: int, size: int, samples: int) -> list[Block]:
    """Blocks at evenly spaced places.

    >>> [block.position for block in spread(100, 10, 4)]
    [8, 32, 58, 82]
    """
    size = min(size, n)
    middles = ((j + 0.5) * n / samples for j in range(samples))
    return [Block(max(0, min(n - size, round(m - size / 2))), size, 1.0) for m in middles]


def every_tensor(lane: Lane, budget: int) -> list[Block]:
    """One block in the middle of each tensor, which stands for all of it."""
    blocks = []
    for name, offset in lane.offsets().items():
        whole = lane.sizes[name]
        size = min(budget, whole)
        blocks.append(Block(offset + (whole - size) // 2, size, float(whole)))
    return blocks


def measure(
    workload: Workload, engines: list[str], effort: Effort, report: Report = lambda *_: None
) -> list[Row]:
    """A row for each engine."""
    model, data = workload.model(), workload.data()
    lanes = [Lane(e, model, workload.loss, data, workload.settings) for e in engines]
    plans = [_plan(lane, workload, effort) for lane in lanes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EngineWarning)  # the rows say who probed what
        for i, (lane, blocks) in enumerate(zip(lanes, plans, strict=True)):
            report(f"{workload.name}: warming up {lane.engine}", 0.15 * i / len(lanes))
            _warm_up(lane, blocks)
        times = _rounds(workload, lanes, plans, effort, report)
        rows = []
        for i, (lane, blocks, steps) in enumerate(zip(lanes, plans, times, strict=True)):
            report(f"{workload.name}: memory of {lane.engine}", 0.9 + 0.1 * i / len(lanes))
            fresh = Lane(lane.engine, model, workload.loss, data, workload.settings)
            peak = _peak(workload, fresh)
            rows.append({**_row(workload, lane, blocks, steps), "peak_extra_bytes": peak})
    by_engine = {row["engine"]: row["seconds_per_step"] for row in rows}
    for row in rows:
        slow = by_engine.get("sequential")
        row["ratio_to_sequential"] = slow and slow / row["seconds_per_step"]
    report(f"{workload.name}: done", 1.0)
    return rows


def _plan(lane: Lane, workload: Workload, effort: Effort) -> list[Block]:
    budget = workload.compute_budget
    if lane.engine in ("batched", "sequential"):
        size = workload.batched_block if lane.engine == "batched" else workload.sequential_block
        return spread(lane.n, size, effort.samples)
    if effort.sample_only:
        return spread(lane.n, min(budget, 64), effort.samples)
    return cycle(lane.n, budget) if workload.whole_cycle else every_tensor(lane, budget)


def _warm_up(lane: Lane, blocks: list[Block]) -> None:
    """A small step in every tensor that will be probed: checks, compilation, first allocations."""
    for name, offset in lane.offsets().items():
        size = lane.sizes[name]
        touched = any(b.position < offset + size and offset < b.position + b.size for b in blocks)
        if touched or offset == 0:  # the last block of a cycle runs on into the first tensor
            lane.step(offset + size // 2, 1)
        if lane.engine == "sequential":
            break  # nothing depends on the tensor


def _rounds(
    workload: Workload,
    lanes: list[Lane],
    plans: list[list[Block]],
    effort: Effort,
    report: Report,
) -> list[list[list[Step]]]:
    """By lane and block, the steps of all rounds."""
    times: list[list[list[Step]]] = [[[] for _ in blocks] for blocks in plans]
    started = perf_counter()
    for done in range(effort.rounds):
        elapsed = perf_counter() - started
        if done and elapsed * (done + 1) / done > workload.seconds:
            break  # another round would take too long
        for turn in range(_TURNS):
            # Each begins as often as any other: no engine always finds the cache of its neighbour.
            for i in range(len(lanes)):
                lane = (i + turn + done) % len(lanes)
                share = (done + (turn + i / len(lanes)) / _TURNS) / effort.rounds
                report(f"{workload.name}: {lanes[lane].engine}", 0.15 + 0.75 * share)
                for k in _part(len(plans[lane]), turn):
                    block = plans[lane][k]
                    times[lane][k].append(lanes[lane].step(block.position, block.size))
    return times


def _part(count: int, turn: int) -> range:
    return range(count * turn // _TURNS, count * (turn + 1) // _TURNS)


def _row(workload: Workload, lane: Lane, blocks: list[Block], times: list[list[Step]]) -> Row:
    total = sum(block.weight for block in blocks)
    rest = 0.0
    probes: dict[str, float] = {}
    for block, steps in zip(blocks, times, strict=True):
        share = block.weight / total
        rest += share * median(step.rest for step in steps)
        for name in steps[0].probes:
            seconds = median(step.probes[name] for step in steps)
            seconds *= share * workload.compute_budget / block.size
            probes[name] = probes.get(name, 0.0) + seconds
    step = rest + sum(probes.values())
    slowest = max(probes, key=lambda name: probes[name])
    return {
        "workload": workload.name,
        "engine": lane.engine,
        "seconds_per_step": step,
        "ratio_to_sequential": None,
        "seconds_per_epoch": step * workload.steps_per_epoch,
        "paper_seconds_per_epoch": workload.paper_seconds_per_epoch,
        "peak_extra_bytes": None,
        "slowest_tensor": slowest,
        "slowest_fraction": probes[slowest] / step,
        "probe_fraction": 1 - rest / step,
        "parameters": lane.n,
        "compute_budget": workload.compute_budget,
        "batch": workload.batch,
        "steps_per_epoch": workload.steps_per_epoch,
        "steps_measured": sum(map(len, times)),
        "rounds": len(times[0]),
        "sampled": not _is_cycle(blocks, workload, lane),
        "probed_by": lane.probed_by(),
    }


def _is_cycle(blocks: list[Block], workload: Workload, lane: Lane) -> bool:
    return blocks == cycle(lane.n, workload.compute_budget)


def _peak(workload: Workload, lane: Lane) -> int:
    """The peak of steps in the first tensor of every shape, beyond model, optimizer and batch.

    Of equal tensors the first is farthest from the loss, so the one with most to keep. The lane
    must be a new one: what an objective keeps from step to step is part of its cost.
    """
    budgets = {"sequential": 1, "batched": workload.batched_block}
    blocks = list(_first_of_each_shape(lane, budgets.get(lane.engine, workload.compute_budget)))

    def run() -> None:
        for position, size in blocks:
            lane.step(position, size)

    return peak_extra_bytes(run)


def _first_of_each_shape(lane: Lane, budget: int) -> Iterator[tuple[int, int]]:
    seen = set()
    offsets = lane.offsets()
    for name, parameter in lane.model.named_parameters():
        if parameter.shape not in seen:
            seen.add(parameter.shape)
            yield offsets[name], min(budget, parameter.numel())
