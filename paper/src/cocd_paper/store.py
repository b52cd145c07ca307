"""Rows and checkpoints on disk: what is there survives a kill at any moment.

A run has a folder. ``rows.jsonl`` grows by whole lines; ``checkpoint.pt`` is replaced whole and
says how many bytes of rows it covers, so that what was written after it is cut off on resuming.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from cocd import __version__

from .runs import Run

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

SCHEMA = 1  # of rows
CHECKPOINT = 2
# Of a run without a checkpoint: what it is, where it began, and at most one epoch, which is written
# just before the first checkpoint is.
_BEFORE_CHECKPOINTS = 3


class Held(Exception):
    """Another process is at work on the run."""


class StoreError(ValueError):
    """What is in a run's folder cannot be used; says what to delete."""


class Store:
    """The folder of one run. Rows are read and written under `held` alone."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder, self.run = folder, run
        self.rows = folder / "rows.jsonl"
        self.checkpoint = folder / "checkpoint.pt"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out; raises `Held` if one is in. The kernel lets go at exit."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a+b") as file:
            try:
                _lock(file.fileno())
            except OSError as error:
                raise Held(self.run.key) from error
            yield

    def finished(self) -> bool:
        """Whether the last row says that the run has ended, and the first which run it was."""
        try:
            *lines, _ = self.rows.read_bytes().split(b"\n")
        except OSError:
            return False
        return bool(lines) and _is(lines[0], "run") and _is(lines[-1], "end")

    def append(self, row: dict[str, Any]) -> None:
        """Add a row, and return when it is on the disk."""
        with _room(self.rows), self.rows.open("ab") as file:
            file.write(encode(row))
            file.flush()
            os.fsync(file.fileno())

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint by one that covers the rows written so far."""
        whole = {
            "schema": CHECKPOINT,
            "cocd": __version__,
            "run": self.run.digest,
            "bytes": self.rows.stat().st_size,
            "state": state,
        }
        packed = io.BytesIO()  # torch has errors of its own for a file that cannot be written
        torch.save(whole, packed)
        temporary = self.folder / "checkpoint.tmp"
        try:
            with _room(temporary), temporary.open("wb") as file:
                file.write(packed.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.checkpoint)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(self.folder)

    def resume(self) -> dict[str, Any] | None:
        """The state of the last checkpoint, or None to begin; later rows are cut off.

        Rows that are worth more than a moment's work are never thrown away.
        """
        remedy = f"delete {self.folder} to start this run again"
        if not self.checkpoint.exists():
            if self.rows.exists() and self.rows.read_bytes().count(b"\n") > _BEFORE_CHECKPOINTS:
                raise StoreError(
                    f"{self.rows} has rows and no whole end, and there is no checkpoint to "
                    f"resume from; {remedy}"
                )
            self.rows.write_bytes(b"")
            return None
        try:
            saved = torch.load(self.checkpoint, weights_only=True)
            schema, run, size, state = (saved[k] for k in ("schema", "run", "bytes", "state"))
        except Exception as error:  # zip, pickle and torch each have errors of their own
            raise StoreError(f"{self.checkpoint} is damaged; {remedy}") from error
        made_by = saved.get("cocd", __version__)
        if schema != CHECKPOINT or made_by != __version__:
            raise StoreError(
                f"{self.checkpoint} was written by cocd {made_by} (form {schema}), this is "
                f"{__version__} (form {CHECKPOINT}): one run cannot mix two versions; resume "
                f"with that version, or {remedy}"
            )
        if run != self.run.digest:
            raise StoreError(f"{self.checkpoint} belongs to another run; {remedy}")
        if not self.rows.exists() or self.rows.stat().st_size < size:
            raise StoreError(f"{self.rows} lacks rows that the checkpoint covers; {remedy}")
        if not _is(self.rows.read_bytes().partition(b"\n")[0], "run"):
            raise StoreError(f"{self.rows}, line 1 is damaged: the rest cannot be read; {remedy}")
        with self.rows.open("r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())
        found: dict[str, Any] = state
        return found

    def end(self, row: dict[str, Any]) -> None:
        """The last row; nothing is left to resume."""
        self.append(row)
        self.checkpoint.unlink(missing_ok=True)


def encode(row: dict[str, Any]) -> bytes:
    r"""A row as a line: keys sorted, NaN and infinity as null.

    >>> encode({"b": math.nan, "a": [1, {"c": math.inf}]})
    b'{"a": [1, {"c": null}], "b": null}\n'
    """
    text = json.dumps(_finite(row), sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file up to the first that is not whole; none if there is no file."""
    rows = []
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    for line in lines[:-1]:  # what follows the last newline is not a whole row
        row = _object(line)
        if row is None:
            break
        rows.append(row)
    return rows


@contextmanager
def _room(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror or error}); make room for it, and the "
            "same command resumes from the last checkpoint"
        ) from error


def _is(line: bytes, kind: str) -> bool:
    return (_object(line) or {}).get("row") == kind


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` last; not every system can open a folder."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
