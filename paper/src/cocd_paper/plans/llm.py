"""Fine-tuning a language model without a backward pass: methods x what is trained.

Every method that has a learning rate chooses it on the development rows, by runs of a part of the
length with seed 0: from the same grid, until both neighbours of the best rate are tried, and then
beside it. Then come the full runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

NAME = "llm"
ABOUT = "stories15M on TREC: MeZO, SPSA, CoCD, AutoCoCD and others, by what is trained"

EVALUATIONS = 20_000
TUNING = 0.2  # of the evaluations
GRID = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)

SUBSETS = {
    "head": "head, last two norms",
    "cores-last": "4 x 4 cores of the last layer",
    "lora-last": "LoRA r 4 of the last layer",
    "cores": "4 x 4 cores of all layers",
    "norms": "all norms",
    "lora": "LoRA r 1 of all layers",
    "all": "everything but the embedding",
}
METHODS = {
    "samples": "UnitGradient, a direction per sample, + AdamW",
    "units": "UnitGradient, by units, + AdamW",
    "auto": "AutoCoCD",
    "mezo": "MeZO",
    "spsa": "SPSA, 8 directions",
    "coherent": "CoherentGradient + AdamW",
    "random": "RandomCoordinate",
    "cocd": "CoCD",
    "forward": "forward gradient (JVP)",
    "adam": "Adam, by gradients",
}
WITHOUT_RATE = ("auto",)
SCHEDULES = ("constant", "cosine")  # "cosine" falls to 0 at the end of the run
ALL_WEIGHTS = ("mezo", "adam")  # the methods for which a million coordinates are not too many


def default_schedule(method: str) -> str:
    """The published one; what steps with Adam gets the usual cosine."""
    return "cosine" if method in ("samples", "units", "coherent", "adam") else "constant"


class Row(NamedTuple):
    """One run, described completely."""

    subset: str
    method: str
    lr: float
    seed: int
    evaluations: int
    tuning: bool
    schedule: str = "constant"

    @property
    def key(self) -> str:
        """Its name among the rows."""
        kind = "tune" if self.tuning else "run"
        rate = f"lr={self.lr:g} {self.schedule}"
        return f"{kind} {self.subset} {self.method} {rate} s{self.seed} {self.evaluations}"


class Pair(NamedTuple):
    """A method on a subset, for which a rate is chosen once."""

    subset: str
    method: str
    evaluations: int
    schedule: str

    def tuning(self, rates: Iterable[float]) -> list[Row]:
        """The runs that choose a learning rate."""
        return [self._row(lr, 0, round(TUNING * self.evaluations), True) for lr in rates]

    def runs(self, lr: float, seeds: Iterable[int]) -> list[Row]:
        """The runs that are reported."""
        return [self._row(lr, seed, self.evaluations, False) for seed in seeds]

    def _row(self, lr: float, seed: int, evaluations: int, tuning: bool) -> Row:
        return Row(self.subset, self.method, lr, seed, evaluations, tuning, self.schedule)


def neighbours(lr: float) -> tuple[float, ...]:
    """The rates of the grid beside one of them."""
    place = GRID.index(lr)
    return GRID[max(place - 1, 0) : place] + GRID[place + 1 : place + 2]


def between(lr: float) -> tuple[float, float]:
    """The rates that are tried beside the best of the grid."""
    return float(f"{lr / 3:.1g}"), float(f"{lr * 3:.1g}")


def pairs(
    subsets: Iterable[str], methods: Iterable[str], evaluations: int, schedule: str | None = None
) -> Iterator[Pair]:
    """What goes together, cheap subsets first; `schedule` None is each method's own."""
    wanted, methods = set(subsets), set(methods)
    for subset in SUBSETS:
        if subset in wanted:
            for method in METHODS:
                if method in methods and (subset != "all" or method in ALL_WEIGHTS):
                    fitting = "constant" if method in WITHOUT_RATE else schedule
                    yield Pair(subset, method, evaluations, fitting or default_schedule(method))
