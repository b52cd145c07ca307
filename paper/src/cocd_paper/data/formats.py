"""The official file formats, read strictly: MATLAB version 5, IDX, and both versions of CIFAR-10.

A file that is not there, not of its format, too short or too long raises `DataError` with one
sentence: the file, what is wrong, what to do.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from cocd.errors import DataError

from .matlab import LARGEST, MatlabError, read_matrix
from .pickles import RECORD, read_batch

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]


def read_matlab(path: Path, variable: str, columns: int, remedy: str) -> Floats:
    """The matrix `variable` of a MATLAB file of version 5, float64, with this many columns."""
    try:
        matrix = read_matrix(_content(path, remedy), variable)
    except MatlabError as error:
        _damaged(path, str(error), remedy)
    if matrix.ndim != 2 or matrix.shape[1] != columns or not len(matrix):
        shape = " x ".join(map(str, matrix.shape))
        _damaged(path, f"has {shape} numbers, not rows of {columns}", remedy)
    if not np.isfinite(matrix).all():
        _damaged(path, "holds numbers that are not finite", remedy)
    return np.ascontiguousarray(matrix)


def read_idx(path: Path, dimensions: int, remedy: str) -> Bytes:
    """The bytes of an IDX file of this many dimensions; unpacked if its name ends in ``.gz``."""
    if not path.is_file():
        _missing(path, remedy)
    try:
        with path.open("rb") as stream:
            return _idx(gzip.open(stream) if path.suffix == ".gz" else stream, dimensions)
    except (OSError, EOFError, zlib.error) as error:
        _damaged(path, f"cannot be read ({_short(error)})", remedy)
    except _Wrong as error:
        _damaged(path, str(error), remedy)


class _Wrong(Exception):
    """What is wrong with a file, to be completed with its name."""


def _idx(stream: io.BufferedIOBase, dimensions: int) -> Bytes:
    magic = stream.read(4)
    if magic != bytes([0, 0, 8, dimensions]):  # 8: unsigned bytes
        raise _Wrong(
            f"begins with {magic.hex() or 'nothing'}, not with 000008{dimensions:02x}: it is not "
            f"an IDX file of bytes in {dimensions} dimensions"
        )
    header = stream.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise _Wrong("ends in its header")
    shape = struct.unpack(f">{dimensions}I", header)
    size = math.prod(shape)
    if not 0 < size <= LARGEST:
        raise _Wrong(f"says its shape is {shape}, which cannot be")
    content = stream.read(size + 1)
    if len(content) != size:
        what = "more" if len(content) > size else f"{len(content):,}"
        raise _Wrong(f"should hold {size:,} bytes after its header and holds {what}")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def read_cifar(path: Path, remedy: str) -> Bytes:
    """The records of one CIFAR-10 batch, binary (``.bin``) or Python version: (N, 3073) bytes."""
    content = _content(path, remedy)
    if path.suffix == ".bin":
        if not content or len(content) % RECORD:
            _damaged(path, f"has {len(content):,} bytes, not a multiple of {RECORD:,}", remedy)
        records = np.frombuffer(content, dtype=np.uint8).reshape(-1, RECORD)
    else:
        try:
            records = read_batch(content)
        except Exception as error:  # a damaged pickle can raise nearly anything
            _damaged(path, f"is not a batch of the Python version ({_short(error)})", remedy)
    if records[:, 0].max() > 9:
        _damaged(path, f"has a label {records[:, 0].max()}, not 0 to 9", remedy)
    return records


def _content(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        _missing(path, remedy)
    except OSError as error:
        _damaged(path, f"cannot be read ({_short(error)})", remedy)


def _missing(path: Path, remedy: str) -> NoReturn:
    raise DataError(f"{path} is not there: {remedy}")


def _damaged(path: Path, what: str, remedy: str) -> NoReturn:
    raise DataError(f"{path} {what}: {remedy}") from None


def _short(error: BaseException) -> str:
    """The first line of an error's message, or its kind."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text.splitlines() or [type(error).__name__])[0][:120] or type(error).__name__
