"""From a module to a torch.fx graph in which no call writes to what another one reads.

torch.fx rather than torch.export: rules are about layers, and fx keeps layers whole, with their
live parameters and buffers; no example input is needed, so a batch may have any size. What fx
cannot follow (control flow on data) is refused here and left to the other engines.
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from ..registry import rules

# Non-decreasing functions commute with a maximum: applied after the pooling they cost a quarter.
_MONOTONE_MODULES = (nn.Tanh, nn.ReLU, nn.Sigmoid, nn.ReLU6, nn.Softplus, nn.ELU, nn.Hardtanh)
_MONOTONE_FUNCTIONS = {torch.tanh, torch.relu, torch.sigmoid, F.relu, F.tanh, F.sigmoid, F.relu6,
                       F.softplus, F.hardtanh, "tanh", "relu", "sigmoid"}  # fmt: skip
_MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)

# What can be done to a copy as well: x.add_(y) is x.add(y) if x is not read again.
_COPYING = {
    "abs", "add", "clamp", "cos", "div", "elu", "erf", "exp", "expm1", "hardtanh", "leaky_relu",
    "log", "log1p", "masked_fill", "mul", "neg", "pow", "reciprocal", "relu", "rsqrt", "selu",
    "sigmoid", "sin", "sqrt", "square", "sub", "tanh", "unsqueeze",
}  # fmt: skip


class Untraceable(Exception):
    """The model cannot be followed call by call; the message says why."""


def trace_calls(model: nn.Module, given: frozenset[str]) -> tuple[fx.Graph, dict[str, Tensor]]:
    """The calls of a forward with the arguments `given`, the others at their defaults.

    Also the constant tensors that the forward makes. Raises `Untraceable` with the reason where
    fx cannot follow.
    """
    hooked = [
        name or type(m).__name__
        for name, m in model.named_modules()
        if m._forward_hooks or m._forward_pre_hooks
    ]
    if hooked:
        raise Untraceable(f"forward hooks on {', '.join(hooked)} may change what flows through")
    own = set(vars(model))
    try:
        # A forward that draws random numbers draws some while it is traced.
        with torch.random.fork_rng(devices=()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            absent = _left_out(model, given)
            graph = _trace(model, absent)
    except Exception as error:  # fx raises many kinds, all meaning the same
        raise Untraceable(f"torch.fx cannot follow its forward ({error})") from error
    finally:
        # fx leaves the constants it meets on the model, which is not ours to change.
        constants = {name: vars(model)[name] for name in set(vars(model)) - own}
        for name in constants:
            delattr(model, name)
    _drop_arguments(model, graph, absent)
    _write_nowhere(model, graph)
    _pool_before_monotone(model, graph)
    return graph, constants


def _trace(model: nn.Module, absent: dict[str, Any]) -> fx.Graph:
    tracer = _Tracer()
    if not tracer.is_leaf_module(model, ""):
        return tracer.trace(model, concrete_args=absent or None)
    graph = fx.Graph()  # the model is one layer; fx would look inside it
    names = inspect.signature(type(model).forward).parameters
    args = tuple(graph.placeholder(name) for name in list(names)[1:] if name not in absent)
    graph.output(graph.call_module("", args))
    return graph


# --- arguments that have a default -------------------------------------------------------


def required_names(model: nn.Module) -> frozenset[str]:
    """The arguments of the forward that have no default."""
    return frozenset(p.name for p in _arguments(model) if p.default is p.empty)


def given_names(model: nn.Module, inputs: Any) -> frozenset[str]:
    """The arguments of the forward that `inputs` provides."""
    if isinstance(inputs, dict):
        return frozenset(inputs)
    count = len(inputs) if isinstance(inputs, tuple) else 1
    return frozenset(p.name for p in _arguments(model)[:count])


def _arguments(model: nn.Module) -> list[inspect.Parameter]:
    return _parameters(type(model).forward)


@lru_cache
def _parameters(forward: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = inspect.signature(forward).parameters.values()
    return [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)][1:]


def _left_out(model: nn.Module, given: frozenset[str]) -> dict[str, Any]:
    """Arguments that are not given, with their defaults: branches on them are not on data."""
    return {
        p.name: p.default
        for p in _arguments(model)
        if p.default is not p.empty and p.name not in given
    }


def _drop_arguments(model: nn.Module, graph: fx.Graph, absent: dict[str, Any]) -> None:
    """Forget the arguments that were left out, and the assertions that fx makes about them."""
    names = {p.name for p in _arguments(model)}
    for node in list(graph.nodes):
        target = str(node.target)  # fx numbers the arguments that are left out
        if target not in names and node.op == "placeholder" and target.rsplit("_", 1)[0] in absent:
            gone = [node]
            for other in graph.nodes:
                if any(used in gone for used in other.all_input_nodes):
                    gone.append(other)
            for other in reversed(gone):
                graph.erase_node(other)


# --- layers of layers --------------------------------------------------------------------


class _Tracer(fx.Tracer):
    """Layers stay whole, except for those that are made of layers with rules."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if type(m) in _INSIDES:
            return False
        own_rule = any(kind is type(m) for kind, _ in rules.sources) or type(m) in rules.flows
        return own_rule or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        inside = _INSIDES.get(type(m))
        if inside is _encoder and (len(args) > 2 or kwargs.get("src_key_padding_mask") is not None):
            # It may drop the padding on its way, and what comes out for it is not what goes in.
            return self.create_proxy("call_module", self.path_of_module(m), args, kwargs)
        return super().call_module(m, partial(inside, m) if inside else forward, args, kwargs)


