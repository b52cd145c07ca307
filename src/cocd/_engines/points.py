"""Losses at points that differ in all parameters, as random directions give them, many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._evaluate import Evaluations
from .._warn import warn
from ..errors import EngineWarning
from .batched import batched_losses
from .checks import disagreement, noise
from .tracing import given_names

if TYPE_CHECKING:
    from .closure import Closure


def at_once(closure: Closure, tensors: list[Tensor]) -> int:
    """How many points can be taken at a time; 0 where one after the other is as good."""
    objective = closure.objective
    objective._follow_model(given_names(objective.model, closure.inputs))
    known = all(id(tensor) in objective._names for tensor in tensors)
    # A convolution whose filters differ from point to point becomes one in groups, a slow one.
    slow = any(p.dim() > 2 for p in objective.model.parameters())
    if not objective._stackable or objective._engine == "sequential" or not known or slow:
        return 0
    return int(objective.memory_limit // max(bytes_of(tensors), bytes_of(closure.inputs) * 16, 1))


def losses_at(
    closure: Closure,
    evaluate: Evaluations,
    tensors: list[Tensor],
    stacks: list[Tensor],
    first: float,
) -> list[float] | None:
    """The losses with the `tensors` as they stand in each layer of their `stacks`.

    At the first of these points the closure itself gave `first`. If that is not what comes out, or
    nothing does, the answer is None, and points are taken one by one from now on.
    """
    objective = closure.objective
    names = [objective._names[id(tensor)] for tensor in tensors]
    evaluate.rewind()
    try:
        losses = batched_losses(
            objective.model,
            dict(zip(names, stacks, strict=True)),
            closure.inputs,
            lambda output: objective.loss(output, closure.target),
        )
        problem = _wrong(closure, evaluate, float(losses[0]), first, tensors[0].dtype)
    except Exception as error:  # whatever vmap does not expect
        problem = first_line(error)
    if not problem:
        objective.checks += 1
        evaluate.count += len(losses) - 1
        found: list[float] = losses.tolist()
        return found
    objective._stackable = False
    warn(
        "points that differ in all parameters cannot be evaluated at once and are evaluated one "
        f"by one from now on: {problem}",
        EngineWarning,
    )
    return None


def _wrong(
    closure: Closure, evaluate: Evaluations, found: float, first: float, dtype: torch.dtype
) -> str:
    """What is wrong with a loss, or nothing."""
    if not disagreement(torch.tensor(found), torch.tensor(first, dtype=dtype)):
        return ""
    count = evaluate.count
    allowed = 16 * noise(evaluate, evaluate(), closure.objective.model.parameters())
    closure.objective.checks += evaluate.count - count
    evaluate.count = count
    if abs(found - first) <= allowed:
        return ""
    return f"a loss of {found:.9g} where the closure gives {first:.9g}"


def bytes_of(structure: Any) -> int:
    """What the tensors in nested inputs take."""
    if isinstance(structure, Tensor):
        return structure.numel() * structure.element_size()
    values = structure.values() if isinstance(structure, dict) else structure
    return sum(map(bytes_of, values)) if isinstance(structure, (tuple, list, dict)) else 0


def first_line(error: Exception) -> str:
    """What an exception says, in short."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
