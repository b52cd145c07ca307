"""Rules for the incremental engine: how layers pass on what a probe changes.

Register a rule for a layer of your own with `source` (its parameters) and `flow` (its inputs); a
rule is checked against the closure the first time it is used. See CONTRIBUTING for an example.
"""

from ._engines.change import Change, dense, slab
from ._engines.registry import Call, Moves, rules, stacked

source = rules.source
flow = rules.flow

__all__ = ["Call", "Change", "Moves", "dense", "flow", "slab", "source", "stacked"]
