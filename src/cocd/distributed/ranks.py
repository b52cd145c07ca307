"""The process group: names and slices of ranks, and all-gathers of 64-bit words."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

_TEXT = 1024  # the most bytes of a failed rank's message that others receive


class RankError(RuntimeError):
    """A rank failed, died, or disagrees with the others.

    Every rank raises it, except that a failed rank raises its own error. The parameters, memory and
    position of all ranks are as they were before the step.
    """


class Header(NamedTuple):
    """What every rank reports in each exchange, one word per field."""

    step: int
    failed: int
    loss: int  # the bits of the loss at the point that all ranks evaluate
    probes: int  # the total over all ranks
    # Checksums of the state at the beginning of the step; 0 if no check is due.
    parameters: int = 0
    optimizer: int = 0
    random: int = 0
    buffers: int = 0

    @property
    def digests(self) -> tuple[int, ...]:
        return self[4:]


class Ranks:
    """The ranks of a group, seen from this rank."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise ValueError(
                "group: torch.distributed is not initialised; call "
                "torch.distributed.init_process_group first, in a script started by torchrun"
            )
        self._group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError(
                f"group: this process, global rank {dist.get_rank()}, is not in it; make a Shard "
                "on its members alone"
            )
        # NCCL sends GPU tensors, other backends send CPU tensors.
        nccl = dist.get_backend(group) == "nccl"
        self._device = torch.device("cuda", torch.cuda.current_device()) if nccl else "cpu"
        self._room = 0  # payload words sent with a header: the most needed so far

    def name(self, rank: int) -> str:
        """The name of a rank in messages."""
        if self._group is None:
            return f"rank {rank} of {self.size}"
        known = dist.get_global_rank(self._group, rank)
        return f"rank {rank} of {self.size} (global rank {known})"

    def slice(self, count: int, rank: int | None = None) -> range:
        """A rank's share of `count` probes: contiguous, with sizes that differ by at most one."""
        rank = self.rank if rank is None else rank
        return range(count * rank // self.size, count * (rank + 1) // self.size)

    # --- exchanges -------------------------------------------------------------------------------

    def gather(self, words: Tensor) -> Tensor:
        """All-gather the same number of words from every rank, one row per rank."""
        words = words.to(self._device)
        found = [torch.empty_like(words) for _ in range(self.size)]
        try:
            dist.all_gather(found, words, group=self._group)
        except RuntimeError as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise RankError(
                f"the ranks cannot be reached ({said}); one of them has died or hangs. This rank "
                "has not moved its parameters"
            ) from error
        return torch.stack(found).cpu()

    def gather_headers(self, header: Header, payload: Tensor) -> tuple[list[Header], Tensor]:
        """All-gather the headers, and as much of each payload as fits the agreed room.

        A failed rank does not know how much the others must send, so the room cannot depend on this
        step: it is what earlier steps have needed.
        """
        size = len(header)
        words = torch.zeros(size + self._room, dtype=torch.int64)
        words[:size] = torch.tensor(header)
        sent = payload[: self._room]
        words[size : size + len(sent)] = sent
        found = self.gather(words)
        return [Header(*row) for row in found[:, :size].tolist()], found[:, size:]

    def gather_rest(self, found: Tensor, payload: Tensor, each: int) -> Tensor:
        """The payloads, padded to `each` words; `found` has the part sent with the headers."""
        if each > self._room:
            words = torch.zeros(each - self._room, dtype=torch.int64)
            sent = payload[self._room :]
            words[: len(sent)] = sent
            found = torch.cat([found, self.gather(words)], 1)
            self._room = each
        return found[:, :each].contiguous()

    def gather_texts(self, text: str) -> list[str]:
        """All-gather a text from every rank; long texts are truncated."""
        words = torch.zeros(_TEXT, dtype=torch.uint8)
        said = text.encode("utf-8", "replace")[:_TEXT]
        words[: len(said)] = torch.tensor(list(said), dtype=torch.uint8)
        rows = self.gather(words.view(torch.int64)).view(torch.uint8)
        return [bytes(row.tolist()).rstrip(b"\0").decode("utf-8", "ignore") for row in rows]
