"""Numbers, settings and names as a reader wants them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .series import Series, Spread

TASKS = {
    "sarcos": "SARCOS",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar10-resnet": "ResNet-20 on CIFAR-10",
    "wide-mlp": "wide MLP",
    "error-bound": "SARCOS, small network",
    "relu": "ReLU",
    "silu": "SiLU",
    "gelu": "GELU",
}
SETTINGS = {"eps": "ε", "decay": "γ", "compute_budget": "B", "memory_budget": "M"}


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


def outcome(series: Series) -> str:
    """Where a series ended, and what became of the runs that did not end as planned."""
    count, gone = len(series.results), series.diverged
    parts = []
    if series.final is not None and len(gone) < count:
        shown = spread(series.final, accuracy=series.accuracy)
        early = series.reached < series.epochs
        parts.append(
            f"{shown} after {series.reached} of {series.epochs} epochs" if early else shown
        )
    if gone:
        when = ", ".join(str(r.last.get("epoch", 0)) for r in gone)
        seeds = f" ({len(gone)} of {count} seeds)" if count > 1 else ""
        parts.append(f"diverged in epoch {when}{seeds}")
    return "; ".join(parts) or "no rows yet"


def plain(value: object) -> str:
    """A setting's value.

    >>> [plain(v) for v in (1e-06, 0.99, 1, 12727, "tanh", None)]
    ['1e-6', '0.99', '1', '12,727', 'tanh', '–']
    """
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)


def heading(name: str) -> str:
    """What a setting is called.

    >>> heading("compute_budget"), heading("batch_size")
    ('B', 'batch size')
    """
    return SETTINGS.get(name, name.replace("_", " "))


def task(name: str) -> str:
    """A task, as the paper writes it.

    >>> task("sarcos"), task("mnist, relu")
    ('SARCOS', 'MNIST, ReLU')
    """
    return ", ".join(TASKS.get(word, word) for word in name.split(", "))


def names(series: Sequence[Series]) -> list[str]:
    """A name for each series: its label, and what tells it from others of its task and label."""
    return [_name(s, [o for o in series if (o.task, o.label) == (s.task, s.label)]) for s in series]


def _name(one: Series, alike: Sequence[Series]) -> str:
    if len(alike) == 1:
        return one.label
    found = {n for s in alike for n in s.settings} - {"max_evaluations"}  # that follows from epochs
    differ = sorted(n for n in found if _several(s.settings.get(n) for s in alike))
    shown = [one.run["vary"]] if one.run["vary"] in differ else differ
    parts = [f"{heading(n)} {plain(one.settings[n])}" for n in shown if n in one.settings]
    parts += [f"{one.run['split']} split"] if _several(s.run["split"] for s in alike) else []
    parts += [f"{one.epochs} epochs"] if _several(s.epochs for s in alike) else []
    return ", ".join([one.label, *(parts or [str(one.run["group"])])])


def _several(values: Iterable[object]) -> bool:
    return len({repr(value) for value in values}) > 1
