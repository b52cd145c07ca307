"""Propagate only the changes of a block of probes, from the layer to the loss."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from operator import getitem, matmul
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten

from .. import rules as _rules  # noqa: F401  (registers them)
from ..change import Change
from ..kernels import fusion
from ..kernels.scratch import Scratch
from ..losses import LossChange
from ..protocol import LossFunction
from ..registry import Call, Changed, Key, Moves, rules
from ..stacking import changes_of, is_change, moved, moved_part, over_probes, replaced, stacks_of
from .graph import Graph, Node, Ref, Run, has_rule, map_refs, references
from .liveness import Liveness, liveness

ChangedT = TypeVar("ChangedT", bound=Changed)
Parts = dict[int, dict[int, Tensor]]  # node position -> index of result -> value


class Plan:
    """Where the elements of one parameter enter the graph, and which nodes follow."""

    def __init__(self, model: nn.Module, graph: Graph, name: str) -> None:
        self.name = name
        # The nodes that read the parameter, each with its local name; "" for a bare tensor.
        self.entries = {
            i: _local_name(model, graph.nodes[i], name) for i in sorted(set(graph.sources[name]))
        }
        self.entry, self.local = next(iter(self.entries.items()))
        reached = set(self.entries)
        self.nodes: list[int] = []
        for node in graph.nodes[self.entry :]:
            if node.position in self.entries or any(ref in reached for ref in node.uses):
                reached.add(node.position)
                if node.op != "output":
                    self.nodes.append(node.position)
        self.last_use = {
            i: max((u for u in graph.users[i] if u in reached), default=i) for i in reached
        }
        self.chains = graph.remember("chains", lambda: fusion.chains(graph))
        self.rule = "vmap"
        self.dense_from: str | None = None
        self.work = 0  # numbers computed for one probe, in the last propagation
        self.peak = 0  # bytes of the largest activation stored for one probe

    def resume(self, before: Plan) -> None:
        """Take over the state of an earlier plan for the same calls."""
        self.rule, self.dense_from = before.rule, before.dense_from
        self.work, self.peak = before.work, before.peak


def _local_name(model: nn.Module, node: Node, name: str) -> str:
    if node.module is None:
        return ""
    parameter = model.get_parameter(name)
    return next(local for local, p in node.module.named_parameters() if p is parameter)


def _links(graph: Graph, first: int, last: int) -> Iterator[int]:
    """The nodes from behind `first` up to `last` where each is the only reader of the one before.

    Nodes in between that belong to another branch are left out: they are propagated separately.
    """
    while first != last:
        (first,) = graph.users[first]
        yield first


def _is_whole(graph: Graph, live: Liveness, chain: fusion.Chain) -> bool:
    """Are all activations of a chain computed on all their rows?"""
    ends = [chain.last, chain.tail, chain.place and chain.place.tail]
    last = max(end for end in ends if end is not None)
    return all(live.is_whole(p) for p in (chain.head, *_links(graph, chain.head, last)))


def _first(node: Node) -> int:
    return node.args[0].position if node.args and isinstance(node.args[0], Ref) else -1


def propagate(
    run: Run,
    plan: Plan,
    parameter: Tensor,
    moves: Moves,
    scratch: Scratch,
    elsewhere: Collection[int] = (),
) -> dict[int, Changed]:
    """Return the changes by node, dropping those that no later node reads.

    Nothing enters at the nodes in `elsewhere`, which do not depend on these elements.
    """
    graph, live = run.graph, liveness(run)
    changes: dict[int, Changed] = {}
    plan.work, plan.peak, plan.dense_from = 0, 0, None
    skipped: set[int] = set()  # nodes that a fused chain has covered
    for position in plan.nodes:
        node = graph.nodes[position]
        enters = position in plan.entries and position not in elsewhere
        touched = any(used in changes for used in node.uses)
        if position in skipped or not (enters or touched) or not live.reaches(position):
            continue
        chain = plan.chains.get(position)
        if chain and not live.everything and not _is_whole(graph, live, chain):
            chain = None
        change: Changed
        fused = None
        if chain and enters and not touched:
            fused = fusion.enter(run, chain, plan.entries[position], moves, scratch)
            if fused:
                plan.rule = f"{node.target.__name__}.{plan.local} ({fusion.kind()})"
        elif chain and touched and not enters:
            fused = fusion.flow(run, chain, changes.get(_first(node)), scratch)
        if fused:
            last, change = fused
            skipped.update(_links(graph, position, last))
            changes[last] = _note(plan, graph.nodes[last], change)
        else:
            if enters and touched:
                change = _enter_again(run, live, node, plan, parameter, moves, changes)
            elif enters:
                change = _enter(run, live, node, plan, parameter, moves)
            else:
                change = _follow(run, live, node, changes)
            _note(plan, node, change)
            if is_change(change) or any(map(is_change, tree_flatten(change, is_leaf=is_change)[0])):
                changes[position] = change
        for used in node.uses:
            if used in changes and plan.last_use.get(used) == position:
                del changes[used]
    return changes


def _note(plan: Plan, node: Node, change: ChangedT) -> ChangedT:
    alone = isinstance(change, Change)  # the usual case
    for part in (change,) if alone else tree_flatten(change, is_leaf=is_change)[0]:
        if isinstance(part, Change):
            plan.work += part.numbers
            held = max(part.numbers, part.on_the_way)
            plan.peak = max(plan.peak, held * part.base.element_size())
            if part.is_dense and plan.dense_from is None:
                plan.dense_from = node.name
    return change


# --- where a parameter enters ------------------------------------------------------------


def _enter(
    run: Run, live: Liveness, node: Node, plan: Plan, parameter: Tensor, moves: Moves
) -> Changed:
    """The first change an element makes; the inputs of that node are unchanged."""
    local = plan.entries[node.position]
    first = node.position == plan.entry
    if not node.op.startswith("call"):  # a bare tensor
        plan.rule = "tensor" if first else plan.rule
        return moved_part(parameter.detach(), moves, _slab_of(run.graph, node))
    call = live.call(node)
    assert call.module is not None
    source = rules.sources.get((type(call.module), local))
    if source is not None:
        change = source(call, moves)
        if change is not None:
            plan.rule = f"{type(call.module).__name__}.{local}" if first else plan.rule
            return change
    plan.rule = f"vmap of {type(call.module).__name__}"
    return _generic(run, node, call, {}, {local: moved(parameter, moves)})


_PRODUCTS = {torch.matmul: 1, torch.mm: 1, matmul: 1, "matmul": 1, "mm": 1, torch.addmm: 2}


def _slab_of(graph: Graph, node: Node) -> int:
    """The dimension of a bare matrix that becomes units: the columns of a right factor."""
    readers = [graph.nodes[user] for user in graph.users[node.position]]
    return int(
        bool(readers)
        and all(
            has_rule(reader.target)
            and reader.target in _PRODUCTS
            and reader.args[_PRODUCTS[reader.target] :][:1] == (Ref(node.position),)
            for reader in readers
        )
    )


def _enter_again(
    run: Run,
    live: Liveness,
    node: Node,
    plan: Plan,
    parameter: Tensor,
    moves: Moves,
    changes: dict[int, Changed],
) -> Changed:
    """A parameter is used again, and its first use has also changed this node's inputs."""
    call, local = live.call(node), plan.entries[node.position]
    changed = _changed(live, node, changes)
    if node.target in rules.joint and changed is not None:
        both = {**changed, local: moved_part(parameter.detach(), moves)}
        result = rules.flows[node.target](call, both)
        if result is not None:
            return result
    own = {local: moved(parameter, moves)}
    return _generic(run, node, call, _narrowed(live, node, changes), own)


