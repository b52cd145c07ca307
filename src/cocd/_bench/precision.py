"""How exact the central differences are in float32, by the engines, against float64.

The reference is the same difference of the same float32 weights in float64, at the points that
the stored weights really reach, fl(w + eps) and fl(w - eps): what is left is what the evaluation
loses. That the points are not quite w ± eps is an error of its own, which no engine can avoid and
which has its own column. All are root mean squares over the coordinates, relative to that of the
reference.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from .. import trace
from .._evaluate import Evaluations
from .._layout import Run
from .._probe import probe
from ..errors import RadiusWarning
from .measure import Report, Row
from .workloads import MNIST, SARCOS, Workload

RADII = tuple(10.0**k for k in range(-6, 1))
NETWORKS = (SARCOS, MNIST)
BATCH = 32
SAMPLES = 6  # coordinates of each tensor


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
        model = workload.model()
        x, y = (part[:BATCH] for part in workload.data())
        runs = _sample(model, samples)
        for r, eps in enumerate(radii):
            done = (w + r / len(radii)) / len(workloads)
            report(f"precision: {workload.name} at eps = {eps:g}", done)
            rows.append(
                {
                    "workload": workload.name,
                    "eps": eps,
                    **_errors(model, workload.loss, x, y, runs, eps),
                    "coordinates": len(runs),
                    "batch": len(x),
                    "dtype": "float32",
                }
            )
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


def _sample(model: nn.Module, samples: int) -> list[Run]:
    """Coordinates at evenly spaced places of every tensor."""
    return [
        Run(t, i, i + 1)
        for t, p in enumerate(model.parameters())
        for i in sorted({int((j + 0.5) * p.numel() / samples) for j in range(samples)})
    ]


def _errors(
    model: nn.Module,
    loss: Callable[[Any, Any], Tensor],
    x: Tensor,
    y: Tensor,
    runs: list[Run],
    eps: float,
) -> Row:
    exact = _Float64(model, loss, x, y)
    reached = exact.differences(model, runs, lambda w: (w + eps, w - eps))
    meant = exact.differences(model, runs, lambda w: (w.double() + eps, w.double() - eps))
    objective = trace(model, loss, engine="incremental")
    closures: dict[str, Any] = {
        "sequential": lambda: loss(model(x), y),
        "incremental": objective(x, y),
    }
    found = {
        f"{name}_error": _relative(_differences(model, closure, runs, eps), reached)
        for name, closure in closures.items()
    }
    return {**found, "radius_error": _relative(reached, meant)}


def _differences(model: nn.Module, closure: Any, runs: list[Run], eps: float) -> Tensor:
    """f(x + eps e_i) - f(x - eps e_i) as an optimizer gets it."""
    parameters: list[Tensor] = list(model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RadiusWarning)
        with Evaluations(closure, None, {p.device for p in parameters}, lambda _: None) as evaluate:
            _, quotients = probe(evaluate, parameters, runs, lambda _: eps, "central")
    return quotients.first * 2 * eps


def _relative(found: Tensor, reference: Tensor) -> float:
    return float((found - reference).norm() / reference.norm())


class _Float64:
    """The model and its data in float64, evaluated one difference at a time."""

    def __init__(
        self, model: nn.Module, loss: Callable[[Any, Any], Tensor], x: Tensor, y: Tensor
    ) -> None:
        self.model = deepcopy(model).double()
        self.loss = loss
        self.x, self.y = x.double(), y.double() if y.is_floating_point() else y

    @torch.no_grad()
    def differences(
        self,
        model: nn.Module,
        runs: list[Run],
        ends: Callable[[Tensor], tuple[Tensor, Tensor]],
    ) -> Tensor:
        """The loss above minus that below; `ends` makes the two points of a float32 weight."""
        here, wide = list(model.parameters()), list(self.model.parameters())
        found = []
        for t, group in groupby(runs, key=lambda run: run.tensor):
            weights, target = here[t].detach().view(-1), wide[t].view(-1)
            for run in group:
                above, below = ends(weights[run.start])
                target[run.start] = above.double()
                up = self.loss(self.model(self.x), self.y)
                target[run.start] = below.double()
                found.append(up - self.loss(self.model(self.x), self.y))
                target[run.start] = weights[run.start].double()
        return torch.stack(found)
