"""Learn handwritten digits without gradients: `make demo` runs this.

    python examples/digits.py [--evaluations N] [--seed S] [--out FOLDER] [--small]

Needs `cocd[demo]`: matplotlib, rich and scikit-learn. A small CNN learns scikit-learn's digits.
AutoCoCD, CoCD and SPSA see only the loss and get the same number of evaluations. UnitDescent sees
the loss of each sample and gets a fifth of them. SGD uses backpropagation and takes as many steps
as CoCD. Prints a table and writes `digits.json`, `digits.png` and `digits.html`. To compare another
method, add it to `METHODS`.

The settings of CoCD, SPSA and SGD are the best of four each, by mean validation accuracy over seeds
0 and 1 after 27,000 evaluations. The validation rows were taken from the training rows.
"""

from __future__ import annotations

import argparse
import base64
import html
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from time import process_time
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

BATCH = 64  # rows in a batch
GROWTH = 1.15  # evaluations between two points of a curve, relative: even on a logarithmic axis
COCD_BLOCK = 16  # coordinates that CoCD probes in a step, by two evaluations each


class Rows(NamedTuple):
    """Images and their digits."""

    x: Tensor
    y: Tensor


@dataclass
class Outcome:
    """The result of one method. A curve has (evaluations, test loss, test accuracy, seconds)."""

    method: str
    backward: bool
    evaluations: int = 0
    seconds: float = 0.0  # processor time of training alone
    loss: float = math.nan
    accuracy: float = math.nan
    curve: list[tuple[int, float, float, float]] = field(default_factory=list)


# --- the methods: each gives a function that takes one step on a batch -------------------------

Step = Callable[[Tensor, Tensor], float]
Report = Callable[[float, float], None]  # the share done, test accuracy
Build = Callable[[nn.Module, int, int], tuple[Step, Any]]  # model, evaluations, seed


class Method(NamedTuple):
    """How to build a step, and the share of the evaluations it gets."""

    build: Build
    share: float = 1.0


def auto(model: nn.Module, evaluations: int, seed: int) -> tuple[Step, Any]:
    """CoCD that finds its own step lengths; nothing to tune."""
    return _by_losses(model, cocd.AutoCoCD(model.parameters(), max_evaluations=evaluations))


def coordinates(model: nn.Module, evaluations: int, seed: int) -> tuple[Step, Any]:
    """The paper's method, with a tuned learning rate."""
    return _by_losses(
        model, cocd.CoCD(model.parameters(), lr=0.3, eps=0.1, decay=0.9, compute_budget=COCD_BLOCK)
    )


def directions(model: nn.Module, evaluations: int, seed: int) -> tuple[Step, Any]:
    """Five random directions per step, with a tuned learning rate."""
    spsa = cocd.baselines.SPSA(model.parameters(), lr=0.02, eps=0.01, directions=5, seed=seed)
    return _by_losses(model, spsa)


def units(model: nn.Module, evaluations: int, seed: int) -> tuple[Step, Any]:
    """One forward pass yields a difference for each sample; nothing to tune."""
    objective = cocd.trace(model, cross_entropy)
    optimizer = cocd.UnitDescent(objective, max_evaluations=evaluations, seed=seed)
    return lambda x, y: float(optimizer.step(objective(x, y))), optimizer


def backpropagation(model: nn.Module, evaluations: int, seed: int) -> tuple[Step, Any]:
    """SGD with momentum and true gradients, for comparison; tuned."""
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
    """Training and test rows, scaled by the mean and deviation of the training rows."""
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
    """Endless shuffled batches, the same for every method."""
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
    """Step until the evaluations are spent or the loss is not finite."""
    model = network(seed)
    end = int(evaluations * METHODS[name].share)
    step, optimizer = METHODS[name].build(model, end, seed)
    out = Outcome(name, backward=optimizer is None)
    out.curve.append((0, *score(model, data[1]), 0.0))
    for taken, batch in zip(count(1), batches(data[0], seed), strict=False):
        began = process_time()
        try:
            finite = math.isfinite(step(*batch))
        except cocd.NonFiniteLoss:  # a method that diverges is a result, not an error
            finite = False
        out.seconds += process_time() - began
        out.evaluations = taken if out.backward else optimizer.evaluations
        if not finite:
            break
        if out.evaluations >= min(end, GROWTH * out.curve[-1][0]):
            out.loss, out.accuracy = score(model, data[1])
            out.curve.append((out.evaluations, out.loss, out.accuracy, out.seconds))
        report(out.evaluations / end, out.curve[-1][2])
        if out.evaluations >= end:
            return out
    out.loss = out.accuracy = math.nan
    return out


