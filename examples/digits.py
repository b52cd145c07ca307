"""Handwritten digits, learnt without gradients: what `make demo` runs.

    python examples/digits.py [--evaluations N] [--seed S] [--out FOLDER] [--small]

Needs `cocd[demo]`: matplotlib, rich and scikit-learn. A small CNN learns scikit-learn's digits by
several methods that see losses alone, each with the same number of evaluations; by unit probes,
which see the losses of single samples and get a fifth of them; and by SGD with backpropagation,
which takes as many steps as CoCD. Prints a table and writes `digits.json` and `digits.png`. To
compare another method, add it to `METHODS`.

CoCD's, SPSA's and SGD's settings were chosen among four each by their mean validation accuracy over
seeds 0 and 1, after 27,000 evaluations; the validation rows were taken from the training rows.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter, StrMethodFormatter
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import cocd

BATCH, POINTS = 64, 40  # rows in a batch; points of a curve
COCD_BLOCK = 16  # coordinates that CoCD probes in a step, by two evaluations each


class Rows(NamedTuple):
    """Images and their digits."""

    x: Tensor
    y: Tensor


@dataclass
class Outcome:
    """What one method gave; a point of the curve is evaluations, test loss, test accuracy."""

    method: str
    backward: bool
    evaluations: int = 0
    seconds: float = 0.0  # of training alone
    loss: float = math.nan
    accuracy: float = math.nan
    curve: list[tuple[int, float, float]] = field(default_factory=list)


# --- the methods: each gives a function that takes one step on a batch -------------------------

Step = Callable[[Tensor, Tensor], float]
Report = Callable[[float, float], None]  # the share that is done, test accuracy
Build = Callable[[nn.Module, int, int], tuple[Step, Any]]  # model, evaluations, seed


class Method(NamedTuple):
    """What makes a step, and which share of the evaluations it gets."""

    build: Build
    share: float = 1.0


def auto(model: nn.Module, evaluations: int, seed: int) -> tuple[Step, Any]:
    """Nothing to tune."""
    return _by_losses(model, cocd.AutoCoCD(model.parameters(), max_evaluations=evaluations))


def coordinates(model: nn.Module, evaluations: int, seed: int) -> tuple[Step, Any]:
    """The paper's method."""
    return _by_losses(
        model, cocd.CoCD(model.parameters(), lr=0.3, eps=0.1, decay=0.9, compute_budget=COCD_BLOCK)
    )


def directions(model: nn.Module, evaluations: int, seed: int) -> tuple[Step, Any]:
    """Random directions."""
    spsa = cocd.baselines.SPSA(model.parameters(), lr=0.02, eps=0.01, directions=5, seed=seed)
    return _by_losses(model, spsa)


def units(model: nn.Module, evaluations: int, seed: int) -> tuple[Step, Any]:
    """Nothing to tune; a pass gives a difference for each sample."""
    objective = cocd.trace(model, cross_entropy)
    optimizer = cocd.UnitDescent(objective, max_evaluations=evaluations, seed=seed)
    return lambda x, y: float(optimizer.step(objective(x, y))), optimizer


def backpropagation(model: nn.Module, evaluations: int, seed: int) -> tuple[Step, Any]:
    """What gradients would give."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> float:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, None


def _by_losses(model: nn.Module, optimizer: Any) -> tuple[Step, Any]:
    objective = cocd.trace(model, cross_entropy)
    return lambda x, y: float(optimizer.step(objective(x, y))), optimizer


METHODS: dict[str, Method] = {
    "AutoCoCD": Method(auto),
    "CoCD": Method(coordinates),
    "SPSA": Method(directions),
    "UnitDescent": Method(units, share=0.2),
    # A step with gradients is one evaluation and a backward pass; it gets as many steps as CoCD.
    "SGD, backpropagation": Method(backpropagation, share=1 / (2 * COCD_BLOCK + 1)),
}


# --- data, network, training -------------------------------------------------------------------


def digits(seed: int) -> tuple[Rows, Rows]:
    """Rows to learn from and rows to be judged by, scaled by what the former alone show."""
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, stratify=y, random_state=seed)
    mean, deviation = x.mean(), x.std()

    def rows(images: Any, labels: Any) -> Rows:
        scaled = torch.as_tensor((images - mean) / deviation, dtype=torch.float32)
        return Rows(scaled.view(-1, 1, 8, 8), torch.as_tensor(labels, dtype=torch.int64))

    return rows(x, y), rows(x_test, y_test)


def network(seed: int) -> nn.Sequential:
    """1,898 parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 10),
        )


