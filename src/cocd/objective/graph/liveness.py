"""Which rows of each activation reach the loss: walked backwards over one run.

Where the loss reads the last token alone, so do all layers behind the last attention, and that
attention's queries. Rules (`rules.rows`) say which rows of its inputs a call takes for some rows of
its output; a call without one takes all.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..change import Change
from ..registry import Call, Changed, Key, rules
from ..rows import Rows
from .graph import Node, Ref, Run, references, tensors_of


class Liveness:
    """The rows that matter of every node's output, and the calls on these alone."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rows: dict[int, Rows | None] = {}  # of a node; None for all; absent if none
        self._edges: dict[tuple[int, Key], Rows] = {}  # of an argument where fewer than of its node
        self._calls: dict[int, Call] = {}
        self._narrow: set[int] = set()  # nodes that are not computed as they were called
        for position in references(run.graph.output):
            self._rows[position] = None
        for node in reversed(run.graph.nodes):
            if node.op.startswith("call") and not is_made_of_tensors(run.values[node.position]):
                self._rows[node.position] = None  # what Python reads may decide what comes next
            if node.position in self._rows:
                self._back(node)
        self.everything = not self._narrow

    def _back(self, node: Node) -> None:
        """From what is read of a node's output to what it reads."""
        rows, needed = self._rows[node.position], None
        single = isinstance(self._run.values[node.position], Tensor)
        if node.op.startswith("call") and single and node.position not in self._run.random:
            rule = rules.needs.get(node.target) if _hashable(node.target) else None
            needed = rule(self._run.call(node), rows) if rule is not None else None
        if needed is None:
            self._rows[node.position] = None
        else:
            self._calls[node.position] = needed[0]
            self._narrow.add(node.position)
        by_argument = {} if needed is None else needed[1]
        seen: list[int] = []
        for key, ref in arguments(node):
            part = by_argument.get(key)
            self._merge(ref.position, part)
            seen.append(ref.position)
            if part is not None:
                self._edges[node.position, key] = part
        for position in set(node.uses) - set(seen):  # nested deeper
            self._rows[position] = None

    def _merge(self, position: int, rows: Rows | None) -> None:
        if position not in self._rows:
            self._rows[position] = rows
        else:
            old = self._rows[position]
            if old is None or rows is None or not old.same(rows):
                self._rows[position] = None

    def reaches(self, position: int) -> bool:
        """Does anything of this node reach the loss?"""
        return position in self._rows

    def is_whole(self, position: int) -> bool:
        """Is this node computed as it was called?"""
        return position not in self._narrow

    def call(self, node: Node) -> Call:
        """The call on the rows that matter."""
        found = self._calls.get(node.position)
        if found is None:
            found = self._calls[node.position] = self._run.call(node)
        return found

    def narrow(self, node: Node, key: Key, position: int, change: Changed) -> Changed:
        """What this argument of this call has to see of a change at `position`."""
        rows = self._edges.get((node.position, key))
        if rows is None or self._rows.get(position) is not None or not isinstance(change, Change):
            return change
        return rows.narrow(change)

    def rows_of(self, node: Node, key: Key, position: int, value: object) -> object:
        """What this argument of this call has to see of a value at `position`."""
        rows = self._edges.get((node.position, key))
        if rows is None or self._rows.get(position) is not None or not isinstance(value, Tensor):
            return value
        return rows.of(value)


def liveness(run: Run) -> Liveness:
    """Of this run, walked once."""
    return run.memo("liveness", lambda: Liveness(run))


def is_made_of_tensors(value: object) -> bool:
    """Or has Python read something?"""
    return isinstance(value, Tensor) or bool(tensors_of((value,)))


def _hashable(target: object) -> bool:
    try:
        hash(target)
    except TypeError:
        return False
    return True


def arguments(node: Node) -> list[tuple[Key, Ref]]:
    """Where the arguments stand that other nodes gave, but for those nested deeper."""
    found: list[tuple[Key, Ref]] = []
    given: list[tuple[Key, Any]] = [*enumerate(node.args), *node.kwargs.items()]
    for key, value in given:
        if isinstance(value, Ref):
            found.append((key, value))
        elif isinstance(value, (list, tuple)):
            found += [((key, j), item) for j, item in enumerate(value) if isinstance(item, Ref)]
    return found
