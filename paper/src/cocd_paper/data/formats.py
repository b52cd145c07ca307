"""The official file formats, from the bytes of a file that has passed its checksum."""

from __future__ import annotations

import io
import struct

import numpy as np
import numpy.typing as npt
from scipy.io import loadmat

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
RECORD = 1 + 3 * 32 * 32  # of CIFAR-10: a label and an image


class FormatError(ValueError):
    """What is wrong with the content of a file."""


def matlab(content: bytes, variable: str, columns: int) -> Floats:
    """The matrix `variable` of a MATLAB file, finite numbers in this many columns."""
    try:
        matrix = np.asarray(loadmat(io.BytesIO(content))[variable], dtype=np.float64)
    except Exception as error:  # scipy raises whatever its parser meets
        raise FormatError(f"has no readable matrix {variable} ({type(error).__name__})") from None
    if matrix.ndim != 2 or matrix.shape[1] != columns or not np.isfinite(matrix).all():
        raise FormatError(f"does not hold rows of {columns} finite numbers")
    return np.ascontiguousarray(matrix)


def idx(content: bytes, dimensions: int) -> Bytes:
    """The bytes of an IDX file of this many dimensions."""
    try:
        kind, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
        values = np.frombuffer(content, np.uint8, offset=4 * (1 + dimensions))
        if kind != 0x0800 + dimensions:
            raise ValueError
        return values.reshape(shape)
    except (ValueError, struct.error):
        raise FormatError(f"is not a whole IDX file of {dimensions} dimensions") from None


def cifar(content: bytes) -> Bytes:
    """The records of a batch of the binary version: a label, then the pixels."""
    records = np.frombuffer(content, np.uint8)
    if not len(records) or len(records) % RECORD or records[::RECORD].max() > 9:
        raise FormatError(f"does not hold records of {RECORD:,} bytes with labels from 0 to 9")
    return records.reshape(-1, RECORD)
