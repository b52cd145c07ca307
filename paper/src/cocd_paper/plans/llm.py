"""Fine-tuning a language model without a backward pass: methods x what is trained.

Every method that has a learning rate chooses it on the development rows, from the same grid and
then beside its best rate, by runs of a part of the length with seed 0; then come the full ones.
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
ALL_WEIGHTS = ("mezo", "adam")  # the methods for which a million coordinates are not too many


class Row(NamedTuple):
    """One run, described completely."""

    subset: str
    method: str
    lr: float
    seed: int
    evaluations: int
    tuning: bool

    @property
    def key(self) -> str:
        """Its name among the rows."""
        kind = "tune" if self.tuning else "run"
        return f"{kind} {self.subset} {self.method} lr={self.lr:g} s{self.seed} {self.evaluations}"


def tuning(subset: str, method: str, evaluations: int, rates: Iterable[float]) -> list[Row]:
    """The runs that choose a learning rate."""
    short = round(TUNING * evaluations)
    return [Row(subset, method, lr, 0, short, True) for lr in rates]


def between(lr: float) -> tuple[float, float]:
    """The rates that are tried beside the best of the grid."""
    return float(f"{lr / 3:.1g}"), float(f"{lr * 3:.1g}")


def runs(subset: str, method: str, lr: float, evaluations: int, seeds: Iterable[int]) -> list[Row]:
    """The runs that are reported."""
    return [Row(subset, method, lr, seed, evaluations, False) for seed in seeds]


def pairs(subsets: Iterable[str], methods: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What goes together, cheap subsets first."""
    wanted, methods = set(subsets), set(methods)
    for subset in SUBSETS:
        if subset in wanted:
            for method in METHODS:
                if method in methods and (subset != "all" or method in ALL_WEIGHTS):
                    yield subset, method