# --- table, picture, page ----------------------------------------------------------------------

TITLE = "Handwritten digits, test rows"
COLUMNS = ("method", "accuracy", "loss", "evaluations", "seconds")


def cells(row: Outcome) -> tuple[str, ...]:
    """A line of the table."""
    diverged = math.isnan(row.loss)
    return (
        row.method,
        "diverged" if diverged else f"{row.accuracy:.1%}",
        "-" if diverged else f"{row.loss:.3f}",
        f"{row.evaluations:,}{' + backward' if row.backward else ''}",
        f"{row.seconds:.1f}",
    )


def table(outcomes: list[Outcome]) -> Table:
    """For the terminal."""
    out = Table(COLUMNS[0], title=TITLE)
    for column in COLUMNS[1:]:
        out.add_column(column, justify="right")
    for row in outcomes:
        out.add_row(*cells(row))
    return out


def draw(outcomes: list[Outcome], path: Path) -> None:
    """Test accuracy over evaluations and over seconds."""
    figure = Figure(figsize=(10, 4.4), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for colour, row in enumerate(outcomes):
        evaluations, _, accuracy, seconds = zip(*row.curve[1:], strict=True)
        style = {"color": "0.35", "ls": "--"} if row.backward else {"color": f"C{colour}"}
        left.plot(evaluations, accuracy, lw=2, label=row.method, **style)
        right.plot(seconds, accuracy, lw=2, **style)
    left.set_title("test accuracy", loc="left", fontsize=11)
    left.set_xlabel("evaluations of the loss (backpropagation: steps)")
    right.set_xlabel("seconds of training, one thread")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.grid(color="#e5e5e5")
        axes.set_ylim(0, 1.02)
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.legend(loc="outside upper right", ncols=len(outcomes), frameon=False)
    figure.savefig(path)


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem }}
body {{ margin: 2rem auto; padding: 0 1rem }}
div {{ overflow-x: auto }}
table {{ border-collapse: collapse }}
th, td {{ padding: .3rem .8rem; border-bottom: 1px solid #8886; text-align: right }}
th:first-child, td:first-child, td:last-child, th:last-child {{ text-align: left }}
img {{ max-width: 100%; background: #fff }}
</style>
<h1>{title}</h1>
<p>A CNN with {parameters:,} parameters, batches of {batch}, seed {seed}. SGD runs a backward pass
in each step; the other methods only evaluate the loss.</p>
<div><table>{rows}</table></div>
<p><img alt="Test accuracy over evaluations and over seconds" src="data:image/png;base64,{image}">
"""


def page(outcomes: list[Outcome], picture: Path, seed: int) -> str:
    """Table and picture in one file that loads nothing."""

    def line(tag: str, texts: tuple[str, ...]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

    lines = [line("th", (*COLUMNS, "what it does"))]
    for row in outcomes:
        lines.append(line("td", (*cells(row), METHODS[row.method].build.__doc__ or "")))
    return PAGE.format(
        title=TITLE,
        parameters=sum(p.numel() for p in network(seed).parameters()),
        batch=BATCH,
        seed=seed,
        rows="\n".join(lines),
        image=base64.b64encode(picture.read_bytes()).decode(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--evaluations", type=int, default=27_000, help="of the loss, for each method"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--small", action="store_true", help="a fiftieth of the evaluations")
    args = parser.parse_args()
    if args.evaluations < 2000 or args.seed < 0:
        parser.error("--evaluations must be at least 2,000, and --seed at least 0")
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the network is too small for a second one

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
    with console.status("compiling loops, once"):  # not a cost of the first method
        train("AutoCoCD", data, 1, args.seed, lambda *_: None)
    with bars:
        for name in METHODS:
            bar = bars.add_task(name, total=1.0, accuracy=math.nan)

            def report(done: float, accuracy: float, bar: Any = bar) -> None:
                bars.update(bar, completed=done, accuracy=accuracy)

            outcomes.append(train(name, data, evaluations, args.seed, report))
    console.print(table(outcomes))
    picture, written = args.out / "digits.png", args.out / "digits.html"
    draw(outcomes, picture)
    written.write_text(page(outcomes, picture, args.seed), encoding="utf-8")
    rows = [
        {k: None if v != v else v for k, v in asdict(row).items()}  # NaN is not JSON
        for row in outcomes
    ]
    settings = {"seed": args.seed, "batch": BATCH, "cocd": cocd.__version__}
    path = args.out / "digits.json"
    path.write_text(json.dumps({**settings, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"rows: {path}\npicture: {picture}\npage: {written}")


if __name__ == "__main__":
    main()
