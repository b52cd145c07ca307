"""Claims about settings: radii, decay, budgets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf, isfinite, nan

from .. import claims, paper, text, words
from ..series import Series
from .finding import (
    NOT,
    OPEN,
    PART,
    SEEN,
    Finding,
    as_the_paper,
    end,
    ended,
    shown,
    together,
    whole,
)

Panel = dict[float, Series]  # by the value of what is varied, small to large


def _panel(series: Sequence[Series], vary: str) -> Panel:
    return dict(claims.ordered([s for s in series if ended(s)], vary))


def _chain(panel: Panel) -> str:
    return ", ".join(f"{shown(s)} at {text.plain(value)}" for value, s in panel.items())


def _long(panel: Panel) -> str:
    """The chain, and how long the runs were if not as long as the paper's."""
    epochs = next(iter(panel.values())).epochs
    return _chain(panel) + ("" if epochs == paper.EPOCHS else f" ({epochs} epochs)")


def _levels(panel: Panel) -> list[float]:
    """Losses, or errors: less is better."""
    return [1 - end(s) if s.accuracy else end(s) for s in panel.values()]


_ALIKE = 1.02  # losses that differ by less, of one seed, are not told apart


def _is_best(panel: Panel, value: float) -> bool:
    (own,) = _levels({value: panel[value]})
    return isfinite(own) and own <= _ALIKE * min(_levels(panel))


def _is_worst(panel: Panel, value: float) -> bool:
    (own,) = _levels({value: panel[value]})
    others = _levels({v: s for v, s in panel.items() if v != value})
    return _ALIKE * max(others) < own


# --- the smoothing figure ----------------------------------------------------------------


def _radii(series: Sequence[Series], label: str) -> Panel:
    own = [s for s in series if (s.plan, s.label) == ("figure-smoothing", label)]
    longest = max((s.epochs for s in own if ended(s)), default=0)
    found = _panel([s for s in own if s.epochs == longest], "eps")
    return found if len(found) > 1 and 1.0 in found else {}


def anomaly(series: Sequence[Series]) -> Finding | None:
    """CoCD and BCCD with the paper's rates in float32."""
    cocd, bccd = _radii(series, "CoCD"), _radii(series, "BCCD")
    if not cocd or not bccd:
        return None
    held = (_is_best(cocd, 1.0), _is_worst(bccd, 1.0))
    return Finding(together(held), f"CoCD {_long(cocd)}; BCCD {_long(bccd)}")


def smallest_radius(series: Sequence[Series]) -> Finding | None:
    """BCCD with the paper's rate in float32."""
    panel = _radii(series, "BCCD")
    if not panel or 1e-6 not in panel:
        return None
    return Finding(together([_is_best(panel, 1e-6)]), _long(panel))


# --- the ablation ------------------------------------------------------------------------


def _panels(series: Sequence[Series], group: str, vary: str) -> dict[str, Panel]:
    """By task, a panel of the ablation: of the lengths it was run at the one with most values."""
    own = [s for s in series if s.plan == "figure-ablation" and ended(s)]
    found: dict[str, Panel] = {}
    for task, epochs in sorted({(s.task, s.epochs) for s in own}):
        alike = [s for s in own if (s.task, s.epochs) == (task, epochs)]
        panel = _panel(claims.varied(alike, task, group), vary)
        if len(panel) > 1 and len(panel) >= len(found.get(task, ())):
            found[task] = panel
    order = list(dict.fromkeys(s.task for s in own))
    return {task: found[task] for task in order if task in found}


def _chains(panels: dict[str, Panel]) -> str:
    return "; ".join(f"{text.task(task)} {_long(panel)}" for task, panel in panels.items())


def _better_each_time(panel: Panel) -> bool:
    return all(later < before for before, later in pairwise(_levels(panel)))


def radius(series: Sequence[Series]) -> Finding | None:
    """On SARCOS; what seeds alone make at one radius is known from the main table."""
    panel = _panels(series, "eps", "eps").get("sarcos")
    if panel is None:
        return None
    here = _chains({"sarcos": panel})
    main = as_the_paper(series, "cocd").get("sarcos")
    if main is not None and ended(main) and main.epochs == panel[max(panel)].epochs:
        if main.diverged:
            return Finding(OPEN, f"{here}; at ε 1 {words.how_many(main)}")
        finals, seeds = [end(s) for s in panel.values()], main.final
        if seeds is not None and seeds.high - seeds.low > max(finals) - min(finals):
            low, high = text.number(seeds.low), text.number(seeds.high)
            return Finding(OPEN, f"{here}; at ε 1 seeds alone make {low} to {high}")
    return Finding(together([_better_each_time(panel)]), here)