# --- what follows ------------------------------------------------------------------------


def _follow(run: Run, live: Liveness, node: Node, changes: dict[int, Changed]) -> Changed:
    call = live.call(node)
    if call.target is getitem and isinstance(node.args[0], Ref):
        several = changes.get(node.args[0].position)
        if several is not None and not isinstance(several, Change):
            return several[call.args[1]]  # one of several outputs
    changed = _changed(live, node, changes)
    if changed is not None and has_rule(node.target):
        result = rules.flows[node.target](call, changed)
        if result is not None:
            return result
    return _generic(run, node, call, _narrowed(live, node, changes))


def _changed(live: Liveness, node: Node, changes: dict[int, Changed]) -> dict[Key, Change] | None:
    """The changed arguments by key; None if some are nested deeper."""
    where = changed_arguments(node, changes)
    hidden = {used for used in node.uses if used in changes} - set(where.values())
    found: dict[Key, Change] = {}
    for key, at in where.items():
        change = live.narrow(node, key, at, changes[at])
        if not isinstance(change, Change):
            return None
        found[key] = change
    return None if hidden else found


def _narrowed(live: Liveness, node: Node, changes: dict[int, Changed]) -> dict[int, Changed]:
    """The changes that a call needs, by node."""
    found = {used: changes[used] for used in node.uses if used in changes}
    for key, at in changed_arguments(node, changes).items():
        found[at] = live.narrow(node, key, at, changes[at])
    return found


