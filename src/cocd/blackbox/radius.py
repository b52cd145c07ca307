"""How far to probe: from the rounding of float64, the scale of x and the noise of the function.

A central difference has an error of noise / h from the values and of O(h^2) from the third
derivative, so the best h grows with the cube root of the noise. A table of differences measures the
noise: the k-th differences of closely spaced values of a smooth function shrink with k, those of
noise grow by a known factor.
"""

from __future__ import annotations

from math import comb

import numpy as np

from .methods.rule import Box, Matrix, Vector

ROUNDING = float(np.finfo(np.float64).eps)
TABLE = 8  # values in the table of differences
_SPACING = 1e-7  # between them, relative to the scale of x
MEASUREMENTS = TABLE + 2  # evaluations that measure the noise


def scales(x: Vector, box: Box | None) -> Vector:
    """The size of each coordinate: at least 1, as in SciPy, and no wider than its bounds."""
    size = np.maximum(1.0, np.abs(x))
    if box is None:
        return size
    width = box.upper - box.lower
    return np.minimum(size, np.where(width > 0, width, 1.0))


def radii(x: Vector, box: Box | None, noise: float) -> Vector:
    """A radius for each coordinate of x; `noise` is that of `relative_noise`, 0 for none.

    >>> import numpy as np
    >>> radii(np.array([0.0, 1e3]), None, 0.0)
    array([6.05545445e-06, 6.05545445e-03])
    >>> radii(np.zeros(1), None, 1e-3)
    array([0.1])
    """
    return scales(x, box) * float(np.cbrt(np.clip(noise, ROUNDING, 1.0)))


def measuring_points(x: Vector, signs: Vector, box: Box | None) -> Matrix:
    """x, close neighbours along one direction, and points at half the scale and the scale of x.

    `signs` are random ±1, because the function may be constant along a single coordinate. With
    bounds, every coordinate moves to the side with more room.
    """
    size = scales(x, box)
    steps: Vector = np.concatenate([np.arange(TABLE) * _SPACING, [0.5, 1.0]])
    if box is None:
        direction = signs * size / np.sqrt(len(x))
        return np.add(x, np.outer(steps, direction))
    room_up, room_down = box.upper - x, x - box.lower
    signs = np.where(room_up == room_down, signs, np.where(room_up > room_down, 1.0, -1.0))
    direction = signs * np.minimum(size, np.maximum(room_up, room_down)) / np.sqrt(len(x))
    return np.clip(np.add(x, np.outer(steps, direction)), box.lower, box.upper)


def relative_noise(values: Vector) -> float:
    """The noise in the values at `measuring_points`, relative to the range of these values.

    It is 0 if the noise does not exceed rounding, or if evaluations failed.
    """
    table, far = values[:TABLE], values[TABLE:]
    if not np.isfinite(table).all():
        return 0.0
    reach = np.abs(far[np.isfinite(far)] - table[0])
    size = max(float(reach.max(initial=0.0)), float(np.ptp(table)))
    return min(1.0, noise_level(table) / size) if size > 0 else 0.0


def noise_level(table: Vector) -> float:
    """The standard deviation of the noise in equally spaced, close values; 0 if there is none.

    The k-th differences of independent noise of variance s^2 have variance binom(2k, k) s^2.
    Each order gives an estimate of s. If three orders in a row agree within a factor of 4 and the
    differences change sign, the smooth part has vanished, and the first of the three is the result.

    >>> import numpy as np
    >>> noise_level(np.linspace(0, 1, 8) ** 2) < 1e-15  # rounding alone
    True
    >>> rng = np.random.default_rng(0)
    >>> bool(0.03 < noise_level(5 + np.linspace(0, 1e-3, 8) + 0.1 * rng.standard_normal(8)) < 0.2)
    True
    """
    if len(np.unique(table)) <= len(table) // 2:  # steps of rounding, or no change at all
        return 0.0
    levels, changes, differences = [], [], table
    for k in range(1, len(table) - 1):
        differences = np.diff(differences)
        levels.append(float(np.sqrt(np.mean(differences**2) / comb(2 * k, k))))
        changes.append(bool(differences.min() < 0 < differences.max()))
    for k in range(len(levels) - 2):
        three = levels[k : k + 3]
        if changes[k] and max(three) <= 4 * min(three):
            return levels[k]
    return 0.0