def radius_of_classification(series: Sequence[Series]) -> Finding | None:
    """On MNIST."""
    panel = _panels(series, "eps", "eps").get("mnist")
    if panel is None:
        return None
    here = _chains({"mnist": panel})
    if max(end(s) for s in panel.values()) < _LEARNED:
        return Finding(OPEN, f"{here}: none has learned much")
    levels = _levels(panel)
    return Finding(together([levels == sorted(levels)]), here)


_LEARNED = 0.5  # of accuracy


def decay(series: Sequence[Series]) -> Finding | None:
    """On both tasks."""
    panels = {t: p for t, p in _panels(series, "gamma", "decay").items() if 0.0 in p}
    if not panels:
        return None
    rising = [_better_each_time(p) for p in panels.values()]
    slowest = [_levels(p)[0] == max(_levels(p)) for p in panels.values()]
    verdict = SEEN if all(rising) else PART if any(rising) or any(slowest) else NOT
    return Finding(whole(verdict, panels, 2), _chains(panels))


def compute(series: Sequence[Series]) -> Finding | None:
    """On SARCOS: the first tenth of the run, and where budgets four times as large end."""
    panel = _panels(series, "B", "compute_budget").get("sarcos", {})
    if not {16.0, 64.0, 256.0, 1024.0} <= set(panel):
        return None
    early = max(1, panel[64.0].epochs // 10)
    left = {B: _share(panel[B], early) for B in (16.0, 64.0)}
    gains = [
        end(panel[small]) / end(panel[large]) if 0 < end(panel[large]) < inf else nan
        for small, large in ((16.0, 64.0), (64.0, 256.0), (256.0, 1024.0))
    ]
    held = (left[64.0] <= 0.5 < left[16.0], all(b < a for a, b in pairwise(gains)))
    if not all(map(isfinite, (*left.values(), *gains))):
        return Finding(together(held), _long(panel))
    times = ", ".join(f"{gain:.2g}" for gain in gains)
    return Finding(
        together(held),
        f"{_long(panel)}; after {early} epochs {left[16.0]:.2g} times the first loss at 16, "
        f"{left[64.0]:.2g} at 64; from 16 on four times the budget gains a factor of {times}",
    )


def _share(series: Series, epoch: int) -> float:
    """What is left of the first loss; of a run that diverged, more than there was."""
    first, then = series.at(0), series.at(epoch)
    if series.diverged or first is None or then is None or not first.mean:
        return inf
    return then.mean / first.mean


def memory(series: Sequence[Series]) -> Finding | None:
    """A quarter of the buffer against the best size."""
    panels = {t: p for t, p in _panels(series, "M", "memory_budget").items() if 0.25 in p}
    if not panels:
        return None
    held = together(map(_competitive, panels.values()))
    return Finding(whole(held, panels, 2), _chains(panels))


def _competitive(panel: Panel) -> bool:
    own, best = panel[0.25], min(_levels(panel))
    (level,) = _levels({0.25: own})
    return isfinite(level) and level <= (best + 0.02 if own.accuracy else 1.1 * best)


def stress(series: Sequence[Series]) -> Finding | None:
    """One coordinate a step, at several rates, against BCCD with 64."""
    own = [
        s
        for s in series
        if (s.plan, s.task, s.run["group"]) == ("figure-ablation", "sarcos", claims.STRESS)
        and ended(s)
    ]
    wanted = paper.STRESS_SETTINGS.items()
    ours = [s for s in own if all(s.settings.get(name) == value for name, value in wanted)]
    rival = next((s for s in own if s.method == "bccd"), None)
    if not ours or rival is None:
        return None
    low, other = min(map(end, ours)), end(rival)
    verdict = SEEN if low <= paper.STRESS_LOSS and low < other else PART if low < other else NOT
    each = _chain(_panel(ours, "lr"))
    best = " (the best of these rates counts)" if len(ours) > 1 else ""
    return Finding(verdict, f"lr: {each}{best}; BCCD with B = 64 {shown(rival)}")
