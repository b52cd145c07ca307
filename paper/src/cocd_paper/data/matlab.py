"""MATLAB files of version 5: one real matrix of numbers, read strictly.

SciPy has a reader for all of the format, but it can crash the process on a damaged file; a data
file must not be able to do that. The tests compare the two on files that are whole.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HEADER = 128  # bytes: a text, the version, and two letters that tell the order of bytes
LARGEST = 2**31  # bytes that a packed matrix may unpack to
MATRIX, PACKED = 14, 15  # kinds of elements
NUMBERS = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"
}  # fmt: skip
NUMERIC = range(6, 16)  # classes of arrays: double, single and the integers
COMPLEX = 0x0800  # a flag of arrays


class MatlabError(Exception):
    """What is wrong with the file, as the rest of a sentence that begins with its name."""


@dataclass(frozen=True)
class _Element:
    kind: int
    data: memoryview


def read_matrix(content: bytes, variable: str) -> npt.NDArray[np.float64]:
    """The matrix of this name as float64; raises `MatlabError`."""
    order = {b"IM": "<", b"MI": ">"}.get(content[126:HEADER])
    if order is None:
        raise MatlabError("is not a MATLAB file of version 5")
    version = struct.unpack_from(f"{order}H", content, 124)[0]
    if version != 0x0100:
        raise MatlabError(f"is a MATLAB file of version {version:#06x}, not 0x0100 (version 5)")
    for element in _elements(memoryview(content)[HEADER:], order):
        if element.kind == PACKED:
            element = _unpacked(element.data, order)
        if element.kind != MATRIX:
            raise MatlabError(f"holds an element of kind {element.kind} where a matrix should be")
        flags, dimensions, name, *rest = _elements(element.data, order, at_least=3)
        if bytes(name.data) == variable.encode():
            return _numbers(flags, dimensions, rest, order)
    raise MatlabError(f"has no variable {variable!r}")


def _elements(data: memoryview, order: str, at_least: int = 0) -> Iterator[_Element]:
    """What lies one after the other in `data`, each with its kind and its bytes."""
    at, count = 0, 0
    while at < len(data):
        if at + 8 > len(data):
            raise MatlabError("is cut off")
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16:  # a short element: size, kind and at most four bytes in one
            kind, size, start, following = kind & 0xFFFF, kind >> 16, at + 4, at + 8
            whole = size <= 4
        else:
            start = at + 8
            # Elements begin at multiples of eight, except behind packed ones.
            following = start + size + (0 if kind == PACKED else -size % 8)
            whole = start + size <= len(data)
        if not whole:
            raise MatlabError("is cut off")
        yield _Element(kind, data[start : start + size])
        at, count = following, count + 1
    if count < at_least:
        raise MatlabError("is cut off")


def _unpacked(data: memoryview, order: str) -> _Element:
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(data, LARGEST)
    except zlib.error as error:
        raise MatlabError(f"cannot be unpacked ({error})") from None
    if not stream.eof:
        raise MatlabError("is cut off")
    return next(_elements(memoryview(content), order, at_least=1))


def _numbers(
    flags: _Element, dimensions: _Element, rest: list[_Element], order: str
) -> npt.NDArray[np.float64]:
    if len(flags.data) != 8 or len(dimensions.data) % 4:
        raise MatlabError("has a damaged header")
    word = struct.unpack_from(f"{order}I", flags.data)[0]
    if (word & 0xFF) not in NUMERIC or word & COMPLEX or not rest or rest[0].kind not in NUMBERS:
        raise MatlabError("holds something else than a matrix of real numbers")
    shape = struct.unpack(f"{order}{len(dimensions.data) // 4}i", dimensions.data)
    kind = np.dtype(order + NUMBERS[rest[0].kind])
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != len(rest[0].data):
        raise MatlabError(f"does not hold the numbers of a matrix of {shape}")
    numbers = np.frombuffer(rest[0].data, dtype=kind).astype(np.float64)
    return numbers.reshape(shape, order="F")