def batches(rows: Rows, seed: int) -> Iterator[Rows]:
    """Shuffled batches without end, the same ones for every method."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for chosen in torch.randperm(len(rows.y), generator=generator).split(BATCH)[:-1]:
            yield Rows(rows.x[chosen], rows.y[chosen])


@torch.no_grad()
def score(model: nn.Module, rows: Rows) -> tuple[float, float]:
    """Loss and accuracy."""
    logits = model(rows.x)
    return cross_entropy(logits, rows.y).item(), (logits.argmax(1) == rows.y).float().mean().item()


def train(
    name: str, data: tuple[Rows, Rows], evaluations: int, seed: int, report: Report
) -> Outcome:
    """Step until the evaluations are spent, or until the loss is no longer finite."""
    model = network(seed)
    end = int(evaluations * METHODS[name].share)
    step, optimizer = METHODS[name].build(model, end, seed)
    out = Outcome(name, backward=optimizer is None)
    out.curve.append((0, *score(model, data[1])))
    for taken, batch in zip(count(1), batches(data[0], seed), strict=False):
        began = perf_counter()
        try:
            finite = math.isfinite(step(*batch))
        except cocd.NonFiniteLoss:  # a method that diverges is a result, not an error
            finite = False
        out.seconds += perf_counter() - began
        out.evaluations = taken if out.backward else optimizer.evaluations
        if not finite:
            break
        if out.evaluations * POINTS >= end * len(out.curve) or out.evaluations >= end:
            out.loss, out.accuracy = score(model, data[1])
            out.curve.append((out.evaluations, out.loss, out.accuracy))
        report(out.evaluations / end, out.curve[-1][2])
        if out.evaluations >= end:
            return out
    out.loss = out.accuracy = math.nan
    return out


# --- what is shown -----------------------------------------------------------------------------


def table(outcomes: list[Outcome]) -> Table:
    """A line for each method."""
    out = Table("method", title="Handwritten digits, rows that were not trained on")
    for column in ("accuracy", "loss", "evaluations", "seconds"):
        out.add_column(column, justify="right")
    for row in outcomes:
        diverged = math.isnan(row.loss)
        out.add_row(
            row.method,
            "diverged" if diverged else f"{row.accuracy:.1%}",
            "-" if diverged else f"{row.loss:.3f}",
            f"{row.evaluations:,}{' + backward' if row.backward else ''}",
            f"{row.seconds:.1f}",
        )
    return out


def draw(outcomes: list[Outcome], path: Path) -> None:
    """Accuracy and loss over evaluations; gradients are a line where they ended."""
    figure = Figure(figsize=(10, 4.6), dpi=150, layout="constrained")
    panels = figure.subplots(1, 2)
    for colour, row in enumerate(outcomes):
        evaluations, *curves = zip(*row.curve, strict=True)
        for axes, curve in zip(panels, reversed(curves), strict=True):
            if row.backward:
                axes.axhline(curve[-1], color="grey", ls="--", lw=1.2, label=row.method)
            else:
                axes.plot(evaluations, curve, color=f"C{colour}", lw=2, label=row.method)
    for axes, title in zip(panels, ("test accuracy", "test loss"), strict=True):
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_xlabel("evaluations of the loss")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.grid(color="#e5e5e5")
        axes.set_ylim(bottom=0)
    panels[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    panels[0].legend(loc="lower right", frameon=False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=27_000, help="of the loss, by each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--small", action="store_true", help="a fiftieth of the evaluations")
    args = parser.parse_args()
    if args.evaluations < 2000 or args.seed < 0:
        parser.error("--evaluations must be at least 2,000, and --seed at least 0")
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # a second thread gains nothing on a network this small

    data, console = digits(args.seed), Console()
    evaluations = args.evaluations // 50 if args.small else args.evaluations
    bars = Progress(
        TextColumn("{task.description:20}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("test accuracy {task.fields[accuracy]:6.1%}"),
        TimeElapsedColumn(),
        console=console,
    )
    outcomes: list[Outcome] = []
    with bars:
        for name in METHODS:
            bar = bars.add_task(name, total=1.0, accuracy=math.nan)

            def report(done: float, accuracy: float, bar: Any = bar) -> None:
                bars.update(bar, completed=done, accuracy=accuracy)

            outcomes.append(train(name, data, evaluations, args.seed, report))
    console.print(table(outcomes))
    draw(outcomes, args.out / "digits.png")
    rows = [
        {k: None if v != v else v for k, v in asdict(row).items()}  # NaN is not JSON
        for row in outcomes
    ]
    settings = {"seed": args.seed, "batch": BATCH, "cocd": cocd.__version__}
    path = args.out / "digits.json"
    path.write_text(json.dumps({**settings, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"rows: {path}\npicture: {args.out / 'digits.png'}")


if __name__ == "__main__":
    main()
