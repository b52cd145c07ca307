"""The model as the list of calls that one forward pass made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..kernels.maxpool import max_of_windows, window_of
from ..registry import Args, Call, Kwargs, rules

T = TypeVar("T")


@dataclass(frozen=True)
class Ref:
    """An argument that is the output of an earlier node."""

    position: int


@dataclass(frozen=True)
class Node:
    """One call of the graph, by position; arguments refer to earlier positions.

    `op` is "call_module", "call_function" or "call_method" for a call. For a tensor that no call
    made, it is "parameter" (`target` is its name) or "given": an input, a buffer, a constant, or
    something computed from these alone, and so the same for every probe of a step. The last node
    is "output".
    """

    position: int
    target: Any
    module: nn.Module | None
    args: Args
    kwargs: Kwargs
    name: str
    op: str
    uses: tuple[int, ...]  # positions its arguments refer to, in order


@dataclass(frozen=True)
class Seen:
    """A recorded call, to compare with the next pass."""

    op: str
    target: Any
    module: nn.Module | None
    settings: dict[str, object]  # the attributes of the module
    args: Args
    kwargs: Kwargs
    is_plain: bool = False  # a layer from one tensor to one tensor, without random numbers


class Known(NamedTuple):
    """The calls of an earlier pass, and which of them drew random numbers."""

    seen: list[Seen]
    draws: frozenset[int]


@dataclass(frozen=True)
class Graph:
    """The calls that depend on parameters, in order; `output` has the structure of the output."""

    nodes: list[Node]
    output: object
    users: list[list[int]]  # for each node, the positions that use its result
    sources: dict[str, list[int]]  # for each parameter name, the nodes that read it
    draws: frozenset[int] = frozenset()  # calls without a rule that drew random numbers
    swapped: tuple[int, ...] = ()  # calls that were moved from their place in the pass
    memo: dict[object, Any] = field(default_factory=dict, compare=False)  # derived values

    def resembles(self, other: Graph) -> bool:
        """Does `other` make the same calls, perhaps with other numbers as arguments?"""
        return len(self.nodes) == len(other.nodes) and all(
            (a.op, a.target, a.uses) == (b.op, b.target, b.uses) and a.module is b.module
            for a, b in zip(self.nodes, other.nodes, strict=True)
        )

    def remember(self, key: object, make: Callable[[], T]) -> T:
        """Derive a value from this graph once and cache it."""
        if key not in self.memo:
            self.memo[key] = make()
        found: T = self.memo[key]
        return found


def connect(
    nodes: list[Node],
    output: object,
    names: dict[int, str],
    draws: frozenset[int] = frozenset(),
    swapped: tuple[int, ...] = (),
) -> Graph:
    """Build the graph of these nodes; `names` maps a parameter's id to its name."""
    end = Node(len(nodes), "output", None, (output,), {}, "output", "output", uses_of(output))
    nodes = [*nodes, end]
    users: list[list[int]] = [[] for _ in nodes]
    sources: dict[str, list[int]] = {}
    for node in nodes:
        for used in node.uses:
            users[used].append(node.position)
        if node.op == "parameter":
            sources.setdefault(node.target, []).append(node.position)
        elif node.module is not None:
            for parameter in node.module.parameters():
                if (name := names.get(id(parameter))) is not None:
                    sources.setdefault(name, []).append(node.position)
    return Graph(nodes, output, users, sources, draws, swapped)


def uses_of(structure: object) -> tuple[int, ...]:
    """The distinct positions that nested arguments refer to."""
    return tuple(dict.fromkeys(references(structure)))


class Run:
    """One unperturbed pass, with the result of every call in the graph."""

    def __init__(
        self,
        graph: Graph,
        values: list[Any],
        noise: dict[int, Tensor],
        random: dict[int, Tensor],
        output: object,
    ) -> None:
        self.graph = graph
        self.values = values
        self.noise = noise  # the scaled masks of dropouts
        self.random = random  # for other random calls: the generator's state before
        self.output = output
        self._memo: dict[object, Any] = {}

    def put_in_order(self) -> Run:
        """Recompute the values of calls that were moved from their place in the pass."""
        for position in self.graph.swapped:
            node = self.graph.nodes[position]
            args, kwargs = self.resolve(node.args), self.resolve(node.kwargs)
            self.values[position] = execute(node, args, kwargs)
        return self

    def resolve(self, structure: Any) -> Any:
        """Replace references by their values."""
        if type(structure) is tuple and len(structure) == 1 and type(structure[0]) is Ref:
            return (self.values[structure[0].position],)  # the arguments of most layers
        if not structure:
            return structure
        return map_refs(structure, lambda ref: self.values[ref.position])

    def memo(self, key: object, make: Callable[[], T]) -> T:
        """Derive a value from this pass once and cache it."""
        if key not in self._memo:
            self._memo[key] = make()
        found: T = self._memo[key]
        return found

    def floats(self) -> set[torch.dtype]:
        """The floating-point dtypes of the results."""
        return {v.dtype for v in self.values if isinstance(v, Tensor) and v.is_floating_point()}

    def call(self, node: Node) -> Call:
        """A node's arguments and result."""
        return Call(
            node.target,
            node.module,
            self.resolve(node.args),
            self.resolve(node.kwargs),
            self.values[node.position],
            self.noise.get(node.position),
        )


def execute(node: Node, args: Args, kwargs: Kwargs) -> object:
    """Make a node's call with these arguments, without writing to them."""
    module = node.module
    if module is not None:
        if size := window_of(module):
            return max_of_windows(args[0], size)
        # Protect the argument of an in-place layer. (getattr of a missing attribute is slow.)
        if vars(module).get("inplace", False):
            args = (args[0].clone(), *args[1:])
        return module.forward(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return node.target(*args, **kwargs)


def has_rule(target: object) -> bool:
    """Does this module type, function or method have a flow rule?"""
    try:
        return target in rules.flows
    except TypeError:  # a callable that cannot be hashed
        return False


def map_refs(structure: Any, fn: Callable[[Ref], object]) -> Any:
    """Apply `fn` to every reference in nested arguments."""
    kind = type(structure)
    if kind is Ref:
        return fn(structure)
    if kind is tuple or kind is list:
        return kind([map_refs(item, fn) for item in structure])
    if kind is dict:
        return {key: map_refs(value, fn) for key, value in structure.items()}
    if kind is slice:
        return slice(*(map_refs(p, fn) for p in (structure.start, structure.stop, structure.step)))
    if isinstance(structure, (tuple, dict)):  # named tuples, and output types of other libraries
        return tree_map(lambda leaf: fn(leaf) if type(leaf) is Ref else leaf, structure)
    return structure


def references(structure: object) -> list[int]:
    """The positions that nested arguments refer to, in order."""
    found: list[int] = []
    map_refs(structure, lambda ref: found.append(ref.position))
    return found


def tensors_of(structure: Iterable[object]) -> list[Tensor]:
    """The tensors in nested arguments, in order."""
    found: list[Tensor] = []
    for value in structure:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += tensors_of(value)
        elif isinstance(value, dict):
            found += tensors_of(value.values())
        elif type(value) is slice:
            found += tensors_of((value.start, value.stop, value.step))
    return found
