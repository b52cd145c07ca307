"""Show rows as tables, write them to files, and show progress on the terminal."""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from cocd import __version__

Row = dict[str, Any]
Report = Callable[[str, float], None]


class Refused(ValueError):
    """A request that cannot work, refused before any measurement."""


_PACKAGES = ("torch", "numpy", "numba")
_REFRESH = 0.2  # seconds between updates of the progress display


def writable(text: str) -> Path:
    """An argparse type: a file that can be written to."""
    path = Path(text)
    try:
        path.touch()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot write to {text}: {error.strerror}") from error
    return path


def run(args: argparse.Namespace, measure: Callable[[Report], list[Row]]) -> list[Row]:
    """Measure with a progress display, and write the rows to a file if one is given."""
    with progress(quiet=args.quiet) as tell:
        rows = measure(tell)
    if args.json:
        write(rows, args.json)
    return rows


def environment() -> Row:
    """Facts about the machine that a reader of the rows needs."""
    return {
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "versions": {
            "cocd": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in _PACKAGES},
        },
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def write(rows: list[Row], path: Path) -> None:
    """The rows as a JSON list, each with the `environment`."""
    shared = environment()
    text = json.dumps([_json({**row, **shared}) for row in rows], indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def markdown(columns: list[str], rows: list[list[str]], words: int = 1) -> str:
    """A Markdown table: the first `words` columns aligned left, the others right.

    >>> print(markdown(["name", "ms"], [["a", "1.5"]]))
    | name |  ms |
    | :--- | --: |
    | a    | 1.5 |
    """
    widths = [max(map(len, column), default=0) for column in zip(columns, *rows, strict=True)]
    widths = [max(3, width) for width in widths]
    rule = [
        ":" + "-" * (width - 1) if i < words else "-" * (width - 1) + ":"
        for i, width in enumerate(widths)
    ]
    lines = [
        "| "
        + " | ".join(
            cell.ljust(width) if i < words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in [columns, rule, *rows]
    ]
    return "\n".join(lines)


def show(title: str, columns: list[str], rows: list[list[str]], words: int = 1) -> None:
    """Print a drawn table if the terminal supports it, otherwise Markdown."""
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.table import Table
        except ModuleNotFoundError:
            pass
        else:
            table = Table(title=title, title_justify="left")
            for i, name in enumerate(columns):
                table.add_column(name, justify="left" if i < words else "right")
            for row in rows:
                table.add_row(*row)
            Console().print(table)
            return
    print(f"{title}\n\n{markdown(columns, rows, words)}\n")


def engines_table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """A table that compares the engines."""
    columns = [
        "workload",
        "engine",
        "ms per step",
        "× sequential",
        "s/epoch",
        "paper's",
        "extra MB",
        "slowest tensor",
    ]
    cells = [
        [
            row["workload"],
            _engine(row),
            f"{1e3 * row['seconds_per_step']:,.2f}",
            _number(row["ratio_to_sequential"], ",.1f"),
            f"{row['seconds_per_epoch']:,.1f}",
            _number(row["paper_seconds_per_epoch"], ".1f"),
            f"{row['peak_extra_bytes'] / 1e6:,.0f}",
            f"{row['slowest_tensor']} ({row['slowest_fraction']:.0%})",
        ]
        for row in rows
    ]
    return columns, cells


def _engine(row: Row) -> str:
    """The engine, and the engines that replaced it for some coordinates."""
    expected = "incremental" if row["engine"] == "accelerated" else row["engine"]
    others = {name: share for name, share in row["probed_by"].items() if name != expected}
    notes = [f"{share:.1%} {name}" for name, share in others.items()]
    return f"{row['engine']} ({', '.join(notes)})" if notes else row["engine"]


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Report]:
    """Show progress on the error stream: a bar on a terminal, otherwise lines."""
    if quiet:
        yield lambda text, share: None
        return
    bar = _bar() if sys.stderr.isatty() else None
    if bar is None:
        yield _lines()
        return
    # Without a thread, which would disturb the measurement on a machine with two cores.
    task = bar.add_task("", total=1.0)
    drawn = 0.0

    def report(text: str, share: float) -> None:
        nonlocal drawn
        bar.update(task, description=text, completed=share)
        if share >= 1 or perf_counter() - drawn > _REFRESH:
            bar.refresh()
            drawn = perf_counter()

    with bar:
        yield report


def _bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ModuleNotFoundError:
        return None
    return Progress(
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )


def _lines() -> Report:
    last = ""

    def report(text: str, share: float) -> None:
        nonlocal last
        topic = text.partition(":")[0]
        if topic != last:
            print(f"{topic} ...", file=sys.stderr, flush=True)
            last = topic

    return report
