"""How far a download is: a bar where there is a terminal and rich, else one line a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .fetch import Report


@contextmanager
def bar(label: str) -> Iterator[Report]:
    """Something to call with the bytes so far and, if known, the bytes in all."""
    try:
        from rich.console import Console
    except ImportError:
        terminal = False
    else:
        terminal = Console(stderr=True).is_terminal
    with _rich(label) if terminal else _plain(label) as report:
        yield report


@contextmanager
def _rich(label: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def _plain(label: str) -> Iterator[Report]:
    seen = 0

    def report(done: int, total: int | None) -> None:
        nonlocal seen
        seen = done

    yield report
    print(f"{label}: {size(seen)}", file=sys.stderr)


def size(count: int) -> str:
    """A number of bytes for people.

    >>> size(9_964_616), size(512)
    ('10.0 MB', '0.5 kB')
    """
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"
