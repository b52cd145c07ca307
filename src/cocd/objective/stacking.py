"""A call for every probe, where there is no rule: under vmap, or one after the other."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from .change import Change, slab
from .registry import Changed, Moves

S = TypeVar("S")
T = TypeVar("T")


def moved(parameter: Tensor, moves: Moves) -> Tensor:
    """K copies of a parameter, each with one element moved."""
    stack = (
        parameter.detach()
        .expand(moves.K, *parameter.shape)
        .clone(memory_format=torch.contiguous_format)
    )
    flat = stack.view(moves.K, -1)
    k, index = torch.arange(moves.K), torch.tensor(moves.index)
    flat[k, index] += moves.steps
    return stack


def moved_part(parameter: Tensor, moves: Moves, dim: int = 0) -> Change:
    """The same, of each copy only the entry along `dim` that holds the element."""
    if parameter.dim() == 0:
        return Change(parameter, moves.K, values=moved(parameter, moves))
    where = np.unravel_index(moves.index, tuple(parameter.shape))
    shape = list(parameter.shape)
    shape[dim] = 1
    delta = parameter.new_zeros(moves.K, *shape)
    inside = [np.zeros_like(at) if d == dim else at for d, at in enumerate(where)]
    places = tuple(torch.from_numpy(np.ascontiguousarray(at)) for at in inside)
    delta[(torch.arange(moves.K), *places)] = moves.steps
    return slab(parameter, dim, where[dim].tolist(), 1, delta)


def is_change(value: object) -> bool:
    """For walks through structures of changes."""
    return isinstance(value, Change)


def stacks_of(change: Changed) -> dict[int, Tensor]:
    """The changed values of the tensors in a structure that have changed, by their place in it."""
    leaves = tree_flatten(change, is_leaf=is_change)[0]
    return {i: _whole(leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, Change)}


def _whole(change: Change) -> Tensor:
    """Laid as the pass itself has it: what comes next may ask for a view."""
    new = change.densify().new()
    return new.contiguous() if change.base.is_contiguous() else new


def replaced(base: object, values: dict[int, Tensor]) -> object:
    """A structure with other tensors in some places."""
    if isinstance(base, Tensor):
        return values.get(0, base)
    leaves, spec = tree_flatten(base)
    return tree_unflatten([values.get(i, leaf) for i, leaf in enumerate(leaves)], spec)


def changes_of(base: object, values: object) -> Changed:
    """Dense changes of every tensor in a structure; None for what is no tensor."""
    changes: Changed = tree_map(
        lambda b, v: Change(b, len(v), values=v) if isinstance(b, Tensor) else None, base, values
    )
    return changes


def over_probes(fn: Callable[[S], object], stacks: S, base: T, random: Tensor | None = None) -> T:
    """What `fn` gives for every probe, stacked, in the structure of what it gives without one.

    What is no tensor must be as in `base`. A call that draws random numbers is made anew for
    every probe, from the state of the generator that it had (`random`).
    """
    expected, spec = tree_flatten(base)

    def tensors(value: S) -> list[Tensor]:
        found = tree_flatten(fn(value))[0]
        if len(found) != len(expected) or any(
            not isinstance(old, Tensor) and new != old
            for old, new in zip(expected, found, strict=True)
        ):
            raise NotImplementedError("a probe changes something that is not a tensor")
        return [leaf for leaf in found if isinstance(leaf, Tensor)]

    results = iter(_at_once(tensors, stacks) if random is None else _each(tensors, stacks, random))
    leaves = [next(results) if isinstance(e, Tensor) else e for e in expected]
    found: T = tree_unflatten(leaves, spec)
    return found


def _at_once(fn: Callable[[S], list[Tensor]], stacks: S) -> list[Tensor]:
    with quiet():
        try:
            return vmap(fn, randomness="error")(stacks)
        except Exception:  # no batching rule, or values that Python looks at
            return _each(fn, stacks)


def _each(fn: Callable[[S], list[Tensor]], stacks: S, random: Tensor | None = None) -> list[Tensor]:
    leaves, spec = tree_flatten(stacks)
    results = []
    for k in range(len(leaves[0])):
        if random is not None:
            torch.set_rng_state(random)
        results.append(fn(tree_unflatten([leaf[k] for leaf in leaves], spec)))
    return [torch.stack(parts) for parts in zip(*results, strict=True)]


@contextmanager
def quiet() -> Iterator[None]:
    """Without vmap's advice to have its missing batching rules written."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*performance drop.*")
        warnings.filterwarnings("ignore", message=".*batching rule.*")
        yield


def tensors_in(structure: object) -> list[Tensor]:
    """The tensors of nested inputs."""
    return [leaf for leaf in tree_flatten(structure)[0] if isinstance(leaf, Tensor)]


def bytes_of(structure: object) -> int:
    """What the tensors of nested inputs take."""
    return sum(t.numel() * t.element_size() for t in tensors_in(structure))
