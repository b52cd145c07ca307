"""From a module to a graph of calls, and from a graph to a run that keeps its activations.

torch.fx rather than torch.export: rules are about layers, and fx keeps layers whole, with their
live parameters and buffers; no example input is needed, so a batch may have any size. What fx
cannot follow (control flow on data) is refused here and left to the other engines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from .registry import Call

# Non-decreasing functions commute with a maximum: applied after the pooling they cost a quarter.
_MONOTONE_MODULES = (nn.Tanh, nn.ReLU, nn.Sigmoid, nn.ReLU6, nn.Softplus, nn.ELU, nn.Hardtanh)
_MONOTONE_FUNCTIONS = {torch.tanh, torch.relu, torch.sigmoid, F.relu, F.tanh, F.sigmoid, F.relu6,
                       F.elu, F.softplus, F.hardtanh, "tanh", "relu", "sigmoid"}  # fmt: skip
_MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)
_DROPOUTS = (nn.Dropout,)


class Untraceable(Exception):
    """The model cannot be followed call by call; the message says why."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        from .registry import rules

        own_rule = any(kind is type(m) for kind, _ in rules.sources) or type(m) in rules.flows
        return own_rule or super().is_leaf_module(m, module_qualified_name)


@dataclass(frozen=True)
class Node:
    """One call of the graph, by position; arguments refer to earlier positions."""

    position: int
    target: Any
    module_name: str | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str
    op: str


@dataclass(frozen=True)
class Ref:
    """An argument that is the output of an earlier node."""

    position: int


@dataclass(frozen=True)
class Graph:
    """The model as a list of calls, in order; the last one gives the output structure."""

    nodes: list[Node]
    output: Any
    inputs: list[str]
    users: list[list[int]]  # of each node, the positions that use its result
    sources: dict[str, list[int]]  # of each parameter name, the nodes that read it


def trace_graph(model: nn.Module) -> Graph:
    """Follow the model's forward; raises `Untraceable` with the reason where fx cannot."""
    hooked = [
        name or type(m).__name__
        for name, m in model.named_modules()
        if m._forward_hooks or m._forward_pre_hooks
    ]
    if hooked:
        raise Untraceable(f"forward hooks on {', '.join(hooked)} may change what flows through")
    try:
        graph = _Tracer().trace(model)
    except Exception as error:  # fx raises many kinds, all meaning the same
        raise Untraceable(f"torch.fx cannot follow its forward ({error})") from error
    _pool_before_monotone(model, graph)
    return _flatten(model, graph)


def _pool_before_monotone(model: nn.Module, graph: fx.Graph) -> None:
    """act -> max-pool becomes max-pool -> act, where the activation has no other reader."""
    for node in list(graph.nodes):
        if node.op != "call_module" or type(model.get_submodule(node.target)) not in _MAX_POOLS:
            continue
        act = node.args[0] if node.args else None
        if not isinstance(act, fx.Node) or len(act.users) != 1 or not _is_monotone(model, act):
            continue
        before = act.args[0]
        if not isinstance(before, fx.Node) or getattr(
            model.get_submodule(node.target), "return_indices", False
        ):
            continue
        node.replace_input_with(act, before)
        readers = [user for user in node.users if user is not act]
        with graph.inserting_after(node):
            moved = graph.node_copy(act, lambda n, old=before, new=node: new if n is old else n)
        for user in readers:
            user.replace_input_with(node, moved)
        graph.erase_node(act)


def _is_monotone(model: nn.Module, node: fx.Node) -> bool:
    if len(node.all_input_nodes) != 1:
        return False
    if node.op == "call_module":
        return type(model.get_submodule(str(node.target))) in _MONOTONE_MODULES
    return node.op in ("call_function", "call_method") and node.target in _MONOTONE_FUNCTIONS


