"""What a loader gives: tensors to train on and tensors held out; and how rows are held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .files import DataError

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Splits:
    """Rows to train on and rows held out: float32 inputs, float32 targets or int64 labels.

    Attributes:
        train_x: Inputs to train on, one row or image each.
        train_y: Their targets or labels.
        held_x: Inputs that are held out, scaled with the numbers of the training rows.
        held_y: Their targets or labels.
        name: The data set.
        split: ``"test"``, ``"validation"``, ``"published"`` or ``"generated"``.
        note: One sentence on what the split is.
    """

    train_x: Tensor
    train_y: Tensor
    held_x: Tensor
    held_y: Tensor
    name: str
    split: str
    note: str

    def __repr__(self) -> str:
        rows = f"{len(self.train_x):,} + {len(self.held_x):,} rows"
        return f"Splits({self.name!r}, {self.split!r}, {rows} of {tuple(self.train_x.shape[1:])})"


def hold_out(
    keys: Array, seed: int, candidates: Array | None = None, one_in: int = 10
) -> tuple[Array, Array]:
    """Numbers of the rows to train on and of those held out, both ascending.

    Rows with equal `keys` go to the same side: whole groups are drawn until one in `one_in`
    of the `candidates` (row numbers; by default all) is held out.

    >>> train, held = hold_out(np.array([[1], [2], [1], [3]]), seed=0, one_in=2)
    >>> sorted([train.tolist(), held.tolist()])
    [[0, 2], [1, 3]]
    """
    rows = np.arange(len(keys)) if candidates is None else candidates
    group = groups(keys[rows])
    sizes = np.bincount(group)
    wanted = max(1, len(rows) // one_in)
    # RandomState, because its stream is frozen: a split is the same with every NumPy.
    order = np.random.RandomState(seed).permutation(len(sizes))
    before = np.concatenate([[0], np.cumsum(sizes[order])[:-1]])
    held = np.isin(group, order[before < wanted])
    if held.all() or not held.any():
        raise DataError(
            f"{len(rows)} rows, {len(sizes)} of them distinct, are too few to hold some out: use "
            "the complete file"
        )
    return rows[~held], rows[held]


def groups(keys: Array) -> Array:
    """The number of each row's group: equal rows have equal numbers, counted by appearance.

    0.0 and -0.0 are equal, although their bytes differ.

    >>> groups(np.array([[0.0, 1.0], [2.0, 1.0], [-0.0, 1.0]])).tolist()
    [0, 1, 0]
    """
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(row, len(seen)) for row in as_bytes(keys)], dtype=np.int64)


def as_bytes(rows: Array) -> list[bytes]:
    """Each row as bytes that are equal exactly if the numbers are."""
    flat = rows.reshape(len(rows), -1)
    if flat.dtype.kind == "f":
        flat = flat + 0.0  # -0.0 becomes 0.0
    return [row.tobytes() for row in flat]


def standardise(train: Array, held: Array) -> tuple[Array, Array]:
    """Columns with mean 0 and variance 1 on the training rows; the held rows follow.

    A column that is constant on the training rows is only shifted.

    >>> train, held = standardise(np.array([[1.0], [3.0]]), np.array([[5.0]]))
    >>> train.tolist(), held.tolist()
    ([[-1.0], [1.0]], [[3.0]])
    """
    mean, scale = train.mean(axis=0), train.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return (train - mean) / scale, (held - mean) / scale


def channel_statistics(pixels: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each channel of byte images, from exact counts.

    >>> channel_statistics(np.array([[[[0, 2]], [[3, 3]]]], dtype=np.uint8))
    (array([1., 3.]), array([1., 0.]))
    """
    values = np.arange(256)
    counts = np.zeros((pixels.shape[1], 256), dtype=np.int64)
    for start in range(0, len(pixels), 1000):  # bincount works on a copy eight times as large
        for channel, count in enumerate(counts):
            count += np.bincount(pixels[start : start + 1000, channel].ravel(), minlength=256)
    total = counts.sum(axis=1)
    mean = counts @ values / total
    return mean, np.sqrt(np.maximum(counts @ values**2 / total - mean**2, 0.0))


def scale_images(pixels: Array, mean: Array, deviation: Array) -> Tensor:
    """(pixel - mean) / deviation for each channel, as float32, without a float64 copy of it all.

    >>> images = np.full((1, 1, 1, 2), 7, dtype=np.uint8)
    >>> scale_images(images, np.array([5.0]), np.array([4.0]))
    tensor([[[[0.5000, 0.5000]]]])
    """
    safe = np.where(deviation > 0, deviation, 1.0)
    table = ((np.arange(256) - mean[:, None]) / safe[:, None]).astype(np.float32)
    scaled = np.empty(pixels.shape, dtype=np.float32)
    for channel, values in enumerate(table):
        scaled[:, channel] = values[pixels[:, channel]]
    return torch.from_numpy(scaled)
