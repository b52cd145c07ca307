"""How it goes: live bars on a terminal, else a line for each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from . import methods, tasks
from .cli import silence
from .plans import tune
from .runner import Progress, Watch
from .runs import Run
from .training import Training


@contextmanager
def watching(plan: str, total: int, done: int, console: Console | None = None) -> Iterator[Watch]:
    """What tells the user, for as long as the block runs."""
    console = console or _Console()
    if not console.is_terminal:
        yield Lines(console, total, done)
        return
    bars = Bars(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        refresh_per_second=4,
    )
    with bars:
        yield Live(bars, plan, total, done)


class _Console(Console):
    """One whose reader may go away, as that of a pipe does: runs go on, and so do their rows."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        silence()


class Lines:
    """One line for each epoch."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self.console, self.total, self.done = console, total, done

    def begin(self, run: Run, progress: Progress) -> None:
        """Say which run it is."""
        again = f", from epoch {progress.epoch} on" if progress.epoch or progress.in_epoch else ""
        self._say(f"[{self.done + 1}/{self.total}] {describe(run)}{again}")

    def step(self, run: Run, progress: Progress, training: Training) -> None:
        """Nothing between epochs."""

    def row(self, run: Run, row: dict[str, Any]) -> None:
        """An epoch, or the end."""
        if row["row"] == "end":
            self.done += 1
            self._say(f"  {row['status']} after {row['seconds']:,.0f} s {row['how']}".rstrip())
        elif row["row"] == "epoch":
            rate = row["evaluations"] / row["seconds"] if row["seconds"] else 0.0
            self._say(
                f"  epoch {row['epoch']}/{run.epochs}  {scores(run, row['loss'], row['metric'])}"
                f"  {rate:,.0f} evaluations/s"
            )

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Live:
    """A bar for the plan and one for the run at hand."""

    def __init__(self, bars: Bars, plan: str, total: int, done: int) -> None:
        self.bars = bars
        self.plan = bars.add_task(plan, total=total, completed=done, status="runs")
        self.line = bars.add_task("", total=1, visible=False, status="")

    def begin(self, run: Run, progress: Progress) -> None:
        """The second bar is this run's."""
        whole = extent(run)
        taken = whole * progress.epoch // max(1, run.epochs)
        if not methods.finds_budget(run):
            taken += progress.in_epoch
        self.bars.reset(self.line, total=whole, completed=taken, visible=True, status="")
        self.bars.update(self.line, description=describe(run))

    def step(self, run: Run, progress: Progress, training: Training) -> None:
        """Where the run is."""
        rate = training.evaluations / progress.seconds if progress.seconds else 0.0
        mean = progress.total / progress.in_epoch if progress.in_epoch else progress.loss
        status = (
            f"epoch {progress.epoch + 1}/{run.epochs}  train {mean:.4g}  "
            f"{scores(run, progress.loss, progress.metric)}  {rate:,.0f} evaluations/s"
        )
        taken = training.evaluations if methods.finds_budget(run) else training.steps
        self.bars.update(self.line, completed=taken, status=status)

    def row(self, run: Run, row: dict[str, Any]) -> None:
        """An end moves the plan's bar."""
        if row["row"] == "end":
            taken = row["evaluations" if methods.finds_budget(run) else "step"]
            self.bars.update(self.line, completed=taken, status=row["status"])
            self.bars.advance(self.plan)


def extent(run: Run) -> int:
    """How long a run is: in steps, or in evaluations where steps differ in these."""
    if methods.finds_budget(run):
        return int(run.options["max_evaluations"])
    return max(1, run.epochs * run.steps_per_epoch)


def describe(run: Run) -> str:
    """A run in a few words."""
    names = tune.names(run.task, run.group) if run.plan == tune.NAME else [run.vary]
    varied = ", ".join(f"{name} {run.options[name]}" for name in names if name)
    return "  ".join(part for part in (run.task, run.label, varied, f"seed {run.seed}") if part)


def scores(run: Run, loss: float, metric: float) -> str:
    """The held-out loss, and the accuracy where there is one."""
    accuracy = f"  accuracy {metric:.2%}" if tasks.find(run.task).classify else ""
    return f"loss {loss:.4g}{accuracy}"
