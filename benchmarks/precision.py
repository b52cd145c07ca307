"""How exact the central differences are in float32, by the engines, against float64.

The reference is the same difference of the same float32 weights in float64, at the points that
the stored weights actually reach, fl(w + eps) and fl(w - eps), so the error is that of the
evaluation alone. A separate column has the error from fl(w ± eps) differing from w ± eps, which no
engine can avoid. All errors are root mean squares over the coordinates, relative to that of the
reference.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from cocd import CoherentGradient, RadiusWarning, trace
from cocd.schedules import Schedule, Stretch

from . import report as output
from .report import Report, Row
from .workloads import MNIST, SARCOS, Workload

RADII = tuple(10.0**k for k in range(-6, 1))
NETWORKS = (SARCOS, MNIST)
BATCH = 32
SAMPLES = 6  # coordinates of each tensor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Measure and print."""

    def measured(report: Report) -> list[Row]:
        if not args.quick:
            return precision(report=report)
        return precision((1e-6, 1e-3, 1.0), samples=2, report=report)

    print(output.markdown(*table(output.run(args, measured))))
    return 0


def precision(
    radii: Sequence[float] = RADII,
    workloads: Sequence[Workload] = NETWORKS,
    *,
    samples: int = SAMPLES,
    report: Report = lambda *_: None,
) -> list[Row]:
    """A row for each network and radius."""
    rows: list[Row] = []
    for w, workload in enumerate(workloads):
        network = _Network(workload, samples)
        for r, eps in enumerate(radii):
            done = (w + r / len(radii)) / len(workloads)
            report(f"precision: {workload.name} at eps = {eps:g}", done)
            rows.append({"workload": workload.name, "eps": eps, **network.errors(eps)})
    report("precision: done", 1.0)
    return rows


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """The errors side by side."""
    columns = ["network", "eps", "sequential", "incremental", "ratio", "rounding of w ± eps"]
    cells = [
        [
            row["workload"],
            f"{row['eps']:.0e}",
            f"{row['sequential_error']:.1e}",
            f"{row['incremental_error']:.1e}",
            f"{row['sequential_error'] / row['incremental_error']:,.1f}",
            f"{row['radius_error']:.1e}",
        ]
        for row in rows
    ]
    return columns, cells


class _Some(Schedule):
    """A schedule that repeats some coordinates of the flat vector."""

    repeats = False

    def __init__(self, places: list[int]) -> None:
        super().__init__()
        self.places = places

    @property
    def size(self) -> int:
        return len(self.places)

    def order(self, start: int, stop: int, n: int) -> Iterator[Stretch]:
        for k in range(start, stop):
            place = self.places[k % self.size]
            yield place, place + 1


class _Network:
    """A network of float32 with its copy of float64, and some coordinates of every tensor."""

    def __init__(self, workload: Workload, samples: int) -> None:
        self.model = workload.model()
        self.loss = workload.loss
        self.x, self.y = (part[:BATCH] for part in workload.data())
        self.exact = deepcopy(self.model).double()
        self.incremental = trace(self.model, self.loss, engine="incremental")
        self.places = []  # in the flat vector
        start = 0
        for p in self.model.parameters():
            own = sorted({int((j + 0.5) * p.numel() / samples) for j in range(samples)})
            self.places += [start + i for i in own]
            start += p.numel()

    def errors(self, eps: float) -> Row:
        reached = self._reference(lambda w: (w + eps, w - eps))
        meant = self._reference(lambda w: (w.double() + eps, w.double() - eps))
        one_by_one = self._differences(lambda: self.loss(self.model(self.x), self.y), eps)
        incremental = self._differences(self.incremental(self.x, self.y), eps)
        return {
            "sequential_error": _relative(one_by_one, reached),
            "incremental_error": _relative(incremental, reached),
            "radius_error": _relative(reached, meant),
            "coordinates": len(self.places),
            "batch": len(self.x),
            "dtype": "float32",
        }

    def _differences(self, closure: Callable[[], Any], eps: float) -> Tensor:
        """f(x + eps e_i) - f(x - eps e_i), as an optimizer remembers it, in float32."""
        gradient = CoherentGradient(
            self.model.parameters(),
            eps=eps,
            compute_budget=len(self.places),
            schedule=_Some(self.places),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RadiusWarning)
            gradient(closure)
        return gradient.estimate()[self.places].double() * 2 * eps

    @torch.no_grad()
    def _reference(self, ends: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        """The difference in float64; `ends` makes the two points from a float32 weight."""
        x, y = self.x.double(), self.y.double() if self.y.is_floating_point() else self.y
        weights, found = parameters_to_vector(self.model.parameters()), []
        for i in self.places:
            losses = []
            for end in ends(weights[i]):
                point = weights.double()
                point[i] = end.double()
                vector_to_parameters(point, self.exact.parameters())
                losses.append(self.loss(self.exact(x), y))
            found.append(losses[0] - losses[1])
        vector_to_parameters(weights.double(), self.exact.parameters())
        return torch.stack(found)


def _relative(found: Tensor, reference: Tensor) -> float:
    return float((found - reference).norm() / reference.norm())
