"""Find which rows of each activation reach the loss, by walking backwards over one run.

If the loss reads only the last token, only that token matters in all layers behind the last
attention, and in that attention's queries. Rules (`rules.rows`) state which input rows a call needs
for given output rows; a call without such a rule needs all rows.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..change import Change
from ..registry import Call, Changed, Key, rules
from ..rows import Rows
from .graph import Node, Ref, Run, references, tensors_of


class Liveness:
    """The rows of every node's output that reach the loss, and the calls restricted to them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rows: dict[int, Rows | None] = {}  # by node; None: all; absent: none
        self._edges: dict[tuple[int, Key], Rows] = {}  # arguments that need fewer
        self._calls: dict[int, Call] = {}
        self._narrow: set[int] = set()  # nodes computed on some of their rows
        for position in references(run.graph.output):
            self._rows[position] = None
        for node in reversed(run.graph.nodes):
            if node.op.startswith("call") and not is_made_of_tensors(run.values[node.position]):
                self._rows[node.position] = None  # Python has read it and may have branched on it
            if node.position in self._rows:
                self._back(node)
        self.everything = not self._narrow

    def _back(self, node: Node) -> None:
        """Derive the rows of a node's inputs from the rows of its output."""
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
        """Does any of this node's output reach the loss?"""
        return position in self._rows

    def is_whole(self, position: int) -> bool:
        """Is this node computed on all its rows?"""
        return position not in self._narrow

    def call(self, node: Node) -> Call:
        """The call, restricted to the rows that reach the loss."""
        found = self._calls.get(node.position)
        if found is None:
            found = self._calls[node.position] = self._run.call(node)
        return found

    def narrow(self, node: Node, key: Key, position: int, change: Changed) -> Changed:
        """The part of a change at `position` that this argument of this call needs."""
        rows = self._edges.get((node.position, key))
        if rows is None or self._rows.get(position) is not None or not isinstance(change, Change):
            return change
        return rows.narrow(change)

    def rows_of(self, node: Node, key: Key, position: int, value: object) -> object:
        """The part of the value at `position` that this argument of this call needs."""
        rows = self._edges.get((node.position, key))
        if rows is None or self._rows.get(position) is not None or not isinstance(value, Tensor):
            return value
        return rows.of(value)


def liveness(run: Run) -> Liveness:
    """The liveness of this run, computed once."""
    return run.memo("liveness", lambda: Liveness(run))


def is_made_of_tensors(value: object) -> bool:
    """Does this value contain tensors? If not, Python has read it."""
    return isinstance(value, Tensor) or bool(tensors_of((value,)))


def _hashable(target: object) -> bool:
    try:
        hash(target)
    except TypeError:
        return False
    return True


def arguments(node: Node) -> list[tuple[Key, Ref]]:
    """The arguments that come from other nodes, with their keys, except those nested deeper."""
    found: list[tuple[Key, Ref]] = []
    given: list[tuple[Key, Any]] = [*enumerate(node.args), *node.kwargs.items()]
    for key, value in given:
        if isinstance(value, Ref):
            found.append((key, value))
        elif isinstance(value, (list, tuple)):
            found += [((key, j), item) for j, item in enumerate(value) if isinstance(item, Ref)]
    return found
