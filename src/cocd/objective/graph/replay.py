"""Run a pass from the calls of a graph alone, where they are certain to be all the model does.

That holds for models made of torch's own layers: their forwards read only the settings that
`fingerprint` compares. A replay may then order the calls better than the model does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .dropout import dropout_noise
from .graph import Graph, Node, Run, execute
from .layers import has_hooks, is_layer


def fingerprint(model: nn.Module) -> list[object] | None:
    """All that decides which calls a model makes; None unless it is made of torch's layers."""
    if torch._C._len_torch_function_stack():
        return None  # a mode observes or changes the calls
    found: list[object] = []
    modules = [model]
    for module in modules:  # the list grows during the loop
        kind = type(module)
        if has_hooks(module) or "forward" in vars(module):
            return None
        if kind is nn.Sequential:
            children = list(module._modules.values())
            found.append((module, children))
            modules += [child for child in children if child is not None]
        elif kind.__module__.startswith("torch.nn.modules.") and is_layer(module):
            found.append((module, kind.forward, dict(vars(module))))
        else:
            return None
    return found


def is_unchanged(before: list[object] | None, model: nn.Module) -> bool:
    """Does a model made of torch's layers still make the same calls?"""
    now = None if before is None else fingerprint(model)
    try:
        return now is not None and now == before
    except Exception:  # values that cannot be compared count as different
        return False


def replay(graph: Graph, inputs: list[Tensor]) -> Run:
    """Run the calls of the graph in order."""
    run = Run(graph, [], {}, {}, None)
    for node in graph.nodes[:-1]:
        run.values.append(_value(run, node, inputs))
    run.output = run.resolve((graph.output,))[0]
    return run


def _value(run: Run, node: Node, inputs: list[Tensor]) -> Any:
    if node.op == "input":
        return inputs[node.target]
    args, kwargs = run.resolve(node.args), run.resolve(node.kwargs)
    if (noise := dropout_noise(node.target, node.module, args, kwargs)) is not None:
        run.noise[node.position] = noise
        return args[0] * noise
    if node.position not in run.graph.draws:
        return execute(node, args, kwargs)
    run.random[node.position] = torch.get_rng_state()
    return execute(node, args, kwargs)
