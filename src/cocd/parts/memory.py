"""What is remembered: the estimates of the m coordinates refreshed last, decayed as they age."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .layout import Layout, TensorSlice
from .schedule import Cyclic, Schedule, Stretch

_MANY = 4  # segments: so many are written as single numbers in one operation


class Segment(NamedTuple):
    """Coordinates ``start:stop`` of a tensor, whose estimates lie in a buffer from `slot` on."""

    part: TensorSlice
    buffer: int
    slot: int


class Memory:
    """A ring of m estimates for each kind (device and dtype) of parameter; usually there is one.

    The k-th refresh of a coordinate of a kind is written to slot ``k mod m``, so that a fresh
    estimate takes the place of the oldest. With m = n that slot is the coordinate's own, which
    is used directly (and stays true when coordinates join): `dense`.
    """

    def __init__(self, layout: Layout, budget: int | None) -> None:
        self.layout = layout
        self.budget = budget
        self.buffers: list[Tensor] = []
        self.largest = 0.0  # that every buffer can hold
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
        """Every remembered estimate times its parameter's gamma (eq. 5)."""
        factors = {gamma(tensor) for tensor in self.layout.tensors}
        if len(factors) == 1:
            factor = factors.pop()
            if factor != 1.0:
                for buffer in self.buffers:
                    buffer.mul_(factor)
            return
        for segment in self.remembered(schedule):
            self.values(segment).mul_(gamma(self.layout.tensors[segment.part.tensor]))

    def write(self, segments: Iterable[Segment], fresh: Tensor, finite: bool = False) -> None:
        """Overwrite with the fresh estimates (eq. 6); where one is NaN the old one stays.

        `finite` says that all are known to be finite in the buffers' dtypes.
        """
        segments = list(segments)
        if finite and len(segments) > _MANY and len(self.buffers) == 1:
            self.buffers[0][_slots(segments)] = fresh.to(self.buffers[0])
            return
        position = 0
        for segment in segments:
            values = self.values(segment)
            new = fresh[position : position + len(segment.part)]
            if not finite:
                new = new.to(values)
                # In a ring the slot held another coordinate's estimate, which has had its time.
                old = values if self.dense else torch.zeros_like(values)
                new = torch.where(new.isfinite(), new, old)
            values.copy_(new)
            position += len(segment.part)

    def read(self, segments: Iterable[Segment]) -> Tensor:
        """The estimates of a block as they are remembered, on the CPU in double precision."""
        segments = list(segments)
        if len(self.buffers) == 1:
            return self.buffers[0][_slots(segments)].double().cpu()
        return torch.cat([self.values(segment).double().cpu() for segment in segments])

    # --- where things are ---------------------------------------------------------------------

    def values(self, segment: Segment) -> Tensor:
        return self.buffers[segment.buffer][segment.slot : segment.slot + len(segment.part)]

    def whole(self, t: int) -> Tensor:
        """All estimates of one tensor, in its shape. Of a dense memory only."""
        if not self._whole:  # views that are made once: there are as many as tensors, every step
            for i, tensor in enumerate(self.layout.tensors):
                segment = self._own_place(TensorSlice(i, 0, tensor.numel()))
                self._whole.append(self.values(segment).view(tensor.shape))
        return self._whole[t]

    def block(self, schedule: Schedule, budget: int) -> list[Segment]:
        """Where the next `budget` estimates of the schedule go."""
        return list(self._places(schedule, schedule.next(budget), age=0))

    def remembered(self, schedule: Schedule) -> list[Segment]:
        """All that is remembered (in a dense memory also what is still zero)."""
        if self.dense:
            return [self._own_place(part) for part in self.layout.slices(0, self.layout.n)]
        return list(self._oldest_first(schedule))

    def _oldest_first(self, schedule: Schedule) -> Iterator[Segment]:
        assert isinstance(schedule, Cyclic)  # any other order keeps a dense memory
        age = min(schedule.count, self.m)
        stretches = schedule.order(schedule.count - age, schedule.count)
        return self._places(schedule, stretches, age)

    def _places(
        self, schedule: Schedule, stretches: Iterable[Stretch], age: int
    ) -> Iterator[Segment]:
        """Where the estimates of `stretches` lie, the first of them `age` refreshes ago."""
        parts = (part for stretch in stretches for part in self.layout.slices(*stretch))
        if self.dense:
            yield from map(self._own_place, parts)
            return
        assert isinstance(schedule, Cyclic)
        kinds = range(len(self.layout.kinds))
        head = [schedule.seen(schedule.count - age, self.layout.counter(k)) for k in kinds]
        for part in parts:
            k = self.layout.kind[part.tensor]
            size = len(self.buffers[k])
            while len(part):
                slot = head[k] % size
                taken = TensorSlice(
                    part.tensor, part.start, min(part.stop, part.start + size - slot)
                )
                yield Segment(taken, k, slot)
                head[k] += len(taken)
                part = TensorSlice(part.tensor, taken.stop, part.stop)

    def _own_place(self, part: TensorSlice) -> Segment:
        k = self.layout.kind[part.tensor]
        return Segment(part, k, self.layout.kind_offset[part.tensor] + part.start)

    # --- growth -------------------------------------------------------------------------------

    def grow(self, tensors: list[Tensor], schedule: Schedule) -> None:
        """New tensors join the sweep at its end; nothing remembered is lost.

        The estimates are laid anew from the first slot of each buffer on: in their own places
        where every coordinate has one, otherwise by age.
        """
        stays_dense = self.budget is None
        segments = self.remembered(schedule) if stays_dense else self._oldest_first(schedule)
        kept: list[tuple[int, Tensor]] = [(s.buffer, self.values(s).clone()) for s in segments]
        self.layout.extend(tensors)
        schedule.grow(self.layout.n)
        if not stays_dense:
            assert isinstance(schedule, Cyclic)
            schedule.forget(sum(len(values) for _, values in kept))
        self._allocate()
        for k, buffer in enumerate(self.buffers):
            if parts := [values for kind, values in kept if kind == k]:
                estimates = torch.cat(parts)
                buffer[: len(estimates)] = estimates

    def _allocate(self) -> None:
        self._whole = []
        sizes = (min(self.m, size) for size in self.layout.kind_size)
        self.buffers = [
            torch.zeros(size, dtype=kind.dtype, device=kind.device)
            for size, kind in zip(sizes, self.layout.kinds, strict=True)
        ]
        self.largest = min((torch.finfo(b.dtype).max for b in self.buffers), default=0.0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_whole": []}  # a copy of a view would be no view

    def state_dict(self) -> dict[str, Any]:
        return {"budget": self.budget, "buffers": [b.clone() for b in self.buffers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for buffer, saved in zip(self.buffers, state["buffers"], strict=True):
            buffer.copy_(saved)


def _slots(segments: list[Segment]) -> Tensor:
    slots = [slot for s in segments for slot in range(s.slot, s.slot + len(s.part))]
    return torch.tensor(slots, device="cpu")  # whatever the default device is
