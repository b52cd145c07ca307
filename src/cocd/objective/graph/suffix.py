"""Run the pass from the first moved parameter on; calls before it keep their recorded values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.linear_tanh import tanh_of
from ..kernels.maxpool import max_of_windows, window_of
from ..registry import Args, Call, Key, Kwargs
from .graph import Graph, Node, Ref, Run, map_refs, references
from .liveness import arguments, is_made_of_tensors, liveness

_WORTH = 0.8  # largest share of calls to repeat; beyond it the model is as fast


def downstream(graph: Graph, names: Sequence[str]) -> list[Node]:
    """The nodes that depend on these parameters, in order."""
    entries = {i for name in names for i in graph.sources.get(name, [])}
    reached: set[int] = set()
    for node in graph.nodes:
        if node.position in entries or any(used in reached for used in node.uses):
            reached.add(node.position)
    return [graph.nodes[i] for i in sorted(reached) if graph.nodes[i].op != "output"]


def pays(graph: Graph, names: Sequence[str]) -> bool:
    """Is running the suffix faster than running the model?

    It is if enough calls come before the first moved parameter, or if the model has layers that are
    faster here: pooling before an activation, with channels innermost.
    """
    if any(window_of(node.module) for node in graph.nodes):
        return True
    again = sum(node.op.startswith("call") for node in downstream(graph, names))
    return again <= _WORTH * sum(node.op.startswith("call") for node in graph.nodes)


class Suffix:
    """The calls that depend on some parameters, on the rows that reach the loss."""

    was_checked = False  # against the closure, in this run

    def __init__(self, run: Run, names: Sequence[str]) -> None:
        self._run, self._live = run, liveness(run)
        reached = [n for n in downstream(run.graph, names) if self._live.reaches(n.position)]
        positions = {node.position for node in reached}
        self._nodes = [node for node in reached if node.op.startswith("call")]
        # Calls must not draw random numbers or have arguments nested too deep to replace.
        self.is_possible = all(
            node.position not in run.random
            and {ref.position for _, ref in arguments(node)} >= positions.intersection(node.uses)
            for node in self._nodes
        )

    def output(self) -> tuple[object, ...]:
        """The model's output after parameters have moved, in place or where they are read.

        It is empty if Python would now read a different number: the model may branch differently.
        """
        values: dict[int, object] = {}
        for node in self._nodes:
            call = self._live.call(node)
            args = tuple(
                self._now(node, i, node.args[i] if i < len(node.args) else None, value, values)
                for i, value in enumerate(call.args)
            )
            kwargs = {
                key: self._now(node, key, node.kwargs.get(key), value, values)
                for key, value in call.kwargs.items()
            }
            value = values[node.position] = perform(call, args, kwargs)
            if not is_made_of_tensors(call.out) and not _is_equal(value, call.out):
                return ()
        run = self._run

        def now(ref: Ref) -> object:
            return values.get(ref.position, run.values[ref.position])

        return (map_refs(run.graph.output, now),)

    def _now(
        self, node: Node, key: Key, structure: object, called: Any, values: dict[int, object]
    ) -> object:
        """An argument's current value; `called` is its recorded value on the rows that matter."""
        if isinstance(structure, Ref):
            if structure.position not in values:
                return called
            return self._live.rows_of(node, key, structure.position, values[structure.position])
        if isinstance(structure, (list, tuple)) and references(structure):
            parts = [
                self._now(node, (key, j), part, called[j], values)
                for j, part in enumerate(structure)
            ]
            return tuple(parts) if isinstance(called, tuple) else parts
        return called


def _is_equal(value: object, before: object) -> bool:
    try:
        return bool(value == before)
    except Exception:  # for example a NumPy array, which torch no longer tracks
        return False


def perform(call: Call, args: Args, kwargs: Kwargs) -> object:
    """Make a call with other arguments, without writing to them."""
    module = call.module
    if call.noise is not None:
        return args[0] * call.noise
    if type(module) is nn.Conv2d:
        return convolve(module, args[0])
    if type(module) is nn.Tanh and args[0].dtype == torch.float32 and args[0].is_cpu:
        return tanh_of(torch.mul(args[0], 2))
    if (size := window_of(module)) and not _channels_last(args[0]):
        return max_of_windows(args[0], size)  # torch's own is fast with channels innermost
    if module is not None:
        if vars(module).get("inplace", getattr(type(module), "inplace", False)):
            args = (args[0].clone(), *args[1:])
        return module.forward(*args, **kwargs)
    if isinstance(call.target, str):
        return getattr(args[0], call.target)(*args[1:], **kwargs)
    return call.target(*args, **kwargs)


def convolve(module: nn.Conv2d, x: Tensor) -> Tensor:
    """The layer's output, stored with channels innermost: pooling is then five times as fast."""
    if x.dim() != 4 or x.dtype != torch.float32 or not x.is_cpu:
        return module.forward(x)
    x = x.contiguous(memory_format=torch.channels_last)
    weight = module.weight.contiguous(memory_format=torch.channels_last)
    return module._conv_forward(x, weight, module.bias)  # type: ignore[no-any-return]


def _channels_last(x: object) -> bool:
    return isinstance(x, Tensor) and x.is_contiguous(memory_format=torch.channels_last)
