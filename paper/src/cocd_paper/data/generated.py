"""Small synthetic data of the real shapes, which a few steps of training can learn."""

from __future__ import annotations

import numpy as np

from .files import NAMES
from .formats import Bytes, Floats
from .sets import INPUTS, check_seed, images, regression
from .splits import Splits

SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
SPREAD = np.array([20.0, 15.0, 10.0, 14.0, 1.0, 1.7, 2.6])  # N m, by joint
FIXED = 2026  # seeds what is to be learnt, which is the same for every `seed` of the rows


def generated(name: str, seed: int = 0, *, rows: int = 1024) -> Splits:
    """Data of the shape and kind of `name`, for trials where the real files are not at hand.

    SARCOS becomes torques that are a smooth function of the inputs, the images noisy prototypes
    of ten classes. What is to be learnt is always the same; `seed` draws the rows.

    Args:
        name: ``"sarcos"``, ``"mnist"`` or ``"cifar10"``.
        seed: Which rows are drawn.
        rows: How many to train on; a quarter as many are held out.

    >>> generated("mnist", rows=64)
    Splits('mnist', 'generated', 64 + 16 rows of (1, 28, 28))
    """
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    check_seed(seed)
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 4:
        raise ValueError(f"rows must be a whole number of at least 4, got {rows!r}")
    held = rows // 4
    random = np.random.RandomState(seed)
    note = f"Generated, not measured: {rows:,} rows to train on, {held:,} held out (seed {seed})."
    if name == "sarcos":
        table = _torques(random.standard_normal((rows + held, INPUTS)))
        return regression(name, "generated", table[:rows], table[rows:], note)
    pixels, labels = _prototypes(SHAPES[name], rows + held, random)
    training, test = (pixels[:rows], labels[:rows]), (pixels[rows:], labels[rows:])
    return images(name, "generated", training, test, note)


def _torques(inputs: Floats) -> Floats:
    """Inputs, and seven smooth functions of them that spread about as far as the real torques."""
    fixed = np.random.RandomState(FIXED)
    slope = fixed.standard_normal((INPUTS, 7)) / np.sqrt(INPUTS)
    bend = fixed.standard_normal((INPUTS, 12)) / np.sqrt(INPUTS)
    mix = fixed.standard_normal((12, 7)) / np.sqrt(12)
    torques = (inputs @ slope + np.tanh(inputs @ bend) @ mix) * SPREAD
    return np.concatenate([inputs, torques], axis=1)


def _prototypes(
    shape: tuple[int, ...], rows: int, random: np.random.RandomState
) -> tuple[Bytes, Bytes]:
    """Images of ten classes: a coarse pattern for each, and noise on every pixel."""
    channels, height, width = shape
    coarse = np.random.RandomState(FIXED).uniform(40, 216, (10, channels, 4, 4))
    patterns = coarse.repeat(height // 4, axis=2).repeat(width // 4, axis=3)
    labels = random.randint(0, 10, rows)
    noisy = patterns[labels] + random.normal(0, 40, (rows, *shape))
    return noisy.clip(0, 255).astype(np.uint8), labels.astype(np.uint8)
