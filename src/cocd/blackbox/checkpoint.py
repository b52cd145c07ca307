"""Checkpoint files: written atomically, and read without executing anything in them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..parts.types import State

Array = NDArray[Any]

_FORMAT = "cocd checkpoint"
_VERSION = 1
_ARRAY = "array:"  # prefix of a string that names an array; other strings begin with _TEXT
_TEXT = "text:"


def save(path: Path, state: State) -> None:
    """Write a tree of numbers, strings, lists, dicts and arrays, atomically.

    The new file replaces the old one only once it is complete and on disk. A process killed at any
    moment leaves either the old file or the new one.
    """
    arrays: list[Array] = []
    header = json.dumps({"format": _FORMAT, "version": _VERSION, "state": _pack(state, arrays)})
    named = {f"{_ARRAY}{k}": array for k, array in enumerate(arrays)}
    named["header"] = np.frombuffer(header.encode(), dtype=np.uint8)
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        with open(unfinished, "wb") as file:
            np.savez(file, allow_pickle=False, **named)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError:
        with suppress(OSError):  # a partial file wastes space on a full disk
            unfinished.unlink()
        raise


def load(path: Path) -> State:
    """Read a checkpoint; raise a one-sentence ValueError if it is damaged or no checkpoint."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            if header["format"] != _FORMAT:
                raise KeyError("format")
            version = header["version"]
            state = _unpack(header["state"], archive) if version == _VERSION else None
    except OSError as error:
        if error.errno is None:
            raise _damaged(path) from None
        raise ValueError(f"checkpoint {path} cannot be read: {error.strerror}") from None
    except Exception:  # arbitrary bytes can raise anything; the file is not a checkpoint
        raise _damaged(path) from None
    if version != _VERSION:
        raise ValueError(
            f"checkpoint {path} has version {version!r}, this release reads version {_VERSION}; "
            "finish it with the release that wrote it, or delete it to start over"
        )
    if not isinstance(state, dict):
        raise _damaged(path)
    return state


def _damaged(path: Path) -> ValueError:
    return ValueError(
        f"checkpoint {path} is damaged or not a checkpoint of cocd; delete it to start over, "
        "or name "
        "another file"
    )


def _pack(tree: object, arrays: list[Array]) -> object:
    if isinstance(tree, np.ndarray):
        if tree.dtype.hasobject:
            raise TypeError("an array of Python objects cannot be part of a checkpoint")
        arrays.append(tree)
        return f"{_ARRAY}{len(arrays) - 1}"
    if isinstance(tree, np.generic):
        return _pack(tree.item(), arrays)
    if isinstance(tree, str):
        return _TEXT + tree
    if isinstance(tree, dict):
        if not all(isinstance(key, str) for key in tree):
            raise TypeError("the keys of a checkpoint are strings")
        return {key: _pack(value, arrays) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_pack(value, arrays) for value in tree]
    if tree is None or isinstance(tree, (bool, int, float)):
        return tree
    raise TypeError(f"a {type(tree).__name__} cannot be part of a checkpoint")


def _unpack(tree: object, archive: Mapping[str, Array]) -> object:
    if isinstance(tree, str):
        return tree[len(_TEXT) :] if tree.startswith(_TEXT) else archive[tree]
    if isinstance(tree, dict):
        return {key: _unpack(value, archive) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_unpack(value, archive) for value in tree]
    return tree
