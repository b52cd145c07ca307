"""Numbers and lists as a reader wants them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .series import Series, Spread

TASKS = {
    "sarcos": "SARCOS",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar10-resnet": "ResNet-20 on CIFAR-10",
    "wide-mlp": "wide MLP",
    "error-bound": "SARCOS, small network",
}
ACTIVATIONS = {"relu": "ReLU", "silu": "SiLU", "gelu": "GELU"}
SETTINGS = {
    "eps": "ε",
    "decay": "γ",
    "compute_budget": "B",
    "memory_budget": "M",
}


def number(value: float) -> str:
    """A loss, a time or any other measure.

    >>> [number(x) for x in (31.178, 1234.5, 0.00123456, 0, 3.2e9)]
    ['31.18', '1,234', '0.00123', '0', '3.2e+09']
    """
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-4:
        return f"{value:.3g}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def metric(value: float, *, accuracy: bool) -> str:
    """A loss or an accuracy.

    >>> metric(0.95481, accuracy=True)
    '95.48 %'
    """
    return f"{100 * value:.2f} %" if accuracy else number(value)


def tick(value: float) -> str:
    """A place on an axis.

    >>> [tick(v) for v in (0, 0.1, 2048, 2_500_000, 1e7)]
    ['0', '0.1', '2,048', '2.5 M', '10 M']
    """
    return f"{value / 1e6:,.10g} M" if abs(value) >= 1e6 else f"{value:,.10g}"


def spread(values: Spread, *, accuracy: bool = False) -> str:
    """Mean, and range over the seeds where there are several.

    >>> spread(Spread((25.0, 26.0)))
    '25.50 (25.00 to 26.00)'
    """
    mean = metric(values.mean, accuracy=accuracy)
    if len(values.values) == 1:
        return mean
    low, high = (metric(v, accuracy=accuracy) for v in (values.low, values.high))
    return f"{mean} ({low} to {high})"


def plain(value: Any) -> str:
    """A setting.

    >>> [plain(v) for v in (1e-06, 0.99, 1, 12727, "tanh", True)]
    ['1e-6', '0.99', '1', '12,727', 'tanh', 'yes']
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)


def setting(name: str, value: Any) -> str:
    """A setting with its name.

    >>> setting("compute_budget", 64)
    'B 64'
    """
    return f"{SETTINGS.get(name, name.replace('_', ' '))} {plain(value)}"


def settings(values: dict[str, Any]) -> str:
    """All settings on one line."""
    return ", ".join(setting(name, value) for name, value in sorted(values.items()))


def task(name: str) -> str:
    """A task, as the paper writes it.

    >>> task("sarcos"), task("mnist, relu")
    ('SARCOS', 'MNIST, ReLU')
    """
    name, *others = name.split(", ")
    return ", ".join([TASKS.get(name, name), *(ACTIVATIONS.get(word, word) for word in others)])


def listed(items: Iterable[str], last: str = "and") -> str:
    """A list in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *others, end = list(items) or [""]
    return f"{', '.join(others)} {last} {end}" if others else end


def seeds(count: int) -> str:
    """How many seeds.

    >>> seeds(1), seeds(3)
    ('one seed', '3 seeds')
    """
    return "one seed" if count == 1 else f"{count} seeds"


def names(series: list[Series]) -> list[str]:
    """A name for each series that tells it from the others of its task.

    That is its label, with the settings in which it differs where others have the same label.
    """
    out: dict[int, str] = {}
    for task_name in {s.task for s in series}:
        places = [i for i, s in enumerate(series) if s.task == task_name]
        out.update(zip(places, _names([series[i] for i in places]), strict=True))
    return [out[i] for i in range(len(series))]


def _names(series: list[Series]) -> list[str]:
    labels = [s.label for s in series]
    if len(set(labels)) == len(labels):
        return labels
    differing = _differing(series)
    out = []
    for s in series:
        if labels.count(s.label) == 1:
            out.append(s.label)
            continue
        own = [setting(name, s.settings[name]) for name in differing if name in s.settings]
        head = [s.label] if len(set(labels)) > 1 or not own else []
        tail = [f"{s.run['split']} split"] if len({o.run["split"] for o in series}) > 1 else []
        tail += [f"{s.epochs} epochs"] if len({o.epochs for o in series}) > 1 else []
        out.append(", ".join([*head, *own, *tail]))
    if len(set(out)) < len(out):
        return [
            ", ".join(filter(None, [n, s.run["group"]])) for n, s in zip(out, series, strict=True)
        ]
    return out


def _differing(series: list[Series]) -> list[str]:
    """The settings in which series of one label differ; what the plan varies comes first."""
    vary = list(dict.fromkeys(s.run["vary"] for s in series if s.run["vary"]))
    found = set()
    for label in {s.label for s in series}:
        same = [s.settings for s in series if s.label == label]
        for name in {name for own in same for name in own}:
            if len({repr(own.get(name)) for own in same}) > 1:
                found.add(name)
    return [n for n in vary if n in found] + sorted(found - set(vary))
