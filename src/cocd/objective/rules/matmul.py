"""Products of two activations, or of an activation and a bare parameter."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from string import ascii_letters

import torch
from torch import Tensor

from ..change import Change, both
from ..registry import Call, Changes, Key, rules


@rules.flow(torch.matmul, operator.matmul, "matmul", torch.bmm, "bmm", torch.mm, "mm")
def product(call: Call, changes: Changes) -> Change | None:
    """(a + da)(b + db) - a b = da b + (a + da) db."""
    if len(call.args) != 2 or call.kwargs or not set(changes) <= {0, 1}:
        return None
    a, b = call.args
    if a.dim() < 2 or b.dim() < 2:
        return None
    found = _left(call, changes[0], b) if 0 in changes else None
    if 1 in changes:
        found = both(found, _right(call, changes.get(0, a), changes[1]))
    return found


@rules.flow(torch.addmm, "addmm")
def sum_and_product(call: Call, changes: Changes) -> Change | None:
    """A product plus a row."""
    if len(call.args) != 3 or call.kwargs or not set(changes) <= {0, 1, 2}:
        return None
    rest: dict[Key, Change] = {i - 1: changes[i] for i in (1, 2) if i in changes}
    inner = Call(torch.mm, None, call.args[1:], {}, call.out)
    found = product(inner, rest) if rest else None
    if 0 not in changes:
        return found
    row = changes[0]
    if row.base.dim() != 1:
        return None
    delta = row.delta().unsqueeze(1).expand(-1, len(call.out), -1)
    own = replace(row.with_delta(call.out, delta), dim=_columns(row, call.out))
    return both(found, own)


def _left(call: Call, x: Change, b: Tensor) -> Change:
    """A changed left factor: a low-rank product for a slab of the summed dimension."""
    out, rank = call.out, x.base.dim()
    if x.dim == rank - 1 and b.dim() == 2:
        if x.is_single:
            rows = b[x.starts[0] : x.starts[0] + x.width]
            delta = x.delta() @ rows
        else:
            rows = b[x.index(b.device)]  # (K, width, out)
            flat = x.delta().reshape(x.K, -1, x.width)
            delta = torch.bmm(flat, rows).view(x.K, *x.base.shape[:-1], -1)
        return Change(out, x.K, difference=delta)
    kept = x.dim is not None and x.dim < rank - 1 and rank == out.dim()
    if kept and (b.dim() == 2 or x.dim == rank - 2):
        return x.with_delta(out, times(x.delta(), b))
    if kept and b.dim() == rank and b.shape[x.dim] == x.base.shape[x.dim]:  # type: ignore[index]
        return x.with_delta(out, torch.matmul(x.delta(), x.restrict(b)))
    return _spread(x.densify(), out, rank, lambda d: times(d, b))


def _right(call: Call, a: Tensor | Change, x: Change) -> Change:
    """A changed right factor: a slab of b's columns gives a slab of the output's columns."""
    out, rank = call.out, x.base.dim()
    if isinstance(a, Change):
        if x.dim is not None and x.dim != rank - 1:
            x = x.densify()
        new, delta = a.densify().new(), x.delta()
        missing = new.dim() - delta.dim()
        delta = delta.view(delta.shape[0], *[1] * max(missing, 0), *delta.shape[1:])
        new = new.view(new.shape[0], *[1] * max(-missing, 0), *new.shape[1:])
        return replace(x.with_delta(out, torch.matmul(new, delta)), dim=_columns(x, out))
    if x.dim == rank - 2 and rank == 2:  # of the summed dimension: rank `width`
        columns = a[..., x.index(a.device)].movedim(-2, 0)  # (K or 1, ..., width)
        delta = x.delta()
        if columns.shape[0] == 1:
            return Change(out, x.K, difference=times(delta, columns[0], left=True))
        flat = torch.bmm(columns.flatten(1, -2), delta)
        return Change(out, x.K, difference=flat.view(x.K, *a.shape[:-1], -1))
    if x.dim is not None and x.dim != rank - 1:
        x = x.densify()
    changed = _spread(replace(x, dim=None), out, rank, lambda d: times(d, a, left=True))
    return replace(changed, dim=_columns(x, out), starts=x.starts, width=x.width)


def _columns(x: Change, out: Tensor) -> int | None:
    return None if x.is_dense else out.dim() - 1


def _spread(x: Change, out: Tensor, rank: int, apply: Callable[[Tensor], Tensor]) -> Change:
    """Apply to stacked differences that may have fewer dimensions than the output."""
    delta = x.delta()
    missing = out.dim() - rank
    delta = delta.view(delta.shape[0], *[1] * missing, *delta.shape[1:]) if missing > 0 else delta
    return x.with_delta(out, apply(delta))


def times(stack: Tensor, other: Tensor, left: bool = False) -> Tensor:
    """``stack @ other``, or ``other @ stack``, for K stacked factors and one shared factor.

    If the shared factor has a batch dimension, the K factors are placed side by side, because torch
    would copy the shared factor K times.
    """
    K, rank = stack.shape[0], stack.dim() - 1
    if left:
        return times(stack.mT, other.mT).mT
    if other.dim() == 2 or rank > other.dim() or stack.shape[1:-2] != other.shape[:-2]:
        return torch.matmul(stack, other)
    wide = stack.movedim(0, -3).flatten(-3, -2)  # (..., K * rows, summed)
    found: Tensor = torch.matmul(wide, other).unflatten(-2, (K, -1)).movedim(-3, 0)
    return found


@rules.flow(torch.einsum)
def einsum(call: Call, changes: Changes) -> Change | None:
    """Add one letter for the probes; with one changed operand, propagate only its difference."""
    equation = call.args[0]
    if not isinstance(equation, str) or "..." in equation or "->" not in equation:
        return None
    nested = len(call.args) == 2 and isinstance(call.args[1], (list, tuple))
    operands = list(call.args[1] if nested else call.args[1:])
    changed = {key[1] if isinstance(key, tuple) else int(key) - 1: x for key, x in changes.items()}
    letter = next((c for c in ascii_letters if c not in equation), None)
    if letter is None:
        return None
    inputs, output = equation.replace(" ", "").split("->")
    terms = [(letter if i in changed else "") + term for i, term in enumerate(inputs.split(","))]
    linear = len(changed) == 1
    for i, x in changed.items():
        operands[i] = x.densify().delta() if linear else x.densify().new()
    found = torch.einsum(f"{','.join(terms)}->{letter}{output}", *operands)
    K = next(iter(changed.values())).K
    if linear:
        return Change(call.out, K, difference=found)
    return Change(call.out, K, values=found)
