"""Turn recorded calls into the nodes that rules read: named, by position, in the best order."""

from __future__ import annotations

import inspect

import torch
import torch.nn.functional as F
from torch import nn

from .graph import Graph, Known, Node, Ref, Seen, connect, uses_of

# Non-decreasing functions commute with a maximum; after 2x2 pooling they cost a quarter.
_MONOTONE_MODULES = (nn.Tanh, nn.ReLU, nn.Sigmoid, nn.ReLU6, nn.Softplus, nn.ELU, nn.Hardtanh)
_MONOTONE_FUNCTIONS = {torch.tanh, torch.relu, torch.sigmoid, F.relu, F.tanh, F.sigmoid, F.relu6,
                       F.softplus, F.hardtanh, "tanh", "relu", "sigmoid"}  # fmt: skip
_MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)


def graph_of(known: Known, output: object, model: nn.Module, names: dict[int, str]) -> Graph:
    """Build the graph of a recorded pass; `names` maps a parameter's id to its name."""
    seen, draws = known
    paths = {id(m): path for path, m in model.named_modules()}
    nodes = [_node(i, call, paths) for i, call in enumerate(seen)]
    graph = connect(nodes, output, names, draws=draws)
    swaps = _swaps(graph)
    for act, pool in swaps:
        _swap(nodes, act, pool)
    swapped = tuple(act for act, _ in swaps)
    return connect(nodes, output, names, draws=draws, swapped=swapped) if swaps else graph


def _node(position: int, seen: Seen, paths: dict[int, str]) -> Node:
    args, kwargs = seen.args, seen.kwargs
    if seen.module is not None and kwargs:
        # Rules expect a layer's arguments by position, even if the model passed them by name.
        bound = inspect.signature(type(seen.module).forward).bind(None, *args, **kwargs)
        bound.apply_defaults()
        args, kwargs = bound.args[1:], bound.kwargs
    if seen.module is not None:
        name = paths.get(id(seen.module)) or type(seen.module).__name__
    else:
        name = str(getattr(seen.target, "__name__", seen.target))
    uses = uses_of((args, kwargs))
    return Node(position, seen.target, seen.module, args, kwargs, name, seen.op, uses)


# --- max-pooling first -------------------------------------------------------------------


def _swaps(graph: Graph) -> list[tuple[int, int]]:
    """Pairs of an activation and the max-pooling that is its only reader."""
    found = []
    for pool in graph.nodes:
        if type(pool.module) not in _MAX_POOLS or getattr(pool.module, "return_indices", False):
            continue
        if len(pool.args) == 1 and isinstance(pool.args[0], Ref) and not pool.kwargs:
            act = graph.nodes[pool.args[0].position]
            if graph.users[act.position] == [pool.position] and _is_monotone(act):
                found.append((act.position, pool.position))
    return found


def _is_monotone(node: Node) -> bool:
    if len(node.uses) != 1 or not node.args or not isinstance(node.args[0], Ref):
        return False
    if node.module is not None:
        return type(node.module) in _MONOTONE_MODULES and getattr(node.module, "alpha", 1) >= 0
    return node.op.startswith("call") and node.target in _MONOTONE_FUNCTIONS


def _swap(nodes: list[Node], first: int, second: int) -> None:
    """Swap two calls; each then reads what the other has read."""
    a, b = nodes[first], nodes[second]
    args = (a.args[0], *b.args[1:])
    nodes[first] = Node(first, b.target, b.module, args, b.kwargs, b.name, b.op, a.uses)
    args = (b.args[0], *a.args[1:])
    nodes[second] = Node(second, a.target, a.module, args, a.kwargs, a.name, a.op, b.uses)
