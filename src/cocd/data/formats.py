"""The official file formats, read strictly: MATLAB version 5, IDX, and both versions of CIFAR-10.

A file that is not there, not of its format, too short or too long raises `DataError` with one
sentence: the file, what is wrong, what to do.
"""

from __future__ import annotations

import gzip
import io
import math
import pickle
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ..errors import DataError

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

RECORD = 1 + 3 * 32 * 32  # of CIFAR-10: a label, then a red, a green and a blue plane
LARGEST = 2**31  # bytes; a damaged header must not ask for all of the memory


def read_matlab(path: Path, variable: str, columns: int, remedy: str) -> Floats:
    """The matrix `variable` of a MATLAB file of version 5, float64, with this many columns."""
    from scipy.io import loadmat  # here, so that importing the package does not wait for it

    content = _content(path, remedy)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            matrix = loadmat(io.BytesIO(content), variable_names=[variable])[variable]
    except KeyError:
        _damaged(path, f"has no variable {variable!r}", remedy)
    except Exception as error:  # SciPy raises nearly anything on a file that was cut or overwritten
        _damaged(path, f"is not a complete MATLAB file of version 5 ({_short(error)})", remedy)
    if not (isinstance(matrix, np.ndarray) and matrix.dtype.kind == "f" and matrix.ndim == 2):
        _damaged(path, f"holds no matrix of numbers under {variable!r}", remedy)
    if matrix.shape[1] != columns or not len(matrix):
        _damaged(path, f"has {matrix.shape[0]} x {matrix.shape[1]} numbers, not {columns} columns",
                 remedy)  # fmt: skip
    if not np.isfinite(matrix).all():
        _damaged(path, "holds numbers that are not finite", remedy)
    return np.ascontiguousarray(matrix, dtype=np.float64)


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
            records = _python_batch(content)
        except Exception as error:  # a damaged pickle can raise nearly anything
            _damaged(path, f"is not a batch of the Python version ({_short(error)})", remedy)
    if records[:, 0].max() > 9:
        _damaged(path, f"has a label {records[:, 0].max()}, not 0 to 9", remedy)
    return records


def _python_batch(content: bytes) -> Bytes:
    batch = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
    data, labels = (batch[key] if key in batch else batch[key.decode()] for key in KEYS)
    pixels = data.content()
    if pixels.shape != (len(labels), RECORD - 1) or not len(labels):
        raise _Wrong(f"{len(labels)} labels, pixels of shape {pixels.shape}")
    column = np.array([int(label) for label in labels], dtype=np.uint8)  # raises outside 0 to 255
    return np.concatenate([column[:, None], pixels], axis=1)


KEYS = (b"data", b"labels")


class _Array:
    """Stands in for the one array of a batch: nothing of NumPy is built by the pickle."""

    def __init__(self, *_: object) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def content(self) -> Bytes:
        _, shape, kind, fortran, raw = self.state
        if not isinstance(kind, _Kind) or kind.code not in (b"u1", "u1", b"|u1", "|u1"):
            raise _Wrong("its pixels are not bytes")
        pixels = np.frombuffer(_exact(raw, shape), dtype=np.uint8)
        return pixels.reshape(shape, order="F" if fortran else "C")


class _Kind:
    """Stands in for the array's dtype."""

    def __init__(self, code: bytes | str = "", *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment: of no meaning for bytes."""


def _exact(raw: bytes, shape: tuple[int, ...]) -> bytes:
    if not isinstance(raw, bytes) or len(raw) != math.prod(shape):
        raise _Wrong("its pixels are incomplete")
    return raw


class _BatchUnpickler(pickle.Unpickler):
    """Builds dictionaries, lists, bytes, numbers and the array's stand-in; no code can run."""

    allowed = {  # noqa: RUF012 (a constant)
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Kind,
    }

    def find_class(self, module: str, name: str) -> type:
        try:
            return self.allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


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
