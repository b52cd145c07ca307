"""Runs that differ in their seed alone, and the statistics over these seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf, log, sqrt
from statistics import fmean, stdev
from typing import Any

from .read import Result, Row

FIRST_ORDER = ("sgd", "adam", "adamw")
_METHODS = ("cocd", "auto", "bccd", "random", "spsa", "zosgd", "mezo", *FIRST_ORDER)
_ACTIVATIONS = {"cifar10-resnet": "relu"}  # elsewhere tanh
_TASKS = ("sarcos", "mnist", "cifar10", "cifar10-resnet")
_IDENTITY = ("plan", "task", "method", "label", "group", "vary", "split", "smoke", "settings")
_BUDGET = ("epochs", "steps_per_epoch")


@dataclass(frozen=True)
class Spread:
    """Mean, range and standard deviation of some values."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean."""
        return fmean(self.values)

    @property
    def low(self) -> float:
        """The smallest."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest."""
        return max(self.values)

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the sample; one value has none."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Point:
    """One place of a curve: where, and the values of the seeds that have one there."""

    x: float
    y: Spread


@dataclass(frozen=True)
class Series:
    """The results of one setting, by seed. `accuracy`: the metric is one, so more is better."""

    results: tuple[Result, ...]
    accuracy: bool

    @property
    def run(self) -> Row:
        """What all its runs have in common (and the seed of the first)."""
        return self.results[0].run

    @property
    def plan(self) -> str:
        """The plan."""
        return str(self.run["plan"])

    @property
    def task(self) -> str:
        """The task; another network or other rows than the plans' make another one of it."""
        name, activation = str(self.run["task"]), self.settings.get("activation")
        parts = [name]
        # The networks of the adaptive plan differ on purpose, and its labels say how.
        if activation not in (None, _ACTIVATIONS.get(name, "tanh")) and self.plan != "adaptive":
            parts.append(str(activation))
        if self.run["split"] == "published":
            parts.append("published rows")
        return ", ".join(parts)

    @property
    def as_planned(self) -> bool:
        """Whether network and rows are those that the plans are made for."""
        return bool(self.task == self.run["task"])

    @property
    def method(self) -> str:
        """The method."""
        return str(self.run["method"])

    @property
    def label(self) -> str:
        """What the report calls it."""
        return str(self.run["label"])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings."""
        return dict(self.run["settings"])

    @property
    def first_order(self) -> bool:
        """Whether it uses exact gradients, so that its evaluations mean something else."""
        return self.method in FIRST_ORDER

    @property
    def epochs(self) -> int:
        """The epochs that were asked for."""
        return int(self.run["epochs"])

    @property
    def status(self) -> str:
        """``diverged`` or ``unfinished`` if one of its runs is, else ``done``."""
        states = [result.status for result in self.results]
        return next((s for s in ("unfinished", "diverged") if s in states), "done")

    @cached_property
    def diverged(self) -> tuple[Result, ...]:
        """The runs that diverged."""
        return tuple(result for result in self.results if result.status == "diverged")

    @cached_property
    def reached(self) -> int:
        """The last epoch that every run which did not diverge has."""
        kept = [r for r in self.results if r.status != "diverged"]
        return min((r.epochs[-1]["epoch"] if r.epochs else 0 for r in kept), default=0)

    def at(self, epoch: int, key: str = "metric") -> Spread | None:
        """`key` at `epoch`, over the runs that did not diverge; None if a value is missing."""
        values = [
            row.get(key)
            for result in self.results
            if result.status != "diverged"
            for row in result.epochs
            if row["epoch"] == epoch
        ]
        kept = [value for value in values if value is not None]
        return Spread(tuple(kept)) if kept and len(kept) == len(values) else None

    @property
    def final(self) -> Spread | None:
        """The metric at the last common epoch."""
        return self.at(self.reached)

    def curve(self, y: str, x: str = "epoch") -> list[Point]:
        """`y` over `x`, epoch by epoch; x is a mean over the seeds, too."""
        return self.collect(lambda row: row.get(x), lambda row: row.get(y))

    def collect(
        self, x: Callable[[Row], float | None], y: Callable[[Row], float | None]
    ) -> list[Point]:
        """A curve of anything that can be had from an epoch row."""
        places: dict[int, list[tuple[float, float]]] = {}
        for result in self.results:
            for row in result.epochs:
                at, value = x(row), y(row)
                if at is not None and value is not None:
                    places.setdefault(row["epoch"], []).append((at, value))
        return [
            Point(fmean(at for at, _ in pairs), Spread(tuple(value for _, value in pairs)))
            for _, pairs in sorted(places.items())
        ]

    def total(self, key: str) -> Spread | None:
        """`key` (evaluations, seconds) where each run ended, over the runs that have it."""
        values = [result.last.get(key) for result in self.results]
        kept = tuple(value for value in values if value is not None)
        return Spread(kept) if kept else None

    @property
    def level(self) -> float:
        """The final loss or error: less is better; what diverged, in one seed or all, is last."""
        if self.diverged or self.final is None:
            return inf
        return 1 - self.final.mean if self.accuracy else self.final.mean

    @property
    def ended(self) -> bool:
        """Whether all its runs came to the end of the plan, and to a value."""
        return self.status == "done" and self.final is not None and self.reached == self.epochs

    @property
    def seconds_per_epoch(self) -> Spread | None:
        """Seconds of training that an epoch took."""
        values = tuple(
            last["seconds"] / last["epoch"]
            for last in (result.epochs[-1] for result in self.results if result.epochs)
            if last["epoch"] and last.get("seconds") is not None
        )
        return Spread(values) if values else None


def group(results: Iterable[Result]) -> list[Series]:
    """Results as series, in an order for readers: task, group, method, label, settings.

    A metric that is the loss in every row of a task is a loss; anything else is an accuracy.
    """
    members: dict[str, list[Result]] = {}
    accuracy: dict[str, bool] = {}
    for result in results:
        identity = [result.run[name] for name in (*_IDENTITY, *_BUDGET)]
        members.setdefault(json.dumps(identity, sort_keys=True), []).append(result)
        both = [(row.get("metric"), row.get("loss")) for row in result.epochs]
        differs = any(None not in pair and pair[0] != pair[1] for pair in both)
        accuracy[result.run["task"]] = accuracy.get(result.run["task"], False) or differs
    series = [
        Series(tuple(sorted(found, key=lambda r: (r.run["seed"], r.run["key"]))), accuracy[task])
        for found in members.values()
        for task in [found[0].run["task"]]
    ]
    return sorted(series, key=_order)


def _order(series: Series) -> tuple[Any, ...]:
    run = series.run
    return (
        rank(series.task, _TASKS),
        run["group"],
        rank(series.method, _METHODS),
        series.label,
        sort_key(series.settings.get(run["vary"])),
        tuple((name, sort_key(value)) for name, value in sorted(series.settings.items())),
        series.epochs,
        json.dumps(run, sort_keys=True),
    )


def rank(name: str, names: tuple[str, ...]) -> tuple[int, str]:
    """The known `names` first and in their order, then the others by the alphabet."""
    return (names.index(name) if name in names else len(names), name)


def sort_key(value: Any) -> tuple[int, float, str]:
    """Numbers by size, before words.

    >>> sorted([1, "auto", 0.5], key=sort_key)
    [0.5, 1, 'auto']
    """
    if isinstance(value, (int, float)):
        return (0, float(value), "")
    return (1, 0.0, str(value))


_TEST_ROWS = 10_000  # of MNIST and of CIFAR-10


def gap(a: Series, b: Series) -> float:
    """By how much `a` is better: the logarithm of a ratio of losses or errors.

    0 where ranges over seeds overlap, or the choice of test rows makes as much.
    """
    if a.diverged or b.diverged:
        return 0.0 if a.diverged and b.diverged else -inf if a.diverged else inf
    epoch = min(a.reached, b.reached)
    left, right = a.at(epoch), b.at(epoch)
    if left is None or right is None or (left.low <= right.high and right.low <= left.high):
        return 0.0
    mine, theirs = left.mean, right.mean
    if a.accuracy:
        if abs(mine - theirs) < 2 * sqrt(2 * theirs * (1 - theirs) / _TEST_ROWS):
            return 0.0
        mine, theirs = 1 - mine, 1 - theirs
    return log(theirs / mine)
