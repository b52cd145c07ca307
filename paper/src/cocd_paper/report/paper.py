"""The numbers of the paper's evaluation (its section 6 and appendices), as data.

The paper's figures are pictures without numbers: what its text says of them is here as claims
(`claims.py`), not as values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .series import Series

EPOCHS = 50
# Of the loss, by CoCD in all epochs: steps x (2 B + 1).
EVALUATIONS = {"sarcos": 34_750 * 129, "mnist": 23_450 * 513, "cifar10": 19_550 * 2_049}
MACHINE = "one NVIDIA RTX PRO 6000 Blackwell GPU"
STRESS_LOSS = 68.64  # SARCOS, B = 1, gamma 0.95, eps 1 (section 6.2)
STRESS_SETTINGS = {"compute_budget": 1, "decay": 0.95, "eps": 1.0}


class Entry(NamedTuple):
    """A row of table 2: the final metric and the seconds an epoch took."""

    metric: float
    seconds: float | None
    settings: dict[str, Any]


# Table 1. The learning rate and the weight decay are the same for all three methods.
_TABLE_1: dict[str, dict[str, Any]] = {
    "sarcos": {"lr": 1e-3, "decay": 1.0, "eps": 1.0, "compute_budget": 64},
    "mnist": {"lr": 1e-2, "decay": 0.99, "eps": 0.1, "compute_budget": 256},
    "cifar10": {"lr": 1e-2, "decay": 0.99, "eps": 0.1, "compute_budget": 1024},
}
_WEIGHT_DECAY = {"sarcos": 1e-4, "mnist": 1e-4, "cifar10": 5e-4}
_DECISIVE = ("lr", "eps", "compute_budget")
# Table 2: metric and seconds an epoch.
_TABLE_2: dict[str, dict[str, tuple[float, float | None]]] = {
    "sarcos": {"sgd": (5.38, None), "bccd": (188.73, 6.23), "cocd": (31.18, 6.12)},
    "mnist": {"sgd": (0.9921, None), "bccd": (0.2703, 44.42), "cocd": (0.9548, 44.56)},
    "cifar10": {"sgd": (0.6251, None), "bccd": (0.1013, 77.01), "cocd": (0.4508, 77.03)},
}


def settings(task: str, method: str) -> dict[str, Any]:
    """The paper's settings of a method on a task; empty where it has none.

    >>> settings("mnist", "bccd")["eps"]
    1e-06
    """
    if method not in _TABLE_2.get(task, {}):
        return {}
    own = {**_TABLE_1[task], "weight_decay": _WEIGHT_DECAY[task]}
    if method == "bccd":
        return {**own, "eps": 1e-6, "decay": 0.0, "dtype": "float32", "memory_budget": 1.0}
    if method == "sgd":
        return {"lr": own["lr"], "weight_decay": own["weight_decay"], "momentum": 0.9}
    return {**own, "dtype": "float32", "memory_budget": 1.0}


def entry(task: str, method: str, used: dict[str, Any]) -> Entry | None:
    """The row of table 2 that a run with the settings `used` repeats, if it does.

    What decides most has to be named; of the rest, what the run does not name contradicts nothing.

    >>> entry("sarcos", "cocd", {"lr": 1e-3, "decay": 1.0, "eps": 1.0, "compute_budget": 64}).metric
    31.18
    >>> entry("sarcos", "cocd", {"lr": 0.02, "decay": 0.9}) is None
    True
    """
    expected = settings(task, method)
    named = all(name in used for name in _DECISIVE if name in expected)
    if not expected or not named or any(used.get(k, v) != v for k, v in expected.items()):
        return None
    metric, seconds = _TABLE_2[task][method]
    return Entry(metric, seconds, expected)


def known(series: Series) -> Entry | None:
    """The row of table 2 that these runs repeat; other networks and small forms have none."""
    if series.run["smoke"] or series.plan == "adaptive" or not series.as_planned:
        return None
    return entry(series.task, series.method, series.settings)
