"""Argument checks; each error names the argument, the value and the remedy in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any, cast

from torch import Tensor, nn

from ..objective.protocol import DIFFERENCES, Difference
from .types import Group

NONFINITE = ("skip", "raise")


def _number(name: str, value: object, what: str) -> float:
    try:
        if isinstance(value, (bool, str)):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be {what}, got {value!r}") from None
    return number


def check_group(group: Group) -> None:
    """Refuse invalid options of a parameter group."""
    for name in ("lr", "weight_decay", "l2"):
        if name in group:
            what = "a finite number that is not negative"
            value = _number(name, group[name], what)
            if not (isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be {what}, got {group[name]!r}")
    if "eps" in group:
        what = "a finite number above 0"
        value = _number("eps", group["eps"], what)
        if not (isfinite(value) and value > 0):
            raise ValueError(f"eps must be {what}, got {group['eps']!r}")
    if "decay" in group:
        what = "a number from 0 to 1"
        value = _number("decay", group["decay"], what)
        if not 0 <= value <= 1:
            raise ValueError(f"decay must be {what}, got {group['decay']!r}")


def check_count(name: str, value: object) -> int:
    """Return a whole number of at least 1."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    count = int(value.__index__())
    if count < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return count


def check_seed(value: object) -> int:
    """Return a whole number as a seed for torch's generators."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"seed must be a whole number, got {value!r}")
    return int(value.__index__())


def check_budgets(compute: int, memory: int | None, n: int) -> None:
    """Check that B <= m <= n."""
    if compute > n:
        raise ValueError(
            f"compute_budget={compute} is more than the {n} coordinates; use at most {n}"
        )
    if memory is not None and memory > n:
        raise ValueError(
            f"memory_budget={memory} is more than the {n} coordinates; use at most {n}, "
            "or None for all of them"
        )
    if memory is not None and compute > memory:
        raise ValueError(
            f"compute_budget={compute} is more than memory_budget={memory}: estimates would be "
            "thrown away before they are used; raise memory_budget or lower compute_budget"
        )


def default_budget(n: int, memory: int | None) -> int:
    """The default B: n / 100, at least 64.

    >>> [default_budget(n, None) for n in (10, 1_000, 12_727, 270_000)]
    [10, 64, 127, 2700]
    """
    return min(max(64, n // 100), n, n if memory is None else memory)


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return a value that must be one of `choices`."""
    if value not in tuple(choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def check_difference(value: object) -> Difference:
    """Return the name of a difference: central, forward or backward."""
    return cast(Difference, check_choice("difference", value, DIFFERENCES))


def check_modules(modules: object) -> list[nn.Module] | None:
    """Return None or a list of modules, from None, one module or several."""
    if modules is None:
        return None
    several = isinstance(modules, Iterable) and not isinstance(modules, nn.Module)
    found: list[nn.Module] = []
    for module in list(modules) if several else [modules]:  # type: ignore[call-overload]
        if not isinstance(module, nn.Module):
            raise ValueError(f"modules must be torch modules, got {modules!r}")
        found.append(module)
    return found


def unique(params: Any) -> Any:
    """Remove repeated parameters from a list, named or not; the first of each stays."""
    if isinstance(params, (Tensor, set)):
        return params  # torch wraps a tensor and refuses a set
    seen: set[int] = set()
    kept = []
    for entry in params:
        tensor = entry[1] if isinstance(entry, tuple) and len(entry) == 2 else entry
        if id(tensor) not in seen:
            seen.add(id(tensor))
            kept.append(entry)
    return kept
