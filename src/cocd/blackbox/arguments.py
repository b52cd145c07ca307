"""Check the arguments of `minimize` and `AskTell` before anything else happens."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from math import isfinite, prod
from typing import Literal, Protocol, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike

from ..basis import KINDS
from ..parts.types import NonFinite, State
from ..parts.validation import NONFINITE, check_budgets, check_choice, check_count, check_group
from .executors.task import unmasked
from .methods.rule import Box, Vector

Method = Literal["auto", "cocd", "wasp", "cma"]
Basis = Literal["identity", "hadamard", "rotation"]
Seed = int | np.random.SeedSequence | np.random.BitGenerator | np.random.Generator | None


class Sides(Protocol):
    """Bounds as `scipy.optimize.Bounds` holds them."""

    @property
    def lb(self) -> ArrayLike: ...
    @property
    def ub(self) -> ArrayLike: ...


Bounds = Sides | Iterable[Iterable[float | None]]  # or a pair for each number


def check_start(x0: ArrayLike) -> tuple[Vector, tuple[int, ...]]:
    """Return a flat float64 copy of x0, and the shape of x0."""
    try:
        array = np.asarray(x0)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"x0 must be an array of real numbers, got {_short(x0)}")
    if not array.size:
        raise ValueError(f"x0 must hold at least one number, got an array of shape {array.shape}")
    flat = array.astype(np.float64).ravel()
    if not np.isfinite(flat).all():
        raise ValueError(f"x0 must be finite, got {flat[~np.isfinite(flat)][0]} among its numbers")
    return flat, array.shape


def check_bounds(bounds: Bounds | None, x0: Vector, shape: tuple[int, ...]) -> Box | None:
    """Convert SciPy's Bounds, or one pair per coordinate (None for no bound), to a `Box`."""
    if bounds is None:
        return None
    try:
        if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
            sides = [np.asarray(side, dtype=np.float64) for side in (bounds.lb, bounds.ub)]
            lower, upper = (np.broadcast_to(side, shape).flatten() for side in sides)
        else:
            pairs = [(low, high) for low, high in bounds]
            lower = np.array([-np.inf if low is None else low for low, _ in pairs], np.float64)
            upper = np.array([np.inf if high is None else high for _, high in pairs], np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "bounds must be a scipy.optimize.Bounds that fits x0 or a sequence of (low, high) "
            f"pairs, got {_short(bounds)}"
        ) from None
    if lower.shape != x0.shape or upper.shape != x0.shape:
        raise ValueError(f"bounds has {len(lower)} pairs, x0 has {len(x0)} numbers; give one each")
    wrong = np.flatnonzero(~(lower <= upper))
    if len(wrong):
        i = wrong[0]
        raise ValueError(f"bounds: ({lower[i]:g}, {upper[i]:g}) at position {i} is not an interval")
    outside = np.flatnonzero((x0 < lower) | (x0 > upper))
    if len(outside):
        i = outside[0]
        raise ValueError(
            f"x0 is outside its bounds: {x0[i]:g} is not in ({lower[i]:g}, {upper[i]:g}) at "
            f"position {i}; start inside, e.g. from numpy.clip(x0, low, high)"
        )
    return Box(lower, upper)


OPTIONS: dict[str, tuple[str, ...]] = {  # that each method has beyond the shared ones
    "auto": ("eps", "compute_budget"),
    "cocd": ("lr", "eps", "decay", "compute_budget", "memory_budget"),
    "wasp": ("lr", "eps", "compute_budget", "basis"),
    "cma": (),
}


def check_settings(
    n: int,
    *,
    method: Method,
    lr: float | None,
    eps: float | None,
    compute_budget: int | None,
    memory_budget: int | None,
    decay: float | None,
    basis: Basis | None,
    ftol: float | None,
    nonfinite: NonFinite,
) -> State:
    """Return the settings of a run as plain Python values; None lets the method choose."""
    given = {
        name: value
        for name, value in {"lr": lr, "eps": eps, "decay": decay}.items()
        if value is not None
    }
    check_group(given)
    B, m = (
        None if value is None else check_count(name, value)
        for name, value in (("compute_budget", compute_budget), ("memory_budget", memory_budget))
    )
    check_budgets(1 if B is None else B, m, n)
    check_choice("method", method, tuple(OPTIONS))
    if "lr" in OPTIONS[method] and lr is None:
        raise ValueError(f"method={method!r} needs lr; without a learning rate use method='auto'")
    if basis is not None:
        check_choice("basis", basis, KINDS)
    settings: State = {"lr": lr, "eps": eps, "decay": decay}
    settings |= {"compute_budget": compute_budget, "memory_budget": memory_budget}
    settings |= {"basis": basis}
    for name, value in settings.items():
        if value is not None and name not in OPTIONS[method]:
            other = next(m for m in ("cocd", "wasp") if name in OPTIONS[m])
            raise ValueError(
                f"{name}={value!r} is not an option of method={method!r}: use method={other!r}"
            )
    if ftol is not None:
        # A tolerance has the same constraints as a learning rate: finite and not negative.
        try:
            check_group({"lr": ftol})
        except ValueError as error:
            raise ValueError(str(error).replace("lr", "ftol", 1)) from None
    return {
        "method": method,
        **{name: float(given[name]) if name in given else None for name in ("lr", "eps", "decay")},
        "compute_budget": B,
        "memory_budget": m,
        "basis": basis,
        "ftol": None if ftol is None else float(ftol),
        "nonfinite": check_choice("nonfinite", nonfinite, NONFINITE),
    }


def check_limit(name: str, value: float | None) -> int | None:
    """Accept an integer of at least 1, a float such as 1e5 that equals one, or None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None else check_count(name, value)


def check_random(rng: Seed) -> np.random.Generator:
    """Make a generator from None, a seed or a generator."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise ValueError(
            f"rng must be None, a seed or a numpy.random.Generator, got {_short(rng)}"
        ) from None


def check_seconds(name: str, value: object, least: str = "above 0") -> float:
    """Check a finite number of seconds."""
    seconds = value if isinstance(value, (int, float)) and not isinstance(value, bool) else -1
    if not isfinite(seconds) or seconds < 0 or (least == "above 0" and not seconds):
        raise ValueError(f"{name} must be a finite number of seconds {least}, got {value!r}")
    return float(seconds)


def check_values(values: object, count: int) -> Vector:
    """Return `count` real numbers, NaN and infinities allowed, as a new float64 vector."""
    try:
        if isinstance(values, (list, tuple)):  # NumPy warns where an element is masked
            values = [np.nan if value is np.ma.masked else value for value in values]
        array = unmasked(values)
        if array.dtype == object:
            array = np.array([_real(value) for value in array.ravel()]).reshape(array.shape)
    except (TypeError, ValueError):
        array = np.asarray("no")
    if array.dtype.kind not in "biuf":
        kind = "complex numbers" if array.dtype.kind == "c" else _short(values)
        raise ValueError(f"values must be {count} real numbers, got {kind}")
    if array.size != count or prod(array.shape[1:]) != 1:
        raise ValueError(
            f"values must be {count} numbers, one for each point asked for, got an array of shape "
            f"{array.shape}"
        )
    return array.astype(np.float64).ravel()


def _real(value: SupportsFloat) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError
    return float(value)


def fingerprint(*arrays: Vector) -> str:
    """Hash vectors, so that a saved state can identify them without storing them."""
    digest = sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
