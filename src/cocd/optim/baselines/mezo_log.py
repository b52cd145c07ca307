"""`MeZOLog`: a run of `MeZO` as seeds and differences of losses."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...parts.types import Group, State

_VERSION = 1
OPTIONS = ("lr", "eps", "weight_decay")

Direction = tuple[int, float]  # seed, f(x + eps u) - f(x - eps u)
Groups = list[list[float]]  # lr, eps and weight decay of every parameter group


class MeZOLog(NamedTuple):
    """What `cocd.replay` needs: 16 bytes per direction, whatever the size of the model.

    `start` and `end` are fingerprints of the parameters before the first step and after the last.

    >>> import torch, cocd
    >>> x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    >>> optimizer = cocd.baselines.MeZO([x], lr=0.05, log=True)
    >>> for _ in range(10):
    ...     loss = optimizer.step(lambda: (x**2).sum())
    >>> cocd.replay([y], optimizer.log)
    >>> torch.equal(x, y)
    True
    """

    start: str
    end: str
    trained: list[int]  # which of the parameters, by position
    steps: list[list[Direction]]
    options: dict[int, Groups]  # by the number of the first step that has them

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a NumPy archive that holds numbers and two fingerprints, and no code."""
        directions = [direction for step in self.steps for direction in step]
        with open(path, "wb") as file:  # np.savez would add a suffix to a name
            np.savez(
                file,
                version=np.int64(_VERSION),
                fingerprints=np.array([self.start, self.end]),
                trained=np.array(self.trained, np.int64),
                seeds=np.array([seed for seed, _ in directions], np.int64),
                differences=np.array([difference for _, difference in directions], np.float64),
                counts=_run_lengths([len(step) for step in self.steps]),
                since=np.array(list(self.options), np.int64),
                options=np.array(list(self.options.values()), np.float64),
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MeZOLog:
        """Read a log that `save` wrote."""
        with np.load(path, allow_pickle=False) as saved:
            if "version" not in saved or int(saved["version"]) != _VERSION:
                raise ValueError(f"path: {path} is not a MeZO log that this release can read")
            start, end = (str(fingerprint) for fingerprint in saved["fingerprints"])
            pairs = zip(saved["seeds"].tolist(), saved["differences"].tolist(), strict=True)
            steps = [
                [next(pairs) for _ in range(count)]
                for count, times in saved["counts"].tolist()
                for _ in range(times)
            ]
            options = dict(zip(saved["since"].tolist(), saved["options"].tolist(), strict=True))
            trained = saved["trained"].tolist()
        return cls(start, end, trained, steps, options)


def _run_lengths(counts: list[int]) -> NDArray[np.int64]:
    """Pairs of a count and how many times in a row it stands there."""
    edges = [i for i in range(len(counts)) if i == 0 or counts[i] != counts[i - 1]]
    stops = [*edges[1:], len(counts)]
    runs = [[counts[i], stop - i] for i, stop in zip(edges, stops, strict=True)]
    return np.array(runs, np.int64).reshape(-1, 2)


@dataclass
class Recorder:
    """Collects a log while `MeZO` runs."""

    start: str
    trained: list[int] | None = None  # by position, as in the first step
    steps: list[list[Direction]] = field(default_factory=list)
    options: dict[int, Groups] = field(default_factory=dict)
    problem: str = ""  # why the run cannot be replayed

    def add(
        self,
        trained: Iterable[int],
        groups: list[Group],
        pairs: list[tuple[int, float, float]],
    ) -> None:
        """One step, after its move."""
        now = list(trained)
        if self.trained is None:
            self.trained = now
        if now != self.trained:
            self.problem = (
                f"other parameters than in earlier steps were trained in step {len(self.steps)}"
            )
        options = [[float(group[name]) for name in OPTIONS] for group in groups]
        if not self.options or next(reversed(self.options.values())) != options:
            self.options[len(self.steps)] = options
        self.steps.append([(seed, up - down) for seed, up, down in pairs])

    def log(self, parameters: list[Tensor]) -> MeZOLog:
        """The log so far, or why there is none."""
        if self.problem:
            raise ValueError(f"log: {self.problem}; freeze and add parameters before the first one")
        steps, options = list(map(list, self.steps)), dict(self.options)
        end = fingerprint(parameters)
        return MeZOLog(self.start, end, list(self.trained or ()), steps, options)

    def state(self) -> State:
        """Numbers and lists, for a `state_dict`."""
        return {
            "start": self.start,
            "trained": self.trained,
            "steps": list(map(list, self.steps)),
            "options": dict(self.options),
            "problem": self.problem,
        }


def fingerprint(parameters: Iterable[Tensor]) -> str:
    """Tells apart parameters that differ in number, shape, dtype or a single bit."""
    digest = blake2b(digest_size=16)
    for tensor in parameters:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype};".encode())
        values = tensor.detach().cpu().contiguous().flatten()
        digest.update(values.view(torch.uint8).numpy().data)
    return digest.hexdigest()
