"""Chains of layers that one fused loop can compute.

linear -> activation (-> small linear), convolution -> max-pool -> activation. A chain is used only
if every link has one reader; the plain rules do the rest. Without the loops, linear -> tanh still
runs as one step (`linear_tanh.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..change import Change, slab
from ..graph.graph import Graph, Node, Run
from ..registry import Call, Changed, Moves, moved_elements
from ..rules.convolution import has_samples, padded
from . import conv_batch_last
from . import dispatch as kernels
from .linear_tanh import linear_tanh, moved_unit
from .maxpool import window_of
from .scratch import Scratch

_SMALL = 32  # most outputs of a linear layer that the activation's loop also computes


class Chain(NamedTuple):
    """Consecutive nodes; the first is a linear or convolution layer."""

    head: int
    pool: int | None
    act: int | None
    code: int  # of the activation
    last: int  # of these three
    tail: int | None  # a small linear layer behind them
    place: conv_batch_last.Position | None = None  # for loops with the samples last


def chains(graph: Graph) -> dict[int, Chain]:
    """All chains of a graph, keyed by their first node."""
    found = {}
    for node in graph.nodes:
        if node.target in (nn.Linear, nn.Conv2d) and node.op == "call_module":
            last, pool, act, code = node, None, None, kernels.NONE
            following = _only_reader(graph, last)
            if node.target is nn.Conv2d and following is not None and window_of(following.module):
                pool, last = following.position, following
                following = _only_reader(graph, last)
            if following is not None and _activation(following):
                act, last, code = following.position, following, _activation(following)
            if node.target is nn.Conv2d and not _is_plain(node):
                continue
            if last is not node:
                head, tail = node.position, _tail(graph, node, last)
                place = None
                if conv_batch_last.fits(node.module, _pooled_by(graph, pool)):
                    behind = _behind_flatten(graph, last)
                    place = conv_batch_last.Position(head, last.position, behind, code)
                found[head] = Chain(head, pool, act, code, last.position, tail, place)
    return found


def _tail(graph: Graph, head: Node, last: Node) -> int | None:
    node = _only_reader(graph, last)
    if head.target is not nn.Linear or node is None or node.target is not nn.Linear:
        return None
    m = node.module
    return node.position if isinstance(m, nn.Linear) and m.out_features <= _SMALL else None


def _behind_flatten(graph: Graph, last: Node) -> int | None:
    """The linear layer behind a chain and a flatten, if it is the only reader."""
    flat = _only_reader(graph, last)
    if flat is None or not _flattens(flat):
        return None
    node = _only_reader(graph, flat)
    if node is None or node.op != "call_module" or node.target is not nn.Linear:
        return None
    return node.position


def _flattens(node: Node) -> bool:
    m = node.module
    if type(m) is nn.Flatten:
        return (m.start_dim, m.end_dim) == (1, -1)
    return node.target in (torch.flatten, "flatten") and node.args[1:] == (1,) and not node.kwargs


def _pooled_by(graph: Graph, pool: int | None) -> tuple[int, int]:
    return (1, 1) if pool is None else window_of(graph.nodes[pool].module) or (1, 1)


def _only_reader(graph: Graph, node: Node) -> Node | None:
    users = graph.users[node.position]
    return graph.nodes[users[0]] if len(users) == 1 else None


def _activation(node: Node) -> int:
    if node.target in (nn.Tanh, torch.tanh, F.tanh, "tanh"):
        return kernels.TANH
    if node.target in (nn.ReLU, torch.relu, F.relu, "relu"):
        return kernels.RELU
    if node.target in (nn.SiLU, F.silu):
        return kernels.SILU
    return kernels.NONE


def _is_plain(node: Node) -> bool:
    m = node.module
    return isinstance(m, nn.Conv2d) and m.groups == 1


def _geometry(run: Run, chain: Chain, conv: nn.Conv2d) -> tuple[int, ...]:
    return (
        *conv.kernel_size, *conv.stride, *conv.dilation, *_pooled_by(run.graph, chain.pool)
    )  # fmt: skip


def kind() -> str:
    """The word `explain` uses for a chain that runs as one step."""
    return "fused" if kernels.enabled() else "folded"


def _foldable(chain: Chain) -> tuple[int, int] | None:
    """First and last node of linear -> tanh, which plain operations can fuse; otherwise None."""
    return (chain.head, chain.last) if chain.code == kernels.TANH and chain.pool is None else None


def flow(run: Run, chain: Chain, x: Changed, scratch: Scratch) -> tuple[int, Change] | None:
    """The node at a chain's end and its change; None where the plain rules must take over."""
    if not isinstance(x, Change):
        return None
    if not kernels.enabled():
        change = linear_tanh(run, *ends, x) if (ends := _foldable(chain)) else None
        return None if change is None else (chain.last, change)
    head = run.call(run.graph.nodes[chain.head])
    m = head.module
    assert isinstance(m, (nn.Linear, nn.Conv2d))
    out = run.values[chain.last]
    if not kernels.suits(x.base, head.out, out, m.weight):
        return None
    if isinstance(m, nn.Linear):
        return _linear(run, m, head.out, out, x, chain, scratch)
    if chain.place is not None and conv_batch_last.enough(head.out):
        return conv_batch_last.flow(run, chain.place, m, x, scratch)
    if x.dim == 1 and x.width == 1 and x.is_single and has_samples(m, head.out):
        return chain.last, _convolution(run, m, head.out, out, x, chain, scratch)
    return None


