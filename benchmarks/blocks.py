"""The coordinates that are probed to measure an engine.

A step's cost depends on which coordinates it probes. The incremental engine therefore runs real
steps over a whole cycle of all coordinates (ResNet-20: a block of every tensor, weighted by the
tensor's size); the other two, whose cost hardly depends on the coordinate, run blocks at evenly
spaced places of the flat vector, which weights each tensor by its size by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .stepper import Stepper
from .workloads import Workload

_SMALL = 4  # the fewest coordinates probed of a small tensor


@dataclass(frozen=True)
class Effort:
    """How much to measure: `samples` blocks if a sample suffices, and at most `rounds` rounds."""

    samples: int
    rounds: int
    sample_only: bool = False  # no whole cycles


FULL = Effort(samples=24, rounds=5)
QUICK = Effort(samples=6, rounds=1, sample_only=True)


class Block(NamedTuple):
    """Coordinates that one step probes, and the number of coordinates that they represent."""

    position: int
    size: int
    weight: float


def plan(stepper: Stepper, workload: Workload, effort: Effort) -> list[Block]:
    """The blocks that a stepper runs in one round."""
    budget = workload.compute_budget
    if stepper.engine == "sequential":
        return spread(stepper.n, workload.sequential_block, effort.samples)
    if stepper.engine == "batched":
        return spread(stepper.n, workload.batched_block, effort.samples // 2)
    if effort.sample_only:
        return spread(stepper.n, min(budget, 64 if workload.whole_cycle else 16), effort.samples)
    return cycle(stepper.n, budget) if workload.whole_cycle else every_tensor(stepper, budget)


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


def every_tensor(stepper: Stepper, budget: int) -> list[Block]:
    """A block in the middle of each tensor, which represents the whole tensor.

    The largest tensor gets the whole budget, the others a share in proportion to their size, so
    that the time goes where it makes the mean more exact.
    """
    largest = max(stepper.sizes.values())
    blocks = []
    for name, offset in stepper.offsets().items():
        whole = stepper.sizes[name]
        size = min(whole, max(_SMALL, budget * whole // largest))
        blocks.append(Block(offset + (whole - size) // 2, size, float(whole)))
    return blocks


def probed(stepper: Stepper, blocks: list[Block]) -> Iterator[tuple[str, int]]:
    """The tensors that the blocks probe, each with the size of its largest block."""
    for name, offset in stepper.offsets().items():
        end = offset + stepper.sizes[name]
        sizes = [b.size for b in blocks if b.position < end and offset < b.position + b.size]
        if not offset and blocks[-1].position + blocks[-1].size > stepper.n:
            sizes.append(blocks[-1].size)  # the block wraps around into the first tensor
        if sizes:
            yield name, min(max(sizes), stepper.sizes[name])


def first_of_each_shape(stepper: Stepper, blocks: list[Block]) -> Iterator[Block]:
    """A block at the beginning of the first probed tensor of every shape.

    Among tensors of one shape, the first is farthest from the loss and needs the most memory.
    """
    seen = set()
    offsets, parameters = stepper.offsets(), dict(stepper.model.named_parameters())
    for name, size in probed(stepper, blocks):
        if (shape := parameters[name].shape) not in seen:
            seen.add(shape)
            yield Block(offsets[name], size, 1.0)
