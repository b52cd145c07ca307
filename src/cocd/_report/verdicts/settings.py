"""Claims about settings: radii, decay, budgets."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from .. import claims, paper, text, words
from ..series import Series
from .finding import NOT, OPEN, PART, SEEN, Finding, as_the_paper, gap, together


def smoothing(series: Sequence[Series]) -> Finding | None:
    """Each larger radius better for CoCD, worse for BCCD, with the paper's rates in float32."""
    held, parts = [], []
    for label, wanted in (("CoCD", "rising"), ("BCCD", "falling")):
        own = [s for s in series if (s.plan, s.label) == ("figure-smoothing", label)]
        if found := claims.trend(own, "eps"):
            held.append(found == wanted)
            parts.append(f"{label} {claims.chain(own, 'eps')}")
    return Finding(together(held), "; ".join(parts)) if held else None


def _panels(series: Sequence[Series], group: str, vary: str) -> dict[str, list[Series]]:
    """By task, a panel of the ablation: the runs of a group, and those at the defaults."""
    own = [s for s in series if s.plan == "figure-ablation"]
    found = {task: claims.varied(own, task, group) for task in dict.fromkeys(s.task for s in own)}
    return {task: panel for task, panel in found.items() if claims.trend(panel, vary)}


def _chains(panels: dict[str, list[Series]], vary: str) -> str:
    return "; ".join(
        f"{text.task(task)} {claims.chain(panel, vary)}"
        + (f" ({panel[0].epochs} epochs)" if panel[0].epochs != paper.EPOCHS else "")
        for task, panel in panels.items()
    )


def radius(series: Sequence[Series]) -> Finding | None:
    """Each larger radius better, on SARCOS; open if seeds alone make more than all radii do."""
    panel = _panels(series, "eps", "eps").get("sarcos")
    if panel is None:
        return None
    here = _chains({"sarcos": panel}, "eps")
    finals = [s.final.mean for s in panel if s.final is not None and not s.diverged]
    main = as_the_paper(series, "cocd").get("sarcos")
    seeds = main.final if main is not None and not main.diverged else None
    if seeds is not None and finals and seeds.high - seeds.low > max(finals) - min(finals):
        low, high = text.number(seeds.low), text.number(seeds.high)
        return Finding(OPEN, f"{here}; at ε 1 seeds alone make {low} to {high}")
    return Finding(together([claims.trend(panel, "eps") == "rising"]), here)


def decay(series: Sequence[Series]) -> Finding | None:
    """Seen if each larger value does better; in part if 0 is the worst, or so on one task alone."""
    panels = _panels(series, "gamma", "decay")
    if not panels:
        return None
    rising = [claims.trend(p, "decay") == "rising" for p in panels.values()]
    worst = [claims.worst(p, "decay") == 0.0 for p in panels.values()]
    verdict = SEEN if all(rising) else PART if any(rising) or any(worst) else NOT
    return Finding(verdict, _chains(panels, "decay"))


def compute(series: Sequence[Series]) -> Finding | None:
    """64 at half the loss of 16 or less; 256 at four fifths of the loss of 64 or more."""
    panel = _panels(series, "B", "compute_budget").get("sarcos", [])
    final = {
        value: s.final.mean
        for value, s in claims.ordered(panel, "compute_budget")
        if s.final is not None and not s.diverged
    }
    if not {16.0, 64.0, 256.0} <= set(final):
        return None
    held = (final[64] <= 0.5 * final[16], final[256] >= 0.8 * final[64])
    return Finding(together(held), claims.chain(panel, "compute_budget"))


def memory(series: Sequence[Series]) -> Finding | None:
    """A quarter of the memory within a tenth of the loss, or two points, of all of it."""
    panels = _panels(series, "M", "memory_budget")
    held = []
    for panel in panels.values():
        at = {value: s for value, s in claims.ordered(panel, "memory_budget")}
        made = words.compare(at[0.25], at[1.0]) if {0.25, 1.0} <= set(at) else None
        if made is not None:
            held.append(gap(made) >= (-0.02 if made.one.accuracy else log(1 / 1.1)))
    return Finding(together(held), _chains(panels, "memory_budget")) if held else None


def stress(series: Sequence[Series]) -> Finding | None:
    """Seen at 68.64 or less; in part if below BCCD with 64 coordinates a step."""
    own = [s for s in series if (s.plan, s.run["group"]) == ("figure-ablation", claims.STRESS)]
    ours = [s for s in own if s.method == "cocd" and s.final is not None and not s.diverged]
    bccd = [s for s in own if s.method == "bccd" and s.final is not None and not s.diverged]
    if not ours or not bccd:
        return None
    best = min(ours, key=lambda s: s.final.mean)  # type: ignore[union-attr]
    assert best.final is not None and bccd[0].final is not None
    low, other = best.final.mean, bccd[0].final.mean
    verdict = SEEN if low <= paper.STRESS_LOSS and low < other else PART if low < other else NOT
    rate = text.setting("lr", best.settings["lr"])
    return Finding(verdict, f"{text.number(low)} ({rate}); BCCD with B = 64 {text.number(other)}")
