"""Which coordinates are probed to measure an engine.

A step's cost depends on which coordinates it probes. The incremental engine therefore runs real
steps over a whole cycle of all coordinates (ResNet-20: a block of every tensor, weighted by the
tensor's size); the other two, whose cost hardly depends on the coordinate, run blocks at evenly
spaced places of the flat vector, which weights each tensor by its size by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .lane import Lane
from .workloads import Workload

_SMALL = 4  # the least that is probed of a tensor which stands for few coordinates


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


def plan(lane: Lane, workload: Workload, effort: Effort) -> list[Block]:
    """What a lane runs in one round."""
    budget = workload.compute_budget
    if lane.engine == "sequential":
        return spread(lane.n, workload.sequential_block, effort.samples)
    if lane.engine == "batched":
        return spread(lane.n, workload.batched_block, effort.samples // 2)
    if effort.sample_only:
        return spread(lane.n, min(budget, 64 if workload.whole_cycle else 16), effort.samples)
    return cycle(lane.n, budget) if workload.whole_cycle else every_tensor(lane, budget)


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
    """A block in the middle of each tensor, which stands for all of it.

    The largest tensor gets the whole budget, the others less by as much as they weigh less:
    the time goes where it makes the mean more exact.
    """
    largest = max(lane.sizes.values())
    blocks = []
    for name, offset in lane.offsets().items():
        whole = lane.sizes[name]
        size = min(whole, max(_SMALL, budget * whole // largest))
        blocks.append(Block(offset + (whole - size) // 2, size, float(whole)))
    return blocks


def touched(lane: Lane, blocks: list[Block]) -> Iterator[int]:
    """A position in every tensor that some block probes."""
    for name, offset in lane.offsets().items():
        end = offset + lane.sizes[name]
        # The last block of a cycle may run on into the first tensor.
        if not offset or any(b.position < end and offset < b.position + b.size for b in blocks):
            yield (offset + end) // 2


def first_of_each_shape(lane: Lane, blocks: list[Block]) -> Iterator[Block]:
    """A block at the beginning of the first tensor of every shape, as large as the plan's are.

    Of equal tensors the first is farthest from the loss, so the one with most to keep.
    """
    seen = set()
    offsets = lane.offsets()
    for name, parameter in lane.model.named_parameters():
        if parameter.shape not in seen:
            seen.add(parameter.shape)
            start, end = offsets[name], offsets[name] + parameter.numel()
            sizes = [b.size for b in blocks if b.position < end and start < b.position + b.size]
            largest = max(sizes, default=blocks[0].size)
            yield Block(start, min(largest, parameter.numel()), 1.0)
