"""Compare AutoCoCD with the best of the other methods, problem by problem."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan
from statistics import median
from typing import NamedTuple

from .measure import Row

_SOLVED = 1e-3  # of the loss at the start: added to both losses, so that smaller ones hardly differ
_CLOSE, _FAR = 1.2, 2.0


class Line(NamedTuple):
    """Medians over the seeds, on training rows and on others."""

    problem: str
    held_out: bool
    n: int
    start: float
    train: float
    test: float
    peer: str
    rate: float
    peer_train: float
    peer_test: float

    @property
    def ratio(self) -> float:
        """Of training losses, each with a thousandth of that at the start added."""
        return _ratio(self.train, self.peer_train, self.start)

    @property
    def test_ratio(self) -> float:
        return _ratio(self.test, self.peer_test, self.start)


def _ratio(ours: float, theirs: float, start: float) -> float:
    return (ours + _SOLVED * start) / (theirs + _SOLVED * start)


def score(row: Row, name: str = "train") -> float:
    """The loss at the end; infinite where it diverged."""
    value = row[name]
    return inf if value is None else float(value)


def lines(rows: Sequence[Row]) -> list[Line]:
    """One line for each problem with rows of AutoCoCD and of another method.

    It compares AutoCoCD with the method furthest ahead, over the seeds with this method's rate.
    """
    found = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        own = [row for row in rows if row["problem"] == problem]
        ours = {row["seed"]: row for row in own if row["method"] == "AutoCoCD"}
        kinds: dict[tuple[str, float], list[Row]] = {}
        for row in own:
            if row["method"] != "AutoCoCD" and row["seed"] in ours:
                kinds.setdefault((row["method"], row["rate"]), []).append(row)
        beside = [_line([ours[row["seed"]] for row in kind], kind) for kind in kinds.values()]
        if beside:
            found.append(max(beside, key=lambda line: line.ratio))
    return found


def _line(ours: Sequence[Row], theirs: Sequence[Row]) -> Line:
    first, peer = ours[0], theirs[0]
    return Line(
        first["problem"],
        first["held_out_problem"],
        first["n"],
        median(row["start"] for row in ours),
        _median(ours, "train"),
        _median(ours, "test"),
        peer["method"],
        peer["rate"],
        _median(theirs, "train"),
        _median(theirs, "test"),
    )


def _median(rows: Sequence[Row], name: str) -> float:
    return median(score(row, name) for row in rows)


def markdown(rows: Sequence[Row]) -> str:
    """A table of all lines, and how many of them are close."""
    out = [
        "| problem | n | at the start | AutoCoCD | held-out rows | best other | its rate "
        "| its loss | held-out rows | ratio | held-out rows |",
        "| :-- | --: | --: | --: | --: | :-- | --: | --: | --: | --: | --: |",
    ]
    found = sorted(lines(rows), key=lambda line: (line.held_out, line.problem))
    for line in found:
        out.append(
            f"| {line.problem}{' *' if line.held_out else ''} | {line.n:,} | {line.start:.3g} "
            f"| {line.train:.3g} | {line.test:.3g} | {line.peer} | {line.rate:g} "
            f"| {line.peer_train:.3g} | {line.peer_test:.3g} | {line.ratio:.2f} "
            f"| {line.test_ratio:.2f} |"
        )
    for name, chosen in (
        ("All", found),
        ("Looked at", [line for line in found if not line.held_out]),
        ("Held out (*)", [line for line in found if line.held_out]),
    ):
        if chosen:
            out.append("\n" + _summary(name, [line.ratio for line in chosen]))
            out.append(_summary("on held-out rows", [line.test_ratio for line in chosen]))
    return "\n".join(out)


def _summary(name: str, ratios: Sequence[float]) -> str:
    close = sum(ratio <= _CLOSE for ratio in ratios)
    far = sum(ratio > _FAR for ratio in ratios)
    worst = max(ratios, default=nan)
    return (
        f"{name}: {close} of {len(ratios)} within {_CLOSE:g}, {far} above {_FAR:g}, "
        f"worst {worst:.2f}, median {median(ratios):.2f}."
    )
