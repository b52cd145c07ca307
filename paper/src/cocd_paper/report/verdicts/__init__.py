"""What the paper claims, one thing after the other, and whether the rows show it.

Each claim looks at the rows for itself. Its verdict follows the rule that stands beside it, and is
printed with it; none of them knows a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..series import Series
from ..tables import Table
from . import main, others, settings
from .finding import OPEN, Finding

NAME, TITLE = "claims", "Claims"
ABOUT = "What the paper says, one by one, beside what the rows say; the figures are further down."
NOTE = (
    "seen: as the rule below has it; in part: some of it, or on some tasks; not seen: the rows say "
    "otherwise; open: not run, or what was run cannot tell. On tanh networks; one seed where no "
    "range is given. A run that diverged, in one seed or all, counts as worse than any other."
)


class Claim(NamedTuple):
    """Where the paper says what, when that counts as seen, and who looks for it in the rows."""

    where: str
    says: str
    rule: str
    look: Callable[[Sequence[Series]], Finding | None]


def verdicts(series: Sequence[Series]) -> list[Table]:
    """The claims, and the rules; nothing where no row speaks of any."""
    real = [s for s in series if not s.run["smoke"] and s.run["split"] in ("", "test")]
    real = [s for s in real if s.as_planned]
    looked = [(c, c.look(real)) for c in CLAIMS]
    if not any(found for _, found in looked):
        return []
    missing = Finding(OPEN, "nothing was run that tells")
    rows = tuple((c.where, c.says, *(found or missing)) for c, found in looked)
    rules = tuple((c.says, c.rule) for c, _ in looked)
    return [
        Table("The paper's claims", ("paper", "claim", "verdict", "here"), rows, 4, note=NOTE),
        Table("What counts as seen", ("claim", "rule"), rules, 2),
    ]


CLAIMS = (
    Claim(
        "table 2",
        "CoCD is better than BCCD at the same rate on every task",
        "Better on each, at the last epoch that both have.",
        main.ordering,
    ),
    Claim(
        "table 2",
        "CoCD reaches 31.18, 95.48 % and 45.08 %",
        "After 50 epochs there or better, within a tenth of the loss or two points, or so near "
        "that seeds or the choice of test rows may make the difference.",
        main.reaches,
    ),
    Claim(
        "table 2",
        "BCCD ends at 188.73, 27.03 % and 10.13 %",
        "After 50 epochs within a tenth of the loss, or two points.",
        main.bccd,
    ),
    Claim(
        "table 2",
        "SGD ends at 5.38, 99.21 % and 62.51 %",
        "As for BCCD.",
        main.sgd,
    ),
    Claim(
        "section 6.1",
        "BCCD does not get beyond guessing on CIFAR-10",
        "It ends within two points of a tenth.",
        main.guessing,
    ),
    Claim(
        "conclusion",
        "reusing stale slopes is far better than discarding them, each tuned",
        "Of the ratio of losses or errors at the paper's rate half or more is left, as a "
        "logarithm, where both have settings of their own; in part where CoCD is better.",
        main.reuse,
    ),
    Claim(
        "abstract",
        "a deterministic order is better than random directions and coordinates",
        "CoCD, in the best of its forms here, is better than each of them, tuned, on every task.",
        main.better_than_random,
    ),
    Claim(
        "section 6.1",
        "reuse costs no time",
        "At most a tenth more seconds than BCCD; open where pairs disagree, as clocks of a shared "
        "machine do.",
        main.no_extra_time,
    ),
    Claim(
        "figure 2",
        "ε = 1 is CoCD's best radius and BCCD's worst",
        "Within 2 % of the best loss; more than 2 % above all others.",
        settings.anomaly,
    ),
    Claim(
        "section 6.1",
        "ε = 1e-6 is BCCD's best radius",
        "Within 2 % of the best loss.",
        settings.smallest_radius,
    ),
    Claim(
        "section 6.2",
        "on SARCOS each larger ε is better",
        "Each is; open if seeds alone make more than all radii do.",
        settings.radius,
    ),
    Claim(
        "section 6.2",
        "on MNIST smaller ε ends higher",
        "Each does; open if none gets beyond 50 %.",
        settings.radius_of_classification,
    ),
    Claim(
        "section 6.2",
        "γ = 0 is the slowest, more is faster",
        "Each larger γ ends better on both tasks; in part if γ = 0 ends worst, or on one task.",
        settings.decay,
    ),
    Claim(
        "section 6.2",
        "B = 64 is needed to leave the plateau, and then returns diminish (SARCOS)",
        "After a tenth of the epochs half of the first loss is gone at 64 and not at 16; each "
        "fourfold budget gains a smaller factor than the one before.",
        settings.compute,
    ),
    Claim(
        "section 6.2",
        "a buffer of a quarter (M = 0.25) is still competitive",
        "Within a tenth of the loss, or two points, of the best M.",
        settings.memory,
    ),
    Claim(
        "section 6.2",
        "B = 1, γ = 0.95, ε = 1 ends at 68.64, below BCCD with B = 64",
        "At that or less, at the best of the rates; in part if below BCCD.",
        settings.stress,
    ),
    Claim(
        "section 6.3",
        "SPSA and ZO-SGD diverge on SARCOS",
        "Both do, at CoCD's rate; in part if one does, or ends a quarter above its lowest.",
        others.diverge,
    ),
    Claim(
        "section 6.3",
        "and match CoCD on classification",
        "Each at its best is within two points after 50 epochs.",
        others.match,
    ),
    Claim(
        "section 6.3",
        "CoCD is almost twice as fast as ZO-SGD",
        "1.9 times or more, an evaluation a probe on both sides; BCCD's step makes the same "
        "evaluations as CoCD's.",
        others.twice_as_fast,
    ),
    Claim(
        "appendix",
        "on ResNet-20 every γ above 0 is better than 0",
        "Each is, and none diverges; open if all guess.",
        others.resnet,
    ),
    Claim(
        "appendix",
        "the estimate's error falls with B",
        "It does with every larger B.",
        others.falls,
    ),
    Claim(
        "appendix",
        "and lies on a straight line over log B",
        "That explains 95 % of the variance or more, where the error falls.",
        others.straight,
    ),
    Claim(
        "theorem",
        "the error stays below the bound",
        "The largest error of each run is, on one batch, with L_ε as the run showed it.",
        others.bound,
    ),
    Claim(
        "introduction",
        "it needs less RAM than backpropagation",
        "The peak of a step is below that of SGD on every network, whichever way probes are made; "
        "in part if so with one evaluation a probe.",
        others.light,
    ),
)
