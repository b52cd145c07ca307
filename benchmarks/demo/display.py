"""The terminal: a live line for each method, and the table at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .look import COLUMNS, cells
from .methods import Method
from .results import Results, note
from .train import Point, Report


@contextmanager
def live(
    plan: list[tuple[Method, int]], *, quiet: bool = False
) -> Iterator[Callable[[str], Report]]:
    """Show progress for as long as the block runs; gives what makes a method's reporter."""
    progress = Progress(
        TextColumn("[bold]{task.description:<5}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        disable=quiet,
    )
    lines = {
        method.name: progress.add_task(method.name, total=steps, start=False, status="waiting")
        for method, steps in plan
    }

    def reporter(name: str) -> Report:
        progress.start_task(lines[name])

        def report(point: Point) -> None:
            progress.update(lines[name], completed=point.step, status=_status(point))
            if not math.isfinite(point.loss):
                progress.stop_task(lines[name])

        return report

    with progress:
        yield reporter


def show(results: Results, console: Console | None = None) -> None:
    """Print the table, best method first."""
    (console or Console()).print(table(results))


def table(results: Results) -> Table:
    """What the run gave, in that order."""
    out = Table(title="Handwritten digits", caption=note(results), caption_justify="left")
    for name in COLUMNS:
        out.add_column(name, justify="left" if name == "method" else "right")
    for row in results["rows"]:
        out.add_row(*cells(row))
    return out


def _status(point: Point) -> str:
    if not math.isfinite(point.loss):
        return "[red]diverged"
    rate = point.evaluations / point.seconds if point.seconds else 0.0
    return f"loss {point.loss:5.3f}  test {point.test_accuracy:5.1%}  {rate:6,.0f} evaluations/s"
