"""`ShardedLoss`: the exchange between ranks in a step, and its failures."""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import ceil, isfinite, isnan, nan
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..objective.protocol import (
    BoundLoss,
    Difference,
    Differences,
    ForwardedLoss,
    LossValue,
    Request,
    evaluations_per_coordinate,
)
from ..parts.evaluation import Evaluations, scalar
from .ranks import Header, RankError
from .state import PARTS, odd_one, state

if TYPE_CHECKING:
    from .shard import Shard

_UNCHANGED = "no rank has moved its parameters"


def _cut(requests: list[Request], mine: range) -> Iterator[Request]:
    """The requests restricted to the coordinates with the consecutive numbers `mine`."""
    first = 0
    for request in requests:
        start, stop = max(mine.start - first, 0), min(mine.stop - first, len(request.elements))
        if start < stop:
            yield request._replace(elements=request.elements[start:stop])
        first += len(request.elements)


class ShardedLoss(ForwardedLoss):
    """A loss of which each rank evaluates a share of the coordinates or directions of a step.

    Every rank evaluates a loss that all need, such as the loss at a trial point.
    """

    def __init__(self, shard: Shard, inner: BoundLoss) -> None:
        super().__init__(inner)
        self._shard = shard
        self._ranks = shard.ranks
        self._rewind: Callable[[], None] = lambda: None
        self._loss = nan
        self._digests: tuple[int, ...] = ()

    def prepare(self, rewind: Callable[[], None]) -> LossValue:
        """The loss at the unperturbed point, which every rank evaluates."""
        with self._telling_of_failure():
            self._begin(rewind)
            value = self.inner.prepare(rewind)
            self._loss = scalar(value)
        if not isfinite(self._loss):  # no probes follow, so compare the ranks here
            self._exchange(torch.zeros(0, 1, dtype=torch.float64), 0)
        return value

    def block_differences(
        self, evaluate: Evaluations, loss: float, requests: list[Request], difference: Difference
    ) -> list[Differences]:
        """The differences of all coordinates of a step; this rank evaluates its slice."""
        sizes = [len(request.elements) for request in requests]
        count, central = sum(sizes), difference == "central"
        mine = self._ranks.slice(count)
        values = torch.zeros(0, 1 + central, dtype=torch.float64)
        with self._telling_of_failure():
            if mine:
                own = list(_cut(requests, mine))
                found = self.inner.block_differences(evaluate, loss, own, difference)
                columns = ([part for part in answer if part is not None] for answer in found)
                values = torch.cat([torch.stack(column, 1) for column in columns])
            evaluate.interrupts.deliver()  # so that a waiting Ctrl-C stops all ranks or none
        values = self._exchange(values, count)
        evaluate.charge(evaluations_per_coordinate(difference) * (count - len(mine)))
        parts = torch.split(values, sizes)
        return [Differences(part[:, 0], part[:, 1] if central else None) for part in parts]

    def directional_losses(
        self,
        evaluate: Evaluations,
        count: int,
        evaluate_some: Callable[[Container[int]], list[float]],
    ) -> list[float]:
        """The `count` losses of a step along directions; this rank evaluates its slice.

        Every rank evaluates the first loss: it decides the random numbers and buffers after the
        step, and it shows whether all ranks have the same batch.
        """
        mine = [k + 1 for k in self._ranks.slice(count - 1)]
        with self._telling_of_failure():
            self._begin(evaluate.rewind)
            found = evaluate_some({0, *mine})
            self._loss = found[0]
            evaluate.interrupts.deliver()
        values = torch.tensor([[found[k]] for k in mine], dtype=torch.float64).view(-1, 1)
        values = self._exchange(values, count - 1)
        evaluate.charge(count - 1 - len(mine))
        return [self._loss, *values[:, 0].tolist()]

    def is_shared(self) -> bool:
        return True

    # --- what is said between ranks --------------------------------------------------------------

    def _begin(self, rewind: Callable[[], None]) -> None:
        self._rewind = rewind
        self._shard.steps += 1
        due = (self._shard.steps - 1) % self._shard.check_every == 0
        self._digests = self._state() if due else ()

    def _state(self) -> tuple[int, ...]:
        optimizer = self._shard.optimizer
        known = self.modules() if optimizer.modules is None else optimizer.modules
        return state(optimizer, known)

    def _header(self, count: int, failed: bool = False) -> Header:
        loss = nan if isnan(self._loss) else self._loss  # the same bits for every NaN
        (word,) = struct.unpack("<q", struct.pack("<d", loss))
        step = self._shard.steps
        return Header(step, int(failed), word, count, *self._digests)

    def _exchange(self, values: Tensor, count: int) -> Tensor:
        """Combine the `values` of all ranks into `count` rows, or raise on all ranks."""
        columns = values.shape[1]
        payload = values.flatten().view(torch.int64)
        headers, found = self._ranks.gather_headers(self._header(count), payload)
        self._compare(headers)
        each = ceil(count / self._ranks.size) * columns
        rows = self._ranks.gather_rest(found, payload, each).view(torch.float64)
        sizes = [len(self._ranks.slice(count, rank)) * columns for rank in range(self._ranks.size)]
        return torch.cat([row[:size] for row, size in zip(rows, sizes, strict=True)]).view(
            -1, columns
        )

    @contextmanager
    def _telling_of_failure(self) -> Iterator[None]:
        """Report errors raised inside to the other ranks, which wait for this rank's slice."""
        try:
            yield
        except BaseException as error:
            lines = str(error).strip().splitlines()
            said = ": ".join([type(error).__name__, *lines[:1]])
            with suppress(RankError):  # raise the original error even if ranks cannot be reached
                nothing = torch.zeros(0, dtype=torch.int64)
                self._ranks.gather_headers(self._header(0, failed=True), nothing)
                self._ranks.gather_texts(said)
            raise

    # --- what can be wrong -----------------------------------------------------------------------

    def _compare(self, headers: list[Header]) -> None:
        """Raise on every rank unless all ranks agree."""
        step, name = self._shard.steps, self._ranks.name
        if failed := [rank for rank, header in enumerate(headers) if header.failed]:
            said = self._ranks.gather_texts("")[failed[0]]
            raise RankError(f"{name(failed[0])} failed at step {step}: {said}; {_UNCHANGED}")
        if odd := odd_one([header.step for header in headers]):
            there, here = (headers[rank].step for rank in odd)
            raise RankError(
                f"{name(odd[0])} is at step {there}, {name(odd[1])} at step {here}: all ranks must "
                f"take the same steps; {_UNCHANGED}"
            )
        self._compare_states([header.digests for header in headers])
        if odd := odd_one([header.loss for header in headers]):
            self._tell_losses_apart(headers, *odd)
        if odd := odd_one([header.probes for header in headers]):
            there, here = (headers[rank].probes for rank in odd)
            raise RankError(
                f"{name(odd[0])} makes {there} probes where {name(odd[1])} makes {here}, at step "
                f"{step}: the optimizer must have the same options on all ranks; {_UNCHANGED}"
            )

    def _tell_losses_apart(self, headers: list[Header], odd: int, usual: int) -> None:
        """Find out whether states or batches explain different losses, and raise."""
        there, here = (
            struct.unpack("<d", struct.pack("<q", headers[rank].loss))[0] for rank in (odd, usual)
        )
        problem = (
            f"{self._ranks.name(odd)} has a loss of {there!r} at step {self._shard.steps}, "
            f"{self._ranks.name(usual)} one of {here!r} at the same point"
        )
        self._rewind()
        words = torch.tensor(self._state())
        self._compare_states(self._ranks.gather(words).tolist(), f"{problem}; ")
        raise RankError(
            f"{problem}, from the same parameters: it has another batch, or it computes "
            "differently; give all ranks the same batches, and the same threads and hardware; "
            f"{_UNCHANGED}"
        )

    def _compare_states(self, digests: Sequence[Sequence[int]], problem: str = "") -> None:
        for (part, remedy), column in zip(PARTS.items(), zip(*digests, strict=True), strict=True):
            if odd := odd_one(column):
                there, here = map(self._ranks.name, odd)
                raise RankError(
                    f"{problem}{there} differs from {here} in the {part}, found at step "
                    f"{self._shard.steps}; {remedy}; {_UNCHANGED}"
                )