def _linear(
    run: Run, m: nn.Linear, z: Tensor, out: Tensor, x: Change, chain: Chain, scratch: Scratch
) -> tuple[int, Change] | None:
    if z.dim() != 2 or chain.act is None:
        return None
    if x.dim == 1 and x.width == 1:
        change = x.delta()[..., 0].contiguous()
        if chain.tail is not None:
            tail = _tail_of(run, chain, m)
            added = scratch.take((x.K, *tail.out.shape), out.dtype)
            kernels.rank_one_through(
                tail.z, change, tail.columns, x.starts, chain.code, tail.before, tail.weight, added
            )
            return chain.tail, Change(tail.out, x.K, difference=added)
        columns = run.memo(("columns", chain.head), lambda: m.weight.detach().T.contiguous())
        stacked = scratch.take((x.K, *out.shape), out.dtype)
        kernels.rank_one(z, change, columns, x.starts, chain.code, stacked)
        return chain.last, Change(out, x.K, values=stacked)
    if x.is_dense and x.values is not None:
        if chain.tail is not None:
            tail = _tail_of(run, chain, m)
            stacked = scratch.take((x.K, *tail.z.shape), out.dtype)
            _product(x.values, tail.columns, tail.bias, stacked)
            added = scratch.take((x.K, *tail.out.shape), out.dtype)
            kernels.activate_through(stacked, chain.code, tail.before, tail.weight, added)
            return chain.tail, Change(tail.out, x.K, difference=added)
        stacked = scratch.take((x.K, *out.shape), out.dtype)
        _product(x.values, m.weight.T, m.bias, stacked)
        kernels.activate(stacked, chain.code, stacked)
        return chain.last, Change(out, x.K, values=stacked)
    return None


def _product(x: Tensor, columns: Tensor, bias: Tensor | None, out: Tensor) -> None:
    inputs, flat = x.reshape(-1, x.shape[-1]), out.view(-1, out.shape[-1])
    if bias is None:
        torch.mm(inputs, columns, out=flat)
    else:
        torch.addmm(bias, inputs, columns, out=flat)


class Tail(NamedTuple):
    """Data for a chain with a small linear layer behind it, the hidden units padded."""

    z: Tensor
    columns: Tensor
    bias: Tensor | None
    before: Tensor
    weight: Tensor
    out: Tensor


def _tail_of(run: Run, chain: Chain, m: nn.Linear) -> Tail:
    def make() -> Tail:
        assert chain.tail is not None
        behind = run.graph.nodes[chain.tail].module
        assert isinstance(behind, nn.Linear)
        return Tail(
            kernels.padded(run.values[chain.head]),
            kernels.padded(m.weight.detach().T),
            None if m.bias is None else kernels.padded(m.bias.detach()),
            kernels.padded(run.values[chain.last]),
            kernels.padded(behind.weight.detach()),
            run.values[chain.tail],
        )

    return run.memo(("tail", chain.head), make)


def _convolution(
    run: Run, m: nn.Conv2d, z: Tensor, out: Tensor, x: Change, chain: Chain, scratch: Scratch
) -> Change:
    K, N = x.K, z.shape[0]
    delta = padded(m, x.delta().flatten(0, 1))[:, 0].contiguous()
    weight = m.weight[:, x.starts[0]]
    filters = weight.reshape(weight.shape[0], -1).T.contiguous()
    base = run.memo(("channels last", chain.head), lambda: z.permute(0, 2, 3, 1).contiguous())
    stacked = scratch.take((K * N, *out.shape[1:]), out.dtype)
    kernels.correct_and_pool(delta, filters, base, _geometry(run, chain, m), chain.code, stacked)
    return Change(out, K, values=stacked.view(K, *out.shape))


def enter(
    run: Run, chain: Chain, local: str, moves: Moves, scratch: Scratch
) -> tuple[int, Change] | None:
    """The node at a chain's end and its change, when elements of the first layer move."""
    if not kernels.enabled():
        change = moved_unit(run, *ends, local, moves) if (ends := _foldable(chain)) else None
        return None if change is None else (chain.last, change)
    head = run.call(run.graph.nodes[chain.head])
    m = head.module
    assert isinstance(m, (nn.Linear, nn.Conv2d))
    out = run.values[chain.last]
    if not kernels.suits(head.args[0], head.out, out, m.weight):
        return None
    if isinstance(m, nn.Linear) and head.out.dim() == 2 and local in ("weight", "bias"):
        return chain.last, _units(head, out, chain, local, moves, scratch)
    if local != "weight" or not isinstance(m, nn.Conv2d) or not has_samples(m, head.out):
        return None
    if chain.place is not None and conv_batch_last.enough(head.out):
        return conv_batch_last.enter(run, chain.place, m, moves, scratch)
    x = run.memo(("padded", chain.head), lambda: padded(m, head.args[0]).contiguous())
    elements = moved_elements(m.weight.shape, moves.index)
    where = torch.tensor(elements).T.contiguous()
    N, (H, W) = out.shape[0], out.shape[2:]
    stacked = scratch.take((moves.K, N, H, W), out.dtype)
    kernels.move_and_pool(
        x, head.out.contiguous(), where, moves.steps, _geometry(run, chain, m), chain.code, stacked
    )
    change = slab(out, 1, elements[0], 1, stacked.unsqueeze(2))
    return chain.last, change.with_values(out, stacked.unsqueeze(2))


def _units(
    head: Call, out: Tensor, chain: Chain, local: str, moves: Moves, scratch: Scratch
) -> Change:
    """Change of one unit behind a linear layer and its activation, as weights or biases move."""
    x = head.args[0].contiguous()
    if local == "weight":
        units, features = np.divmod(moves.index, x.shape[1])
    else:  # a bias is the weight of a constant feature of one
        units, features = np.array(moves.index), np.full(moves.K, -1)
    added = scratch.take((moves.K, len(x)), out.dtype)
    kernels.move_units(x, head.out, out, units, features, moves.steps, chain.code, added)
    return slab(out, 1, units.tolist(), 1, added.unsqueeze(2))
