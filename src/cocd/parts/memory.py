"""The memory: estimates of the m most recently refreshed coordinates, decayed with age."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ..schedules import Schedule, Stretch
from .layout import Layout, TensorSlice
from .types import State

_MANY = 4  # more segments than this are written in one indexed operation


class Segment(NamedTuple):
    """Coordinates ``start:stop`` of a tensor, with estimates in a buffer from `slot` on."""

    part: TensorSlice
    buffer: int
    slot: int


class Memory:
    """A ring of m estimates for each kind (device and dtype) of parameter; usually there is one.

    The k-th refresh within a kind is written to slot ``k mod m``, so a fresh estimate replaces the
    oldest. With m = n the memory is `dense`: each coordinate has its own slot, which it keeps when
    coordinates join.
    """

    def __init__(self, layout: Layout, budget: int | None) -> None:
        self.layout = layout
        self.budget = budget
        self.written: list[int] = []  # estimates written so far, of each kind
        self.buffers: list[Tensor] = []
        self.largest = 0.0  # the largest number that every buffer can hold
        self._whole: list[Tensor] = []
        self._allocate()

    @property
    def m(self) -> int:
        return self.layout.n if self.budget is None else self.budget

    @property
    def dense(self) -> bool:
        return self.budget is None or self.budget >= self.layout.n

    # --- the paper's section 4.1: decay, then overwrite --------------------------------------

    def decay(self, gamma: Callable[[Tensor], float], schedule: Schedule) -> None:
        """Multiply every remembered estimate by its parameter's gamma (eq. 5)."""
        factors = {gamma(tensor) for tensor in self.layout.tensors}
        if len(factors) == 1:
            factor = factors.pop()
            if factor != 1.0:
                for buffer in self.buffers:
                    buffer.mul_(factor)
            return
        for segment in self.remembered(schedule):
            self.values(segment).mul_(gamma(self.layout.tensors[segment.part.tensor]))

    def forget(self) -> None:
        """Set every remembered estimate to zero."""
        for buffer in self.buffers:
            buffer.zero_()

    def write(self, segments: Iterable[Segment], fresh: Tensor, finite: bool = False) -> None:
        """Overwrite with fresh estimates (eq. 6); a NaN leaves the old estimate.

        `finite` means that all are known to be finite in the dtypes of the buffers.
        """
        segments = list(segments)
        for segment in segments:
            self.written[segment.buffer] += len(segment.part)
        if finite and len(segments) > _MANY and len(self.buffers) == 1:
            self.buffers[0][_slots(segments)] = fresh.to(self.buffers[0])
            return
        position = 0
        for segment in segments:
            values = self.values(segment)
            new = fresh[position : position + len(segment.part)]
            if not finite:
                new = new.to(values)
                # In a ring the slot held another coordinate's estimate, which has expired.
                old = values if self.dense else torch.zeros_like(values)
                new = torch.where(new.isfinite(), new, old)
            values.copy_(new)
            position += len(segment.part)

    def fill(self, flat: Tensor, schedule: Schedule) -> None:
        """Fill an empty memory from `flat`, which has one number per coordinate.

        A ring takes the last coordinates of a sweep and advances the schedule by that sweep.
        """
        if self.dense:
            stretches = [(0, self.layout.n)]
            segments = self._own_places(stretches)
        else:
            schedule.advance(schedule.size)
            start = schedule.count - min(self.m, schedule.size)
            stretches = list(schedule.refreshed(start, schedule.count))
            segments = self._in_ring(stretches, self.written)
        self.write(segments, torch.cat([flat[start:stop] for start, stop in stretches]))

    def read(self, segments: Iterable[Segment]) -> Tensor:
        """The remembered estimates of a block, on the CPU in double precision."""
        segments = list(segments)
        if len(self.buffers) == 1:
            return self.buffers[0][_slots(segments)].double().cpu()
        return torch.cat([self.values(segment).double().cpu() for segment in segments])

    # --- where things are ---------------------------------------------------------------------

    def values(self, segment: Segment) -> Tensor:
        return self.buffers[segment.buffer][segment.slot : segment.slot + len(segment.part)]

    def whole(self, t: int) -> Tensor:
        """All estimates of one tensor, in its shape; only for a dense memory."""
        if not self._whole:  # every step needs a view for each tensor: make them once
            for i, tensor in enumerate(self.layout.tensors):
                segment = self._own_place(TensorSlice(i, 0, tensor.numel()))
                self._whole.append(self.values(segment).view(tensor.shape))
        return self._whole[t]

    def block(self, schedule: Schedule, budget: int) -> list[Segment]:
        """The segments of the next `budget` estimates of the schedule."""
        stretches = schedule.next(budget)
        if self.dense:
            return self._own_places(_merged(stretches) if schedule.ascending else stretches)
        segments = self._in_ring(stretches, self.written)
        return sorted(segments, key=lambda s: s.part) if schedule.ascending else segments

    def remembered(self, schedule: Schedule) -> list[Segment]:
        """The segments of all remembered estimates, in a dense memory also those still zero."""
        if self.dense:
            return self._own_places([(0, self.layout.n)])
        return self._oldest_first(schedule)

    def _oldest_first(self, schedule: Schedule) -> list[Segment]:
        start = schedule.count - min(schedule.count, self.m)
        stretches = list(schedule.refreshed(start, schedule.count))
        if self.dense:
            segments = self._own_places(stretches)
        else:
            segments = self._in_ring(stretches, self._before(stretches))
        distinct = not schedule.repeats and schedule.settled(start)
        return segments if distinct else _latest(segments)

    def _before(self, stretches: list[Stretch]) -> list[int]:
        """The number of estimates of each kind written before those of these stretches."""
        written = list(self.written)
        for stretch in stretches:
            for part in self.layout.slices(*stretch):
                written[self.layout.kind[part.tensor]] -= len(part)
        return written

    def _in_ring(self, stretches: Iterable[Stretch], written: list[int]) -> list[Segment]:
        """The segments of estimates written consecutively."""
        found, head = [], list(written)
        for part in (part for stretch in stretches for part in self.layout.slices(*stretch)):
            k, rest = self.layout.kind[part.tensor], part
            size = len(self.buffers[k])
            while len(rest):
                slot = head[k] % size
                stop = min(rest.stop, rest.start + size - slot)
                taken = TensorSlice(rest.tensor, rest.start, stop)
                found.append(Segment(taken, k, slot))
                head[k] += len(taken)
                rest = TensorSlice(rest.tensor, stop, rest.stop)
        return found

    def _own_places(self, stretches: Iterable[Stretch]) -> list[Segment]:
        return [
            self._own_place(part) for stretch in stretches for part in self.layout.slices(*stretch)
        ]

    def _own_place(self, part: TensorSlice) -> Segment:
        k = self.layout.kind[part.tensor]
        return Segment(part, k, self.layout.kind_offset[part.tensor] + part.start)

    # --- growth -------------------------------------------------------------------------------

    def grow(self, tensors: list[Tensor], schedule: Schedule) -> None:
        """Add tensors at the end of the sweep without losing estimates.

        A dense memory moves the estimates to their own slots. A ring places them so that the latest
        of each kind is just before the slot written next.
        """
        if self.budget is None:
            segments = self.remembered(schedule)
        else:
            segments = self._oldest_first(schedule)
        kept: list[tuple[int, Tensor]] = [(s.buffer, self.values(s).clone()) for s in segments]
        self.layout.extend(tensors)
        self._allocate()
        for k, buffer in enumerate(self.buffers):
            if parts := [values for kind, values in kept if kind == k]:
                estimates = torch.cat(parts)
                first = 0 if self.budget is None else self.written[k] - len(estimates)
                slots = torch.arange(first, first + len(estimates), device=buffer.device)
                buffer[slots % len(buffer)] = estimates
        schedule.grow(self.layout.sizes)

    def _allocate(self) -> None:
        self._whole = []
        self.written += [0] * (len(self.layout.kinds) - len(self.written))
        sizes = (min(self.m, size) for size in self.layout.kind_size)
        self.buffers = [
            torch.zeros(size, dtype=kind.dtype, device=kind.device)
            for size, kind in zip(sizes, self.layout.kinds, strict=True)
        ]
        self.largest = min((torch.finfo(b.dtype).max for b in self.buffers), default=0.0)

    def __getstate__(self) -> State:
        return {**self.__dict__, "_whole": []}  # copies of views would not share memory

    def state_dict(self) -> State:
        buffers = [buffer.clone() for buffer in self.buffers]
        return {"budget": self.budget, "buffers": buffers, "written": list(self.written)}

    def load_state_dict(self, state: State) -> None:
        for buffer, saved in zip(self.buffers, state["buffers"], strict=True):
            buffer.copy_(saved)
        self.written = [int(count) for count in state["written"]]


def _merged(stretches: list[Stretch]) -> list[Stretch]:
    """Sort stretches and join adjacent ones.

    >>> _merged([(4, 5), (1, 2), (0, 1)])
    [(0, 2), (4, 5)]
    """
    found: list[Stretch] = []
    for start, stop in sorted(stretches):
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def _latest(segments: list[Segment]) -> list[Segment]:
    """Keep only the last occurrence of each coordinate."""
    found: list[Segment] = []
    seen: set[tuple[int, int]] = set()
    for (t, start, stop), buffer, slot in reversed(segments):
        for i in reversed(range(start, stop)):
            if (t, i) not in seen:
                seen.add((t, i))
                found.append(Segment(TensorSlice(t, i, i + 1), buffer, slot + i - start))
    return segments if len(found) == sum(len(s.part) for s in segments) else found[::-1]


def _slots(segments: list[Segment]) -> Tensor:
    slots = [slot for s in segments for slot in range(s.slot, s.slot + len(s.part))]
    return torch.tensor(slots, device="cpu")  # whatever the default device is
