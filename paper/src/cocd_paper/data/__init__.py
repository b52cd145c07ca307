"""The data of the paper's experiments: SARCOS, MNIST and CIFAR-10, from their official files.

Files are looked for in the folder that is named, else in that of the environment variable
``COCD_DATA``, else in the user's cache folder; ``cocd-paper data get NAME`` puts them there.

>>> from cocd_paper import data
>>> data.generated("sarcos", rows=400)  # of the same shape, but made up
Splits('sarcos', 'generated', 400 + 100 rows of (21,))
"""

from __future__ import annotations

from .augment import crop_and_flip
from .files import NAMES, DataError
from .generated import generated
from .sets import Folder, cifar10, mnist, sarcos
from .splits import Splits

__all__ = [
    "NAMES",
    "DataError",
    "Splits",
    "cifar10",
    "crop_and_flip",
    "generated",
    "load",
    "mnist",
    "sarcos",
]

_LOADERS = {"sarcos": sarcos, "mnist": mnist, "cifar10": cifar10}


def load(
    name: str, *, data: Folder = None, split: str = "test", seed: int = 0, check: bool = True
) -> Splits:
    """The data set of this name; see `sarcos`, `mnist` and `cifar10` for the arguments.

    >>> load("iris")
    Traceback (most recent call last):
    ValueError: name must be one of sarcos, mnist, cifar10, got 'iris'
    """
    if name not in _LOADERS:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    return _LOADERS[name](data=data, split=split, seed=seed, check=check)
