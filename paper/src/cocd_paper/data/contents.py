"""The official arrays: found, read, and compared with their checksums."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cocd.errors import DataError

from . import formats, places
from .formats import Bytes, Floats
from .sources import CONTENT
from .splits import Array

SARCOS_FILES = {"sarcos_inv": places.SARCOS_TRAIN, "sarcos_inv_test": places.SARCOS_TEST}


@dataclass(frozen=True)
class Place:
    """A data folder, and how its files are judged.

    Attributes:
        folder: The folder.
        option: The option that names it on the command line, if the caller named it.
        check: Whether a file must have the official content.
    """

    folder: Path
    option: str = ""
    check: bool = True

    def remedy(self, name: str) -> str:
        """What to do about a missing or damaged file."""
        return f"run 'cocd-paper data get {name}{self.option}'"


def place(data: str | os.PathLike[str] | None = None, check: bool = True) -> Place:
    """Where to look for files.

    >>> print(place("my data").remedy("mnist"))
    run 'cocd-paper data get mnist --data "my data"'
    """
    folder = places.root(data)
    named = "" if data is None else f" --data {_quoted(os.fspath(data))}"
    return Place(folder, named, check)


def _quoted(text: str) -> str:
    return text if shlex.quote(text) == text else f'"{text}"'


def sarcos(where: Place, variable: str) -> Floats:
    """The rows of ``sarcos_inv`` or ``sarcos_inv_test``: 21 inputs, 7 torques."""
    path = where.folder / SARCOS_FILES[variable]
    rows = formats.read_matlab(path, variable, 28, where.remedy("sarcos"))
    return _official(rows, path, variable, where, "sarcos")


def mnist(where: Place, files: tuple[str, str]) -> tuple[Bytes, Bytes]:
    """Images (N, 1, 28, 28) and labels (N,), both bytes."""
    paths = [places.idx_file(where.folder, file) for file in files]
    remedy = where.remedy("mnist")
    images = _official(formats.read_idx(paths[0], 3, remedy), paths[0], files[0], where, "mnist")
    labels = _official(formats.read_idx(paths[1], 1, remedy), paths[1], files[1], where, "mnist")
    if images.shape[1:] != (28, 28):
        raise DataError(f"{paths[0]} holds images of {images.shape[1:]} pixels: {remedy}")
    if len(images) != len(labels) or labels.max() > 9:
        raise DataError(f"{paths[1]} does not hold {len(images):,} labels from 0 to 9: {remedy}")
    return images[:, None], labels


def cifar10(where: Place, batches: tuple[str, ...]) -> tuple[Bytes, Bytes]:
    """Images (N, 3, 32, 32) and labels (N,), both bytes."""
    records = []
    for path, batch in zip(places.cifar_files(where.folder, batches), batches, strict=True):
        found = formats.read_cifar(path, where.remedy("cifar10"))
        records.append(_official(found, path, batch, where, "cifar10"))
    together = np.concatenate(records) if len(records) > 1 else records[0]
    return together[:, 1:].reshape(-1, 3, 32, 32), together[:, 0]


def _official(array: Array, path: Path, key: str, where: Place, name: str) -> Array:
    if where.check and _digest(array) != CONTENT[Path(key).name]:
        raise DataError(
            f"{path} can be read but does not hold what the official file holds: "
            f"{where.remedy(name)}, or, in Python, load it with check=False"
        )
    return array


def _digest(array: Array) -> str:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return hashlib.sha256(little.data).hexdigest()


@dataclass(frozen=True)
class Found:
    """One part of a data set as it lies on the disk: its files, and what is wrong with them."""

    files: tuple[Path, ...]
    state: str  # "complete", "missing" or "damaged"
    problem: str = ""


def inspect(name: str, where: Place) -> list[Found]:
    """Every part of a data set, read and judged.

    >>> {found.state for found in inspect("mnist", Place(Path("nowhere")))}
    {'missing'}
    """
    return [_judge(files, read) for files, read in _PARTS[name](where)]


_Part = tuple[list[Path], Callable[[], object]]


def _sarcos_parts(where: Place) -> list[_Part]:
    return [
        ([where.folder / path], partial(sarcos, where, variable))
        for variable, path in SARCOS_FILES.items()
    ]


def _mnist_parts(where: Place) -> list[_Part]:
    return [
        ([places.idx_file(where.folder, file) for file in files], partial(mnist, where, files))
        for files in (places.MNIST_TRAIN, places.MNIST_TEST)
    ]


def _cifar10_parts(where: Place) -> list[_Part]:
    batches = places.CIFAR_TRAIN + places.CIFAR_TEST
    files = places.cifar_files(where.folder, batches)
    return [
        ([file], partial(cifar10, where, (batch,)))
        for file, batch in zip(files, batches, strict=True)
    ]


_PARTS = {"sarcos": _sarcos_parts, "mnist": _mnist_parts, "cifar10": _cifar10_parts}


def _judge(files: list[Path], read: Callable[[], object]) -> Found:
    try:
        read()
    except DataError as error:
        state = "damaged" if all(file.is_file() for file in files) else "missing"
        return Found(tuple(files), state, str(error))
    return Found(tuple(files), "complete")


def overall(parts: list[Found]) -> str:
    """The state of a data set from those of its parts.

    >>> overall([Found((), "complete"), Found((), "missing")])
    'incomplete'
    """
    states = {part.state for part in parts}
    if "damaged" in states:
        return "damaged"
    return states.pop() if len(states) == 1 else "incomplete"
