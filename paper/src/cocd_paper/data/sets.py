"""The three data sets of the paper, split and scaled."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch

from .files import DataError, Place, place
from .formats import Bytes, Floats, FormatError, cifar, idx, matlab
from .splits import Splits, as_bytes, channel_statistics, hold_out, scale_images, standardise

Folder = str | os.PathLike[str] | None

INPUTS = 21  # of SARCOS: 7 positions, 7 velocities, 7 accelerations; then 7 torques
MNIST_MEAN, MNIST_DEVIATION = 0.1307, 0.3081  # of the training images: the usual constants


def sarcos(
    *,
    data: Folder = None,
    split: str = "test",
    seed: int = 0,
    check: bool = True,
    standardised: bool = True,
) -> Splits:
    """Inverse dynamics of a robot arm: 21 inputs, 7 torques in N m.

    Args:
        data: The data folder; by default ``COCD_DATA`` or the user's cache folder.
        split: ``"test"`` holds out a tenth of the 44,484 rows, ``"validation"`` a tenth of the
            rows that ``"test"`` trains on, ``"published"`` is the published pair of files, most
            of whose test rows are training rows.
        seed: Which rows are held out. It is the seed of the split, not of a run: settings that
            were tuned on the validation rows of one seed have seen the test rows of another.
        check: Whether the files must hold what the official ones hold.
        standardised: Whether inputs are scaled to mean 0 and deviation 1.

    Rows with equal inputs are always on the same side, except in the published split. Inputs are
    standardised with the training rows alone.
    """
    check_split("sarcos", split)
    check_seed(seed)
    where = place(data, check)
    rows = _torques(where, "sarcos_inv")
    if split == "published":
        test = _torques(where, "sarcos_inv_test")
        note = _published_note(rows, test)
        return regression("sarcos", split, rows, test, note, standardised)
    inputs = rows[:, :INPUTS].astype(np.float32)  # as the network sees them
    train, held = hold_out(inputs, seed)
    note = (
        f"{len(held):,} of the {len(rows):,} rows of sarcos_inv.mat are held out at random "
        f"(seed {seed}); no row stands on both sides"
    )
    if split == "validation":
        tests, candidates = len(held), train
        train, held = hold_out(inputs, seed, candidates)
        note = (
            f"{len(held):,} of the {len(candidates):,} training rows are held out at random (seed "
            f"{seed}) for tuning; the {tests:,} test rows are on neither side, no row is on both"
        )
    return regression("sarcos", split, rows[train], rows[held], f"{note}.", standardised)


def mnist(*, data: Folder = None, split: str = "test", seed: int = 0, check: bool = True) -> Splits:
    """Handwritten digits: images (1, 28, 28), labels 0 to 9.

    Pixels are scaled as (x / 255 - 0.1307) / 0.3081. `split` is ``"test"``, the official test
    images, or ``"validation"``, a tenth of the training images, in which case the test files are
    not read. The other arguments are those of `sarcos`.
    """
    check_split("mnist", split)
    check_seed(seed)
    where = place(data, check)
    training = _digits(where, "train")
    if split == "validation":
        return _tuning_images("mnist", training, seed)
    test = _digits(where, "t10k")
    return images("mnist", split, training, test, _official_note(training[0], test[0]))


def cifar10(
    *, data: Folder = None, split: str = "test", seed: int = 0, check: bool = True
) -> Splits:
    """Small photographs: images (3, 32, 32), labels 0 to 9.

    Each channel is standardised with the training images alone. The arguments are those of
    `mnist`.
    """
    check_split("cifar10", split)
    check_seed(seed)
    where = place(data, check)
    training = _photographs(where, [f"data_batch_{i}" for i in range(1, 6)])
    if split == "validation":
        return _tuning_images("cifar10", training, seed)
    test = _photographs(where, ["test_batch"])
    return images("cifar10", split, training, test, _official_note(training[0], test[0]))


Array = TypeVar("Array", Bytes, Floats)


def _parsed(where: Place, name: str, path: str, parse: Callable[[bytes], Array]) -> Array:
    """What a file holds; the checksum comes first, the parser second."""
    content = where.read(name, path)
    try:
        return parse(content)
    except FormatError as error:
        raise DataError(f"{where.folder / path} {error}: {where.remedy(name)}") from None


def _torques(where: Place, variable: str) -> Floats:
    """Rows of 21 inputs and 7 torques."""
    path = f"sarcos/{variable}.mat"
    return _parsed(where, "sarcos", path, lambda content: matlab(content, variable, INPUTS + 7))


def _digits(where: Place, prefix: str) -> tuple[Bytes, Bytes]:
    """Images (N, 1, 28, 28) and labels (N,), both bytes."""
    path = f"mnist/{prefix}-images-idx3-ubyte.gz"
    images = _parsed(where, "mnist", path, lambda content: idx(content, 3))
    path = f"mnist/{prefix}-labels-idx1-ubyte.gz"
    labels = _parsed(where, "mnist", path, lambda content: idx(content, 1))
    if images.shape[1:] != (28, 28) or len(images) != len(labels) or labels.max() > 9:
        raise DataError(
            f"{where.folder / path} does not hold a label from 0 to 9 for each of {len(images):,} "
            f"images of 28 x 28 pixels: {where.remedy('mnist')}"
        )
    return images[:, None], labels


def _photographs(where: Place, batches: Sequence[str]) -> tuple[Bytes, Bytes]:
    """Images (N, 3, 32, 32) and labels (N,), both bytes."""
    paths = [f"cifar-10-batches-bin/{batch}.bin" for batch in batches]
    records = np.concatenate([_parsed(where, "cifar10", path, cifar) for path in paths])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def regression(
    name: str, split: str, train: Floats, held: Floats, note: str, standardised: bool = True
) -> Splits:
    """Rows of inputs and targets as float32 tensors, the inputs standardised if that is asked."""
    x = train[:, :INPUTS], held[:, :INPUTS]
    if standardised:
        x = standardise(*x)
    y = train[:, INPUTS:], held[:, INPUTS:]
    train_x, held_x, train_y, held_y = (torch.from_numpy(part.astype(np.float32)) for part in x + y)
    return Splits(train_x, train_y, held_x, held_y, name, split, note)


def images(
    name: str, split: str, train: tuple[Bytes, Bytes], held: tuple[Bytes, Bytes], note: str
) -> Splits:
    """Byte images and labels as tensors, scaled by constants or by the training images."""
    if name == "mnist":
        mean, deviation = np.array([255 * MNIST_MEAN]), np.array([255 * MNIST_DEVIATION])
    else:
        mean, deviation = channel_statistics(train[0])
    x, held_x = (scale_images(pixels, mean, deviation) for pixels, _ in (train, held))
    y, held_y = (torch.from_numpy(labels.astype(np.int64)) for _, labels in (train, held))
    return Splits(x, y, held_x, held_y, name, split, note)


def _tuning_images(name: str, training: tuple[Bytes, Bytes], seed: int) -> Splits:
    """The validation split of images: the test files are not even read."""
    train, held = hold_out(training[0], seed)
    note = (
        f"{len(held):,} of the {len(training[0]):,} official training images are held out at "
        f"random (seed {seed}) for tuning; the test images are on neither side."
    )
    parts = [(training[0][rows], training[1][rows]) for rows in (train, held)]
    return images(name, "validation", parts[0], parts[1], note)


def _official_note(training: Bytes, test: Bytes) -> str:
    return f"The official split: {len(training):,} images to train on, {len(test):,} to test."


def check_split(name: str, split: str) -> None:
    """Raise unless the data set has such a split."""
    known = ("test", "validation", "published") if name == "sarcos" else ("test", "validation")
    if split not in known:
        raise ValueError(f"split of {name} must be one of {', '.join(known)}, got {split!r}")


def check_seed(seed: int) -> None:
    """Raise unless `seed` can seed a split.

    >>> check_seed(-1)
    Traceback (most recent call last):
    ValueError: seed must be a whole number from 0 to 4294967295, got -1
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1}, got {seed!r}")


def _published_note(rows: Floats, test: Floats) -> str:
    verbatim, inputs = _overlap(rows, test), _overlap(rows[:, :INPUTS], test[:, :INPUTS])
    return (
        f"The published files leak: {verbatim:,} of the {len(test):,} test rows stand verbatim in "
        f"the training file of {len(rows):,}, and the inputs of {inputs:,} do, so that a score on "
        "them measures memory."
    )


def _overlap(rows: Floats, test: Floats) -> int:
    known = set(as_bytes(rows))
    return sum(row in known for row in as_bytes(test))
