"""From a module to a graph of calls, and from a graph to a run that keeps its activations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from ..kernels.maxpool import max_of_tiles, tile
from ..registry import Call, rules
from .tracing import trace_calls

# With these, what the input is multiplied with is kept, so that all probes share it.
_DROPOUTS = {
    nn.Dropout: F.dropout,
    nn.Dropout1d: F.dropout1d,
    nn.Dropout2d: F.dropout2d,
    nn.Dropout3d: F.dropout3d,
}

_RANDOM = (nn.MultiheadAttention,)  # draw random numbers and have a rule for when they do not


@dataclass(frozen=True)
class Node:
    """One call of the graph, by position; arguments refer to earlier positions."""

    position: int
    target: Any
    module: nn.Module | None  # of a call_module; a model whose modules change is traced again
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str
    op: str
    uses: tuple[int, ...]  # positions that the arguments refer to, in order


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
    constants: dict[str, Tensor]  # tensors that the forward makes itself


def trace_graph(model: nn.Module, given: frozenset[str]) -> Graph:
    """Follow the model's forward; raises `Untraceable` with the reason where fx cannot."""
    graph, constants = trace_calls(model, given)
    return _flatten(model, graph, constants)


def _flatten(model: nn.Module, graph: fx.Graph, constants: dict[str, Tensor]) -> Graph:
    position = {node: i for i, node in enumerate(graph.nodes)}
    shared = dict(model.named_parameters(remove_duplicate=False))
    canonical = {id(p): name for name, p in model.named_parameters()}
    nodes: list[Node] = []
    inputs: list[str] = []
    users: list[list[int]] = [[] for _ in position]
    sources: dict[str, list[int]] = {}
    output: Any = None

    def refer(value: Any) -> Any:
        return fx.node.map_arg(value, lambda n: Ref(position[n]))  # type: ignore[arg-type,return-value]

    for node, i in position.items():
        for used in node.all_input_nodes:
            users[position[used]].append(i)
        module = None
        target: Any = node.target
        if node.op == "placeholder":
            inputs.append(str(node.target))
        elif node.op == "output":
            output = refer(node.args[0])
        elif node.op == "call_module":
            module = model.get_submodule(str(node.target))
            target = type(module)
            for p in module.parameters():
                sources.setdefault(canonical[id(p)], []).append(i)
            # Rules find the arguments of layers by position, however they were passed.
            if node.kwargs:
                bound = inspect.signature(module.forward).bind(*node.args, **node.kwargs)
                bound.apply_defaults()
                node.args, node.kwargs = bound.args, bound.kwargs
        elif node.op == "get_attr" and str(node.target) in shared:
            sources.setdefault(canonical[id(shared[str(node.target)])], []).append(i)
        args, kwargs = refer(node.args), refer(node.kwargs)
        uses = tuple(references((args, kwargs)))
        nodes.append(Node(i, target, module, args, kwargs, node.name, node.op, uses))
    return Graph(nodes, output, inputs, users, sources, constants)


class Run:
    """One unperturbed pass, with every activation kept."""

    def __init__(self, model: nn.Module, graph: Graph, inputs: Any) -> None:
        self.model = model
        self.graph = graph
        self.values: list[Any] = [None] * len(graph.nodes)
        self.noise: dict[int, Tensor] = {}
        self.random: dict[int, Tensor] = {}  # of calls without a rule that drew: generator before
        self._memo: dict[Any, Any] = {}
        given = _bind(graph, inputs)
        for node in graph.nodes:
            self.values[node.position] = self._watch(node, given)
        self.output = self.resolve(graph.output)

    def resolve(self, structure: Any) -> Any:
        """Replace references by the values they stand for."""
        if type(structure) is tuple and len(structure) == 1 and type(structure[0]) is Ref:
            return (self.values[structure[0].position],)  # what most layers are called with
        if not structure:
            return structure
        return _map(structure, lambda ref: self.values[ref.position])

    def memo(self, key: Any, make: Callable[[], Any]) -> Any:
        """Something derived from this pass, made once."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def call(self, node: Node) -> Call:
        """What a node was called with and what it gave."""
        return Call(
            node.target,
            node.module,
            self.resolve(node.args),
            self.resolve(node.kwargs),
            self.values[node.position],
            self.noise.get(node.position),
        )

    def _watch(self, node: Node, given: dict[str, Any]) -> Any:
        quiet = has_rule(node.target) and node.target not in _RANDOM
        if quiet or not node.op.startswith("call"):
            return self._execute(node, given)
        before = torch.get_rng_state()
        value = self._execute(node, given)
        if not torch.equal(before, torch.get_rng_state()):
            self.random[node.position] = before
        return value

    def _execute(self, node: Node, given: dict[str, Any]) -> Any:
        if node.op == "placeholder":
            return given.get(str(node.target), node.args[0] if node.args else None)
        if node.op == "output":
            return None
        if node.op == "get_attr":
            if node.target in self.graph.constants:
                return self.graph.constants[node.target]
            value: Any = self.model
            for part in str(node.target).split("."):
                value = getattr(value, part)
            return value
        args, kwargs = self.resolve(node.args), self.resolve(node.kwargs)
        if node.op == "call_module":
            module: Any = node.module
            if type(module) in _DROPOUTS and module.training and module.p > 0:
                return self._dropout(node, args[0], _DROPOUTS[type(module)], module.p)
            if size := tile(module):
                return max_of_tiles(args[0], size)
            # What it would write to is kept. (A plain getattr of what is not there is slow.)
            if vars(module).get("inplace", getattr(type(module), "inplace", False)):
                args = (args[0].clone(), *args[1:])
            # No hooks, or the model would not have been traced: the forward is all there is.
            return module.forward(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        if node.target in _DROPOUTS.values():
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            if kwargs.get("training", args[2] if len(args) > 2 else True) and p > 0:
                return self._dropout(node, args[0], node.target, p)
        return node.target(*args, **kwargs)

    def _dropout(self, node: Node, x: Tensor, function: Callable[..., Tensor], p: float) -> Tensor:
        # The same random numbers as function(x) draws, kept so that all probes share the mask.
        self.noise[node.position] = function(torch.ones_like(x), p, training=True)
        return x * self.noise[node.position]


def has_rule(target: Any) -> bool:
    """Is there a flow for this module type, function or method?"""
    try:
        return target in rules.flows
    except TypeError:  # a callable that cannot be hashed
        return False


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


def references(structure: Any) -> list[int]:
    """The positions that nested arguments refer to, in order."""
    found: list[int] = []
    _map(structure, lambda ref: found.append(ref.position))
    return found


def map_refs(structure: Any, fn: Any) -> Any:
    """Apply `fn` to every reference in nested arguments."""
    return _map(structure, fn)