def _flatten(model: nn.Module, graph: fx.Graph) -> Graph:
    position = {node: i for i, node in enumerate(graph.nodes)}
    shared = dict(model.named_parameters(remove_duplicate=False))
    canonical = {id(p): name for name, p in model.named_parameters()}
    nodes: list[Node] = []
    inputs: list[str] = []
    users: list[list[int]] = [[] for _ in position]
    sources: dict[str, list[int]] = {}
    output: Any = None
    for node, i in position.items():
        refer = lambda value: fx.node.map_arg(value, lambda n: Ref(position[n]))  # noqa: E731
        for used in node.all_input_nodes:
            users[position[used]].append(i)
        module_name = None
        target: Any = node.target
        if node.op == "placeholder":
            inputs.append(str(node.target))
        elif node.op == "output":
            output = refer(node.args[0])
        elif node.op == "call_module":
            module_name = str(node.target)
            module = model.get_submodule(module_name)
            target = type(module)
            for local, p in module.named_parameters(prefix=module_name):
                sources.setdefault(canonical[id(p)], []).append(i)
        elif node.op == "get_attr" and str(node.target) in shared:
            sources.setdefault(canonical[id(shared[str(node.target)])], []).append(i)
        nodes.append(
            Node(i, target, module_name, refer(node.args), refer(node.kwargs), node.name, node.op)
        )
    return Graph(nodes, output, inputs, users, sources)


class Run:
    """One unperturbed pass, with every activation kept."""

    def __init__(self, model: nn.Module, graph: Graph, inputs: Any) -> None:
        self.model = model
        self.graph = graph
        self.values: list[Any] = [None] * len(graph.nodes)
        self.noise: dict[int, Tensor] = {}
        self._memo: dict[Any, Any] = {}
        given = _bind(graph, inputs)
        for node in graph.nodes:
            self.values[node.position] = self._execute(node, given)
        self.output = self.resolve(graph.output)

    def resolve(self, structure: Any) -> Any:
        """Replace references by the values they stand for."""
        return _map(structure, lambda ref: self.values[ref.position])

    def memo(self, key: Any, make: Callable[[], Any]) -> Any:
        """Something derived from this pass, made once."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def call(self, node: Node) -> Call:
        """What a node was called with and what it gave."""
        module = None if node.module_name is None else self.model.get_submodule(node.module_name)
        target = node.target
        return Call(
            target,
            module,
            self.resolve(node.args),
            self.resolve(node.kwargs),
            self.values[node.position],
            self.noise.get(node.position),
        )

    def _execute(self, node: Node, given: dict[str, Any]) -> Any:
        if node.op == "placeholder":
            return given.get(str(node.target), node.args[0] if node.args else None)
        if node.op == "output":
            return None
        if node.op == "get_attr":
            value: Any = self.model
            for part in str(node.target).split("."):
                value = getattr(value, part)
            return value
        args, kwargs = self.resolve(node.args), self.resolve(node.kwargs)
        if node.op == "call_module":
            assert node.module_name is not None
            module = self.model.get_submodule(node.module_name)
            if isinstance(module, _DROPOUTS) and module.training and module.p > 0:
                return self._dropout(node, args[0], module.p)
            # No hooks, or the model would not have been traced: the forward is all there is.
            return module.forward(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        if node.target is F.dropout:
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            if kwargs.get("training", args[2] if len(args) > 2 else True) and p > 0:
                return self._dropout(node, args[0], p)
        return node.target(*args, **kwargs)

    def _dropout(self, node: Node, x: Tensor, p: float) -> Tensor:
        # The same random numbers as F.dropout(x) draws, kept so that all probes share the mask.
        self.noise[node.position] = F.dropout(torch.ones_like(x), p, training=True)
        return x * self.noise[node.position]


def _bind(graph: Graph, inputs: Any) -> dict[str, Any]:
    if isinstance(inputs, dict):
        return dict(inputs)
    values = inputs if isinstance(inputs, tuple) else (inputs,)
    return {name.lstrip("*"): value for name, value in zip(graph.inputs, values, strict=False)}


def _map(structure: Any, fn: Any) -> Any:
    if isinstance(structure, Ref):
        return fn(structure)
    if isinstance(structure, (list, tuple)):
        mapped = [_map(item, fn) for item in structure]
        if isinstance(structure, tuple) and hasattr(structure, "_fields"):
            return type(structure)(*mapped)
        return type(structure)(mapped) if type(structure) in (list, tuple) else mapped
    if isinstance(structure, dict):
        return {key: _map(value, fn) for key, value in structure.items()}
    if isinstance(structure, slice):
        return slice(
            *(_map(part, fn) for part in (structure.start, structure.stop, structure.step))
        )
    return structure


def map_refs(structure: Any, fn: Any) -> Any:
    """Apply `fn` to every reference in nested arguments."""
    return _map(structure, fn)
