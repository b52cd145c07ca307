"""Numbers that Python reads: branches, indices and scales are those of the unperturbed pass."""

from __future__ import annotations

from ..registry import UNCHANGED, Call, Changed, Changes, rules


@rules.flow("__bool__", "__float__", "__index__", "__int__", "item", "tolist")
def read(call: Call, changes: Changes) -> Changed:
    """Accept the number if no probe changes it; other engines must handle probes that do."""
    if set(changes) != {0}:
        return None
    new, old = changes[0].densify().new(), changes[0].base
    if call.target == "__bool__":
        new, old = new.bool(), old.bool()
    if bool((new == old).all()):
        return UNCHANGED
    raise NotImplementedError("a probe changes a number that Python reads")
