"""Where data files are looked for, and what they are called there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cocd.errors import DataError

NAMES = ("sarcos", "mnist", "cifar10")

SARCOS_TRAIN, SARCOS_TEST = "sarcos/sarcos_inv.mat", "sarcos/sarcos_inv_test.mat"
MNIST_TRAIN = ("mnist/train-images-idx3-ubyte", "mnist/train-labels-idx1-ubyte")
MNIST_TEST = ("mnist/t10k-images-idx3-ubyte", "mnist/t10k-labels-idx1-ubyte")
CIFAR_BINARY, CIFAR_PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
CIFAR_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
CIFAR_TEST = ("test_batch",)


def root(data: str | os.PathLike[str] | None = None) -> Path:
    """The data folder: `data`, else ``COCD_DATA``, else ``cocd`` in the user's cache folder.

    >>> root("somewhere").name
    'somewhere'
    """
    chosen = data if data is not None else os.environ.get("COCD_DATA")
    try:
        return Path(chosen).expanduser() if chosen else cache(os.environ, sys.platform) / "cocd"
    except RuntimeError:  # pathlib's, where there is no home folder
        raise DataError(
            "there is no home folder to look for data in: name a folder with data=, --data or "
            "the environment variable COCD_DATA"
        ) from None


def cache(environment: Mapping[str, str], platform: str) -> Path:
    """The user's cache folder by the custom of the `platform`.

    >>> cache({"XDG_CACHE_HOME": "/big/cache"}, "linux").as_posix()
    '/big/cache'
    """
    if platform == "win32":
        local = environment.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches"
    xdg = environment.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is invalid and must be ignored.
    return Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"


def idx_file(folder: Path, name: str) -> Path:
    """The IDX file of this name, packed or not; the packed one where there is neither."""
    plain = folder / name
    packed = plain.with_name(plain.name + ".gz")
    return plain if plain.is_file() and not packed.is_file() else packed


def cifar_files(folder: Path, batches: tuple[str, ...]) -> list[Path]:
    """The files of these batches: the binary version, or the Python version if only that is there.

    >>> [path.name for path in cifar_files(Path("nowhere"), CIFAR_TEST)]
    ['test_batch.bin']
    """
    binary = [folder / CIFAR_BINARY / f"{batch}.bin" for batch in batches]
    python = [folder / CIFAR_PYTHON / batch for batch in batches]
    return python if _all_there(python) and not _all_there(binary) else binary


def _all_there(files: list[Path]) -> bool:
    return all(file.is_file() for file in files)
