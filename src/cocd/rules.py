"""Rules for the incremental engine: how layers pass on what a probe changes.

Register a rule for a layer of your own with `source` (its parameters) and `flow` (its inputs); a
rule is checked against the closure the first time it is used. See CONTRIBUTING for an example.
`relevant` names the elements that matter to a batch, where others need no evaluation at all.
"""

from .objective.change import Change, dense, slab
from .objective.registry import UNCHANGED, Call, Moves, rules, stacked
from .units.rules import unit

source = rules.source
flow = rules.flow
relevant = rules.relevant

__all__ = [
    "UNCHANGED",
    "Call",
    "Change",
    "Moves",
    "dense",
    "flow",
    "relevant",
    "slab",
    "source",
    "stacked",
    "unit",
]
