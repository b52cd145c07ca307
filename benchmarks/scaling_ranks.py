"""How a step's time would fall with the number of ranks: a simulation from measured parts.

Measured on this machine, one thread a rank: what a step takes of a rank's processor (the
unperturbed pass, a slice of the probes, the update) for every size of a slice, and exchanges
of `cocd.distributed` between two local ranks. Modelled: how an exchange grows with the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil, log2
from statistics import fmean, median
from typing import NamedTuple

import torch

from cocd.distributed.ranks import Header

from .lane import Lane, accelerator
from .measure import Report, Row
from .two_ranks import Plan, measure, positions, seconds
from .workloads import MNIST, SARCOS, Workload

RANKS = tuple(2**k for k in range(11))  # 1 to 1,024
POSITIONS = 6
ROUNDS = 2  # the first checks the engines and compiles
REPEATS = 1000
WORDS = (16, 64, 256, 1024, 4096)
_COLUMNS = 2  # first and second differences
_SOME = 4  # probes of a closure that are measured
_SAMPLED = 4  # ranks whose slices of a block are measured, at most


class Line(NamedTuple):
    """A straight line through times of exchanges: seconds, and seconds for each byte sent."""

    latency: float
    per_byte: float


def fit(sizes: Sequence[int], times: Sequence[float]) -> Line:
    """The line of least relative error: small messages must not be lost beside large ones.

    >>> line = fit([128, 512, 8192], [1e-4 + 1e-9 * size for size in (128, 512, 8192)])
    >>> round(line.latency, 9), round(line.per_byte, 12)
    (0.0001, 1e-09)
    """
    y = torch.tensor(times, dtype=torch.float64)
    x = torch.tensor(sizes, dtype=torch.float64)
    a = torch.stack([torch.ones_like(x), x], 1) / y[:, None]
    latency, per_byte = torch.linalg.lstsq(a, torch.ones_like(y)[:, None]).solution[:, 0].tolist()
    # A negative part is noise: the line of least relative error is then the best with one part.
    if per_byte < 0:
        return Line(median(times), 0.0)
    if latency < 0:
        slopes = x / y
        return Line(0.0, (slopes.sum() / (slopes**2).sum()).item())
    return Line(latency, per_byte)


def exchange(line: Line, ranks: int, probes: int) -> tuple[float, float]:
    """Modelled seconds of one exchange: by recursive doubling, and around a ring.

    Either way a rank receives the messages of all others; what differs is how many times it has
    to wait for one: log2 of the ranks, or one less than their number.
    """
    size = message_bytes(ranks, probes)
    received = (ranks - 1) * size * line.per_byte
    return ceil(log2(ranks)) * line.latency + received, (ranks - 1) * line.latency + received


def message_bytes(ranks: int, probes: int) -> int:
    """What a rank sends in an exchange for `probes` coordinates, central differences.

    >>> message_bytes(2, 64), message_bytes(1024, 64)
    (576, 80)
    """
    return 8 * (len(Header._fields) + _COLUMNS * ceil(probes / ranks))


def exchanges_per_step(sizes: Sequence[int], budget: int) -> float:
    """The mean number of tensors that a block touches over a cycle: one exchange for each.

    >>> exchanges_per_step([6, 4], 5)
    1.5
    """
    starts = [sum(sizes[:t]) for t in range(len(sizes) + 1)]
    blocks = [(at, min(at + budget, starts[-1])) for at in range(0, starts[-1], budget)]
    touched = sum(
        starts[t] < stop and starts[t + 1] > start
        for start, stop in blocks
        for t in range(len(sizes))
    )
    return touched / len(blocks)


def scaling_ranks(
    lanes: Sequence[tuple[str, Workload]] | None = None,
    *,
    ranks: Sequence[int] = RANKS,
    sizes: Sequence[int] = WORDS,
    count: int = POSITIONS,
    rounds: int = ROUNDS,
    repeats: int = REPEATS,
    report: Report = lambda *_: None,
) -> list[Row]:
    """A row for each lane and number of ranks."""
    lanes = default_lanes() if lanes is None else lanes
    shared = [lane for lane in lanes if lane[0] != "sequential"]
    report("ranks: two real ones", 0.0)
    found = measure(Plan(sizes, repeats, shared, count, rounds))
    line = fit([8 * words for words in sizes], found.exchanges)
    together = dict(zip(((e, w.name) for e, w in shared), found.steps, strict=True))
    rows: list[Row] = []
    for i, (engine, workload) in enumerate(lanes):
        report(f"ranks: {workload.name}, {engine}", 0.3 + 0.7 * i / len(lanes))
        with _one_thread():
            lane = Lane(engine, workload.model(), workload.loss, workload.data(), workload.settings)
            own = _own(lane, workload, ranks, count, rounds)
        rows += _rows(lane, workload, own, line, ranks, together.get((engine, workload.name)))
    report("ranks: done", 1.0)
    return rows


def default_lanes() -> list[tuple[str, Workload]]:
    """Two of the paper's networks as fast as they go, and one through an ordinary closure."""
    fast = "accelerated" if accelerator() else "incremental"
    return [(fast, SARCOS), (fast, MNIST), ("sequential", MNIST)]


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _own(
    lane: Lane, workload: Workload, ranks: Sequence[int], count: int, rounds: int
) -> dict[int, float]:
    """Processor seconds of a step that probes a slice, by the size of the slice.

    That of the slowest rank, among some of them, on average over blocks of the flat vector.
    """
    budget = workload.compute_budget
    blocks = positions(lane.n, budget, count)
    if lane.engine == "sequential":
        # The probes of a closure cost the same each: a few are measured, more are multiples.
        one, some = (fmean(seconds(lane, size, blocks, rounds)) for size in (1, 1 + _SOME))
        slices = {ceil(budget / r) for r in ranks}
        return {size: one + (size - 1) * (some - one) / _SOME for size in slices}
    own = {}
    for size, r in {ceil(budget / r): min(r, budget) for r in reversed(ranks)}.items():
        offsets = [budget * rank // r for rank in positions(r, 1, min(r, _SAMPLED))]
        places = [block + offset for block in blocks for offset in offsets]
        found = seconds(lane, size, places, rounds)
        own[size] = fmean(
            max(found[k : k + len(offsets)]) for k in range(0, len(found), len(offsets))
        )
    return own


def _rows(
    lane: Lane,
    workload: Workload,
    own: dict[int, float],
    line: Line,
    ranks: Sequence[int],
    measured: float | None = None,
) -> list[Row]:
    budget = workload.compute_budget
    exchanges = exchanges_per_step(list(lane.sizes.values()), budget)
    rows = []
    for r in ranks:
        size = ceil(budget / r)
        doubling, ring = exchange(line, r, budget)
        step = own[size] + exchanges * doubling
        rows.append(
            {
                "workload": workload.name,
                "engine": lane.engine,
                "parameters": lane.n,
                "compute_budget": budget,
                "ranks": r,
                "slice": size,
                "rank_seconds": own[size],
                "measured_rank_seconds": measured if r == 2 else None,  # in a real shared step
                "exchange_seconds": exchanges * doubling,
                "step_seconds": step,
                "speedup": own[budget] / step,
                "ring_step_seconds": own[size] + exchanges * ring,
                "exchanges_per_step": exchanges,
                "bytes_per_rank": message_bytes(r, budget),
                "latency_seconds": line.latency,
                "seconds_per_byte": line.per_byte,
                "threads_per_rank": 1,
            }
        )
    return rows


# --- what the rows say -----------------------------------------------------------------------


def by_lane(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows of each workload and engine, in order."""
    lanes: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        lanes.setdefault((row["workload"], row["engine"]), []).append(row)
    return lanes


def dominates_from(rows: list[Row], step: str = "step_seconds") -> int | None:
    """The first number of ranks at which communication takes more than half of a step."""
    return next((row["ranks"] for row in rows if row[step] > 2 * row["rank_seconds"]), None)


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Milliseconds a step over ranks, a column for each lane."""
    lanes = by_lane(rows)
    columns = ["ranks", *(f"{workload}, {engine}" for workload, engine in lanes)]
    cells = [
        [f"{at[0]['ranks']:,}", *(f"{_milliseconds(row)} ({_share(row):.0%})" for row in at)]
        for at in zip(*lanes.values(), strict=True)
    ]
    return columns, cells


def _from(ranks: int | None) -> str:
    return "nowhere" if ranks is None else f"from {ranks:,} ranks on"


def _milliseconds(row: Row) -> str:
    value = 1e3 * row["step_seconds"]
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _share(row: Row) -> float:
    return float(row["exchange_seconds"] / row["step_seconds"])


def summary(rows: list[Row]) -> list[str]:
    """What the rows say, in sentences."""
    line = rows[0]
    sentences = [
        f"An exchange between two ranks: {1e6 * line['latency_seconds']:,.0f} µs and "
        f"{1e9 * line['seconds_per_byte']:,.2f} ns a byte (measured)."
    ]
    for (workload, engine), mine in by_lane(rows).items():
        best = max(mine, key=lambda row: row["speedup"])
        doubling, ring = dominates_from(mine), dominates_from(mine, "ring_step_seconds")
        sentences.append(
            f"{workload}, {engine}: {_milliseconds(mine[0])} ms a step on one rank, "
            f"{_milliseconds(best)} on {best['ranks']:,}, which is the best "
            f"({best['speedup']:,.1f} times faster); communication is more than half "
            f"{_from(doubling)}, on a ring {_from(ring)}."
        )
        for row in mine:
            if row["measured_rank_seconds"]:
                real, alone = 1e3 * row["measured_rank_seconds"], 1e3 * row["rank_seconds"]
                sentences[-1] += (
                    f" Of the slower of two real ranks a step takes {real:,.1f} ms of its "
                    f"processor, of a process that makes such slices alone {alone:,.1f}."
                )
    return sentences