def changed_arguments(node: Node, changes: Container[int]) -> dict[Key, int]:
    """The key of each changed argument and the node it comes from, except those nested deeper."""
    found: dict[Key, int] = {}
    given: list[tuple[Key, Any]] = [*enumerate(node.args), *node.kwargs.items()]
    for key, value in given:
        if isinstance(value, Ref) and value.position in changes:
            found[key] = value.position
        elif isinstance(value, (list, tuple)):
            for j, item in enumerate(value):
                if isinstance(item, Ref) and item.position in changes:
                    found[key, j] = item.position
    return found


def _generic(
    run: Run,
    node: Node,
    call: Call,
    changes: dict[int, Changed],
    parameters: dict[str, Tensor] | None = None,
) -> Changed:
    """Without a rule, run the operation itself over the stacked probes."""
    stacks = ({ref: stacks_of(change) for ref, change in changes.items()}, parameters or {})

    def apply(probe: tuple[Parts, dict[str, Tensor]]) -> object:
        values, own = probe
        args = _given(node.args, call.args, values)
        kwargs = _given(node.kwargs, call.kwargs, values)
        if call.module is not None:
            if getattr(call.module, "inplace", False):
                args = (args[0].clone(), *args[1:])
            if own:
                return functional_call(call.module, own, args, kwargs)
            return call.module(*args, **kwargs)
        if isinstance(call.target, str):
            return getattr(args[0], call.target)(*args[1:], **kwargs)
        return call.target(*args, **kwargs)

    random = run.random.get(node.position)
    return changes_of(call.out, over_probes(apply, stacks, call.out, random))


def _given(structure: object, called: Any, values: Parts) -> Any:
    """The arguments of a call under one probe."""
    if isinstance(structure, Ref):
        return replaced(called, values.get(structure.position, {}))
    if isinstance(structure, (list, tuple)) and references(structure):
        parts = [_given(s, c, values) for s, c in zip(structure, called, strict=True)]
        return type(called)(*parts) if hasattr(called, "_fields") else type(called)(parts)
    if isinstance(structure, dict):
        return {key: _given(structure.get(key), c, values) for key, c in called.items()}
    if isinstance(structure, slice):
        ends = ("start", "stop", "step")
        return slice(*(_given(getattr(structure, e), getattr(called, e), values) for e in ends))
    return called


def _perturbed(run: Run, ref: Ref, values: Parts) -> object:
    """A node's result under one probe."""
    return replaced(run.values[ref.position], values.get(ref.position, {}))


def irrelevant(run: Run, plan: Plan, index: list[int]) -> list[tuple[int, ...]]:
    """For each element, the entry nodes where this batch does not depend on it."""
    found: list[tuple[int, ...]] = [()] * len(index)
    for position, local in plan.entries.items():
        node = run.graph.nodes[position]
        rule = rules.relevances.get((node.target, local)) if node.op == "call_module" else None
        if rule is not None:
            mask = rule(run.call(node), index)
            found = [f if m else (*f, position) for f, m in zip(found, mask, strict=True)]
    return found


# --- the loss ----------------------------------------------------------------------------


def loss_changes(
    run: Run,
    plan: Plan,
    parameter: Tensor,
    moves: Moves,
    loss_change: LossChange | None,
    loss_fn: LossFunction,
    target: object,
    scratch: Scratch,
    elsewhere: Collection[int] = (),
) -> Tensor:
    """f(x + step e_i) - f(x) for every move, float64 on the CPU."""
    with scratch.lent():
        changes = propagate(run, plan, parameter, moves, scratch, elsewhere)
    output = run.graph.output
    if isinstance(output, Ref) and loss_change is not None:
        change = changes.get(output.position)
        if change is None:  # the output does not depend on this parameter
            return torch.zeros(moves.K, dtype=torch.float64)
        difference = loss_change(change, target) if isinstance(change, Change) else None
        if difference is not None:
            return difference.cpu()
    found = {
        ref: stacks_of(changes[ref]) for ref in sorted(set(references(output))) if ref in changes
    }
    if not found:
        return torch.zeros(moves.K, dtype=torch.float64)

    def loss(values: Parts) -> Tensor:
        value = loss_fn(map_refs(output, lambda ref: _perturbed(run, ref, values)), target)
        return value.reshape(()) if isinstance(value, Tensor) else torch.tensor(value).double()

    base = loss({})
    return (over_probes(loss, found, base).double() - base.double()).cpu()