def _encoder_layer(
    m: Any,
    src: Any,
    src_mask: Any = None,
    src_key_padding_mask: Any = None,
    is_causal: bool = False,
) -> Any:
    """nn.TransformerEncoderLayer without the questions that it asks about its input."""

    def attend(x: Any) -> Any:
        return m._sa_block(x, src_mask, src_key_padding_mask, is_causal=is_causal)

    if m.norm_first:
        x = src + attend(m.norm1(src))
        return x + m._ff_block(m.norm2(x))
    x = m.norm1(src + attend(src))
    return m.norm2(x + m._ff_block(x))


def _encoder(m: Any, src: Any, mask: Any = None, src_key_padding_mask: Any = None,
             is_causal: bool | None = None) -> Any:  # fmt: skip
    """nn.TransformerEncoder without padding: its layers."""
    for layer in m.layers:
        src = layer(src, src_mask=mask, is_causal=bool(is_causal))
    return src if m.norm is None else m.norm(src)


_INSIDES: dict[type[nn.Module], Callable[..., Any]] = {
    nn.TransformerEncoderLayer: _encoder_layer,
    nn.TransformerEncoder: _encoder,
}


# --- calls that write --------------------------------------------------------------------


def _write_nowhere(model: nn.Module, graph: fx.Graph) -> None:
    """In-place calls become calls with a result, which later readers of their input read."""
    for node in list(graph.nodes):
        if not _writes(model, node):
            continue
        x = node.all_input_nodes[0]
        if "out" in node.kwargs or (
            node.op in ("call_function", "call_method") and not _copy(node)
        ):
            raise Untraceable(f"{node.name} writes into a tensor")
        later = False
        for user in graph.nodes:
            if later and user in x.users:
                user.replace_input_with(x, node)
            later = later or user is node


def _writes(model: nn.Module, node: fx.Node) -> bool:
    if node.op == "call_module":
        return bool(getattr(model.get_submodule(str(node.target)), "inplace", False))
    if node.op not in ("call_function", "call_method"):
        return False
    return (
        node.target is operator.setitem
        or "out" in node.kwargs
        or _is_marked(_name(node))
        or _asks_to(node)
    )


def _name(node: fx.Node) -> str:
    return str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))


def _is_marked(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _asks_to(node: fx.Node) -> bool:
    """Is `inplace` an argument of a function, and true?"""
    if node.op != "call_function" or not (True in node.args or "inplace" in node.kwargs):
        return False
    try:
        given = inspect.signature(node.target).bind(*node.args, **node.kwargs)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return bool(given.arguments.get("inplace", False))


def _copy(node: fx.Node) -> bool:
    """Turn an in-place call into its twin that returns the result, if there is one."""
    name = _name(node)
    if _asks_to(node):
        given = inspect.signature(node.target).bind(*node.args, **node.kwargs)  # type: ignore[arg-type]
        given.arguments["inplace"] = False
        node.args, node.kwargs = given.args, given.kwargs
        return True
    if not _is_marked(name) or name[:-1] not in _COPYING:
        return False
    node.target = name[:-1] if node.op == "call_method" else _function(name[:-1])
    return True


def _function(name: str) -> Callable[..., Any]:
    return getattr(F, name, None) or getattr(torch, name)


# --- max-pooling first -------------------------------------------------------------------


def _pool_before_monotone(model: nn.Module, graph: fx.Graph) -> None:
    """Act -> max-pool becomes max-pool -> act, where the activation has no other reader."""
    for node in list(graph.nodes):
        if node.op != "call_module" or type(model.get_submodule(node.target)) not in _MAX_POOLS:
            continue
        act = node.args[0] if node.args else None
        if not isinstance(act, fx.Node) or len(act.users) != 1 or not _is_monotone(model, act):
            continue
        before = act.args[0] if act.args else None
        if not isinstance(before, fx.Node) or getattr(
            model.get_submodule(node.target), "return_indices", False
        ):
            continue
        node.replace_input_with(act, before)
        readers = [user for user in node.users if user is not act]
        with graph.inserting_after(node):
            replaced = {before: node}
            moved = graph.node_copy(act, lambda n, r=replaced: r.get(n, n))  # type: ignore[misc]
        for user in readers:
            user.replace_input_with(node, moved)
        graph.erase_node(act)


def _is_monotone(model: nn.Module, node: fx.Node) -> bool:
    if len(node.all_input_nodes) != 1:
        return False
    if node.op == "call_module":
        act = model.get_submodule(str(node.target))
        return type(act) in _MONOTONE_MODULES and getattr(act, "alpha", 1) >= 0
    return node.op in ("call_function", "call_method") and node.target in _MONOTONE_FUNCTIONS
