"""CIFAR-10's Python version: a pickle, read without letting it build or call anything of its own.

The official files hold a dictionary with a list of labels and one array of bytes. Only the opcodes
for such data are let through, and stand-ins take the place of NumPy's array and dtype.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

RECORD = 1 + 3 * 32 * 32  # of CIFAR-10: a label, then a red, a green and a blue plane
KEYS = (b"data", b"labels")

# Those of plain data and of an array. Others can crash the reader, or ask it for endless memory.
OPCODES = frozenset(
    "PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG "  # noqa: SIM905
    "LONG1 STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINBYTES "
    "SHORT_BINBYTES EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "EMPTY_DICT DICT SETITEM SETITEMS PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET "
    "GLOBAL STACK_GLOBAL REDUCE BUILD".split()
)


class BatchError(Exception):
    """What is wrong with the batch."""


def read_batch(content: bytes) -> Bytes:
    """The records of a batch, (N, 3073) bytes; a damaged one can raise any exception."""
    _check_opcodes(content)
    batch = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
    data, labels = (batch[key] if key in batch else batch[key.decode()] for key in KEYS)
    pixels = data.content()
    if pixels.shape != (len(labels), RECORD - 1) or not len(labels):
        raise BatchError(f"{len(labels)} labels, pixels of shape {pixels.shape}")
    column = np.array([int(label) for label in labels])
    if column.min() < 0 or column.max() > 9:
        raise BatchError("a label is not from 0 to 9")
    return np.concatenate([column[:, None].astype(np.uint8), pixels], axis=1)


class _Array:
    """Stands in for the one array of a batch: nothing of NumPy is built by the pickle."""

    def __init__(self, *_: object) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def content(self) -> Bytes:
        _, shape, kind, fortran, raw = self.state
        if not isinstance(kind, _Kind) or kind.code not in (b"u1", "u1", b"|u1", "|u1"):
            raise BatchError("its pixels are not bytes")
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
        raise BatchError("its pixels are incomplete")
    return raw


def _check_opcodes(content: bytes) -> None:
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name not in OPCODES:
            raise BatchError(f"it uses the opcode {opcode.name}")
        # The reader makes room for as many objects as the largest number that it is told.
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= int(argument or 0) <= count:
            raise BatchError(f"it numbers an object {argument}")


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
