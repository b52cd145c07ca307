"""Propagate what a block of probes changes, and nothing else, from the layer to the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import getitem
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten

from .. import rules as _rules  # noqa: F401  (registers them)
from ..change import Change
from ..kernels import fusion
from ..kernels.scratch import Scratch
from ..losses import LossChange
from ..registry import Call, Moves, rules
from ..stacking import changes_of, is_change, moved, over_probes, replaced, stacks_of
from .graph import Graph, Node, Ref, Run, has_rule, map_refs, references


class Plan:
    """What happens to the elements of one parameter: where they enter, what follows."""

    def __init__(self, model: nn.Module, graph: Graph, name: str) -> None:
        self.name = name
        self.entry = graph.sources[name][0]
        reached = {self.entry}
        self.nodes: list[int] = []
        for node in graph.nodes[self.entry + 1 :]:
            if any(ref in reached for ref in node.uses):
                reached.add(node.position)
                if node.op != "output":
                    self.nodes.append(node.position)
        self.last_use = {
            i: max((u for u in graph.users[i] if u in reached), default=i) for i in reached
        }
        self.local = _local_name(model, graph.nodes[self.entry], name)
        self.chains = fusion.chains(graph)
        self.rule = "vmap"
        self.dense_from: str | None = None
        self.work = 0  # numbers computed for one probe, in the last propagation
        self.peak = 0  # bytes of the largest activation stored for one probe


def _local_name(model: nn.Module, node: Node, name: str) -> str:
    if node.module is None:
        return ""
    parameter = model.get_parameter(name)
    return next(local for local, p in node.module.named_parameters() if p is parameter)


def _links(graph: Graph, first: int, last: int) -> Iterator[int]:
    """The nodes behind `first` up to `last` that follow each other, each the only reader.

    Not all that lie between them: what belongs to another branch must be followed on its own.
    """
    while first != last:
        (first,) = graph.users[first]
        yield first


def _first(node: Node) -> int:
    return node.args[0].position if node.args and isinstance(node.args[0], Ref) else -1


def propagate(
    run: Run, plan: Plan, parameter: Tensor, moves: Moves, scratch: Scratch
) -> dict[int, Any]:
    """What changes, by node; of nodes that nobody reads any more nothing is kept."""
    graph = run.graph
    changes: dict[int, Any] = {}
    plan.work, plan.peak, plan.dense_from = 0, 0, None
    done = plan.entry  # a fused chain answers for several nodes at once
    entry = graph.nodes[plan.entry]
    chain = plan.chains.get(plan.entry)
    entered = chain and fusion.enter(run, chain, plan.local, moves, scratch)
    if entered:
        done, change = entered
        changes[done] = _note(plan, graph.nodes[done], change)
        plan.rule = f"{entry.target.__name__}.{plan.local} ({fusion.kind()})"
    else:
        changes[done] = _note(plan, entry, _enter(run, entry, plan, parameter, moves))
    skipped = set(_links(graph, plan.entry, done))
    for position in plan.nodes:
        node = graph.nodes[position]
        if position in skipped or not any(used in changes for used in node.uses):
            continue
        chain = plan.chains.get(position)
        fused = chain and fusion.flow(run, chain, changes.get(_first(node)), scratch)
        if fused:
            last, change = fused
            skipped.update(_links(graph, position, last))
            changes[last] = _note(plan, graph.nodes[last], change)
        else:
            change = _note(plan, node, _follow(run, node, changes))
            if is_change(change) or any(map(is_change, tree_flatten(change, is_leaf=is_change)[0])):
                changes[position] = change
        for used in node.uses:
            if used in changes and plan.last_use.get(used) == position:
                del changes[used]
    return changes


def _note(plan: Plan, node: Node, change: Any) -> Any:
    alone = isinstance(change, Change)  # as nearly always
    for part in (change,) if alone else tree_flatten(change, is_leaf=is_change)[0]:
        if isinstance(part, Change):
            plan.work += part.numbers
            held = max(part.numbers, part.on_the_way)
            plan.peak = max(plan.peak, held * part.base.element_size())
            if part.is_dense and plan.dense_from is None:
                plan.dense_from = node.name
    return change


# --- where a parameter enters ------------------------------------------------------------


def _enter(run: Run, node: Node, plan: Plan, parameter: Tensor, moves: Moves) -> Any:
    if node.op == "get_attr":
        plan.rule = "tensor"
        return Change(parameter.detach(), moves.K, values=moved(parameter, moves))
    call = run.call(node)
    assert call.module is not None
    local = plan.local
    source = rules.sources.get((type(call.module), local))
    if source is not None:
        plan.rule = f"{type(call.module).__name__}.{local}"
        change = source(call, moves)
        if change is not None:
            return change
    plan.rule = f"vmap of {type(call.module).__name__}"
    module = call.module

    def apply(value: Tensor) -> Any:
        return functional_call(module, {local: value}, call.args, call.kwargs)

    stack, random = moved(parameter, moves), run.random.get(node.position)
    return changes_of(call.out, over_probes(apply, stack, call.out, random))


# --- what follows ------------------------------------------------------------------------


def _follow(run: Run, node: Node, changes: dict[int, Any]) -> Any:
    call = run.call(node)
    where = _changed_arguments(node, changes)
    changed = {key: changes[position] for key, position in where.items()}
    if call.target is getitem and not isinstance(changed.get(0), Change) and 0 in changed:
        return changed[0][call.args[1]]  # one of several outputs
    hidden = {used for used in node.uses if used in changes} - set(where.values())
    if not hidden and all(map(is_change, changed.values())) and has_rule(node.target):
        result = rules.flows[node.target](call, changed)
        if result is not None:
            return result
    return _generic(run, node, call, changes)


def _changed_arguments(node: Node, changes: dict[int, Any]) -> dict[Any, int]:
    """Where the changed arguments stand, and where each comes from; not those nested deeper."""
    found: dict[Any, int] = {}
    for key, value in [*enumerate(node.args), *node.kwargs.items()]:
        if isinstance(value, Ref) and value.position in changes:
            found[key] = value.position
        elif isinstance(value, (list, tuple)):
            for j, item in enumerate(value):
                if isinstance(item, Ref) and item.position in changes:
                    found[key, j] = item.position
    return found


def _generic(run: Run, node: Node, call: Call, changes: dict[int, Any]) -> Any:
    """No rule: the operation itself, over the stacked probes."""
    used = sorted({ref for ref in node.uses if ref in changes})
    stacks = {ref: stacks_of(changes[ref]) for ref in used}

    def apply(values: dict[int, Any]) -> Any:
        def value(ref: Ref) -> Any:
            return _perturbed(run, ref, values)

        args, kwargs = map_refs(node.args, value), map_refs(node.kwargs, value)
        if call.module is not None:
            if getattr(call.module, "inplace", False):
                args = (args[0].clone(), *args[1:])
            return call.module(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], call.target)(*args[1:], **kwargs)
        return call.target(*args, **kwargs)

    random = run.random.get(node.position)
    return changes_of(call.out, over_probes(apply, stacks, call.out, random))


def _perturbed(run: Run, ref: Ref, values: dict[int, Any]) -> Any:
    """What a node gave, with what one probe changes in it."""
    return replaced(run.values[ref.position], values.get(ref.position, {}))


def relevant(run: Run, plan: Plan, index: list[int]) -> list[bool] | None:
    """Which elements matter to this batch; None for all."""
    node = run.graph.nodes[plan.entry]
    rule = rules.relevances.get((node.target, plan.local)) if node.op == "call_module" else None
    mask = None if rule is None else rule(run.call(node), index)
    return None if mask is None or all(mask) else mask


# --- the loss ----------------------------------------------------------------------------


def loss_changes(
    run: Run,
    plan: Plan,
    parameter: Tensor,
    moves: Moves,
    loss_change: LossChange | None,
    loss_fn: Callable[[Any, Any], Tensor],
    target: Any,
    scratch: Scratch,
) -> Tensor:
    """f(x + step e_i) - f(x) for every move, float64 on the CPU."""
    with scratch.lent():
        changes = propagate(run, plan, parameter, moves, scratch)
    output = run.graph.output
    if isinstance(output, Ref) and loss_change is not None:
        change = changes.get(output.position)
        if change is None:  # the output does not depend on this parameter
            return torch.zeros(moves.K, dtype=torch.float64)
        difference = loss_change(change, target)
        if difference is not None:
            return difference.cpu()
    found = {
        ref: stacks_of(changes[ref]) for ref in sorted(set(references(output))) if ref in changes
    }
    if not found:
        return torch.zeros(moves.K, dtype=torch.float64)

    def loss(values: dict[int, Any]) -> Tensor:
        value = loss_fn(map_refs(output, lambda ref: _perturbed(run, ref, values)), target)
        return value.reshape(()) if isinstance(value, Tensor) else torch.tensor(value).double()

    base = loss({})
    return (over_probes(loss, found, base).double() - base.double()).cpu()
