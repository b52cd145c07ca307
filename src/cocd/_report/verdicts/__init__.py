"""What the paper claims, one thing after the other, and whether the rows show it.

A claim looks at the rows for itself and says nothing where there are none. Each verdict follows a
rule that stands beside the claim; none of them knows a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..series import Series
from ..tables import Table
from . import main, others, settings
from .finding import Finding

NAME, TITLE = "claims", "Claims"
ABOUT = "What the paper says, one by one, beside what the rows say; the figures are further down."
NOTE = (
    "seen: as the paper says it; in part: some of it, or on some tasks; not seen: the rows say "
    "otherwise; open: what was run cannot tell. One seed where no range is given."
)


class Claim(NamedTuple):
    """Where the paper says what, and who looks for it in the rows."""

    where: str
    says: str
    look: Callable[[Sequence[Series]], Finding | None]


def verdicts(series: Sequence[Series]) -> Table:
    """A row for each claim about which there are rows."""
    real = [s for s in series if not s.run["smoke"] and s.run["split"] in ("", "test")]
    real = [s for s in real if s.as_planned]
    rows = [(c, found) for c in CLAIMS if (found := c.look(real)) is not None]
    return Table(
        "The paper's claims",
        ("paper", "claim", "verdict", "here"),
        tuple((c.where, c.says, found.verdict, found.here) for c, found in rows),
        words=4,
        note=NOTE,
    )


CLAIMS = (
    Claim("table 2", "CoCD is better than BCCD at the same rate on every task", main.ordering),
    Claim("table 2", "CoCD ends at 31.18, 95.48 % and 45.08 %", main.numbers),
    Claim("section 6.1", "BCCD does not get beyond guessing on CIFAR-10", main.guessing),
    Claim("conclusion", "keeping old slopes is why: far better than none", main.memory_is_why),
    Claim("section 6.1", "memory costs no time", main.no_extra_time),
    Claim("smoothing", "a larger ε makes CoCD better and BCCD worse", settings.smoothing),
    Claim("section 6.2", "on SARCOS each larger ε is better", settings.radius),
    Claim("section 6.2", "γ = 0 is the slowest, more is faster", settings.decay),
    Claim("section 6.2", "B = 64 leaves the plateau, more gains little (SARCOS)", settings.compute),
    Claim("section 6.2", "a quarter of the memory is still competitive", settings.memory),
    Claim("section 6.2", "B = 1, γ = 0.95 ends at 68.64, below BCCD with B = 64", settings.stress),
    Claim("section 6.3", "random directions diverge on SARCOS", others.diverge),
    Claim("section 6.3", "and match CoCD where the task is classification", others.match),
    Claim("section 6.3", "CoCD is almost twice as fast as ZO-SGD", others.twice_as_fast),
    Claim("appendix", "on ResNet-20 γ above 0 is better than γ = 0", others.resnet),
    Claim("appendix", "the estimate's error falls with B, below the bound", others.bound),
    Claim("introduction", "it needs less memory than backpropagation", others.light),
)
