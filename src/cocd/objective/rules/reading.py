"""Numbers that Python reads: a branch, an index, a scale are those of the unperturbed pass."""

from __future__ import annotations

from ..registry import UNCHANGED, Call, Changed, Changes, rules


@rules.flow("__bool__", "__float__", "__index__", "__int__", "item", "tolist")
def read(call: Call, changes: Changes) -> Changed:
    """Right as long as no probe changes what is read; other engines must take those that do."""
    if set(changes) != {0}:
        return None
    new, old = changes[0].densify().new(), changes[0].base
    if call.target == "__bool__":
        new, old = new.bool(), old.bool()
    if bool((new == old).all()):
        return UNCHANGED
    raise NotImplementedError("a probe changes a number that Python reads")
