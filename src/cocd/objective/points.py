"""Losses at points that differ in all parameters (random directions), many at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isfinite, nan, sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import EngineWarning
from ..parts.evaluation import Evaluations
from ..parts.warn import warn
from .batched import batched_losses
from .checks import RECHECK, disagreement, first_line, noise
from .graph.suffix import Suffix, pays
from .protocol import LossValue
from .stacking import bytes_of, tensors_in

if TYPE_CHECKING:
    from .traced import Objective
    from .traced_loss import TracedLoss

_MOST = 1024
_RADIUS = 0.1  # at least, root mean square: a small one would leave little but rounding to compare


def at_once(closure: TracedLoss, tensors: list[Tensor]) -> int:
    """How many points to take at a time; 0 if one after the other is as fast."""
    objective = closure.objective
    objective._follow_model()
    if not objective._stackable or objective._engine == "sequential":
        return 0
    parameters: list[Tensor] = list(objective.model.parameters())
    known = all(id(tensor) in objective._names for tensor in tensors)
    wide = all(p.dtype in (torch.float32, torch.float64) for p in parameters)
    # A convolution whose filters differ from point to point becomes one in groups, a slow one.
    if not known or not wide or any(p.dim() > 2 for p in parameters):
        return 0
    largest = max(bytes_of(tensors), bytes_of(closure.inputs), _hidden(parameters, closure.inputs))
    if objective.model.training:  # every point gets its own buffers
        largest += bytes_of(list(objective.model.buffers()))
    return int(min(_MOST, objective.memory_limit // max(largest, 1)))


def _hidden(parameters: list[Tensor], inputs: object) -> int:
    """Bytes of the widest activation: the rows of the inputs, as wide as a layer's weight."""
    rows = sum(t.numel() // max(t.shape[-1], 1) if t.dim() else 1 for t in tensors_in(inputs))
    return rows * max((len(p) * p.element_size() for p in parameters if p.dim()), default=1)


def losses_at(
    closure: TracedLoss,
    evaluate: Evaluations,
    tensors: list[Tensor],
    stacks: list[Tensor],
    first: Callable[[], float],
) -> tuple[float, list[float] | None]:
    """The losses with the `tensors` as they stand in each layer of their `stacks`.

    `first` asks the closure for the loss at the first of these points. It runs last, so that a
    forward with side effects leaves its usual state; its loss comes first in the answer. If the
    others fail or disagree with the closure, they are None, and points are evaluated one by one
    from now on.
    """
    objective = closure.objective
    due = objective._stacks % RECHECK == 0
    far = _far(tensors, stacks) if due else []
    found, others, problem = [], [], ""
    try:
        found = _stacked(closure, evaluate, tensors, stacks)
        others = _stacked(closure, evaluate, tensors, far) if due else []
    except Warning:  # the user's filters made an error of it
        raise
    except Exception as error:  # anything that vmap does not support
        problem = first_line(error)
    evaluate.rewind()
    loss = first()
    if not problem:
        with evaluate.uncounted(objective.count_checks):
            expected = [_closure_at(evaluate, tensors, far, k) for k in range(len(others))]
            span = abs(expected[0] - expected[1]) if due else 0.0
            pairs = zip([found[0], *others], [loss, *expected], strict=True)
            problem = _problem(closure, evaluate, list(pairs), span)
    if not problem:
        objective._stacks += 1
        objective.checks += 1
        evaluate.charge(len(found) - 1)
        return loss, found
    objective._stackable = False
    warn(
        "points that differ in all parameters cannot be evaluated at once; they are evaluated "
        f"one by one from now on: {problem}",
        EngineWarning,
    )
    return loss, None


def _stacked(
    closure: TracedLoss, evaluate: Evaluations, tensors: list[Tensor], stacks: list[Tensor]
) -> list[float]:
    objective = closure.objective
    evaluate.rewind()
    with evaluate.keeping():
        losses: list[float] = batched_losses(
            objective.model,
            {objective._names[id(t)]: stack for t, stack in zip(tensors, stacks, strict=True)},
            closure.inputs,
            lambda output: objective.loss(output, closure.target),
        ).tolist()
    return losses


# --- one after the other, from the first moved layer on ----------------------------------------


def moved(closure: TracedLoss, tensors: list[Tensor], rewind: Callable[[], None]) -> LossValue:
    """The loss where nothing but `tensors` has moved since the step's first evaluation.

    The first evaluation is recorded; later ones compute only what depends on the tensors. Now and
    then the closure checks them.
    """
    objective = closure.objective
    names = [objective._names[id(t)] for t in tensors if id(t) in objective._names]
    if len(names) < len(tensors) or objective._engine in ("batched", "sequential"):
        return closure()
    if not objective._suffixes or not _pays(objective, tuple(names)):
        return closure()
    if closure._run is None:
        return closure.prepare(rewind)
    run, ours = closure._run, objective._suffix_timing
    suffix = run.memo(("suffix", *names), partial(Suffix, run, names))
    if not suffix.is_possible:
        return closure()
    with objective.accelerating(), ours.probing(1, tensors[0]):
        output = suffix.output()
        loss: LossValue = objective.loss(output[0], closure.target) if output else nan
    if not output:
        return closure()
    if objective._since_check != 1 or suffix.was_checked:
        return loss
    suffix.was_checked = True
    rewind()
    with ours.evaluating(1, tensors[0]):
        actual = closure()
    objective.checks += 1
    problem = disagreement(loss, actual)
    if ours.is_due and objective._engine is None:
        ours.decided = True
        objective._suffixes = ours.gain is None or ours.gain >= 1
    if problem:
        objective._suffixes = False
        warn(
            "random directions cannot be evaluated from the first moved layer on; whole "
            f"passes are made from now on: {problem}",
            EngineWarning,
        )
    return actual


def _pays(objective: Objective, names: tuple[str, ...]) -> bool:
    """If unknown, one pass decides."""
    if names not in objective._suffix_pays:
        if objective.graph is None:
            return True
        objective._suffix_pays[names] = pays(objective.graph, names)
    return objective._suffix_pays[names]


# --- never wrong in silence ------------------------------------------------------------------


def _far(tensors: list[Tensor], stacks: list[Tensor]) -> list[Tensor]:
    """Two points on both sides of x, in the direction of the first one but far enough."""
    moves = [stack[0] - tensor for tensor, stack in zip(tensors, stacks, strict=True)]
    squares = sum(float(move.double().square().sum()) for move in moves)
    length = sqrt(squares / max(sum(move.numel() for move in moves), 1))
    scale = max(1.0, _RADIUS / length) if length else 1.0
    signs = (scale, -scale)
    return [
        torch.stack([torch.add(tensor, move, alpha=s) for s in signs])
        for tensor, move in zip(tensors, moves, strict=True)
    ]


def _closure_at(
    evaluate: Evaluations, tensors: list[Tensor], stacks: list[Tensor], k: int
) -> float:
    saved = [tensor.detach().clone() for tensor in tensors]
    try:
        for tensor, stack in zip(tensors, stacks, strict=True):
            tensor.copy_(stack[k])
        return evaluate()
    finally:
        for tensor, old in zip(tensors, saved, strict=True):
            tensor.copy_(old)


def _problem(
    closure: TracedLoss, evaluate: Evaluations, pairs: list[tuple[float, float]], span: float
) -> str:
    """The disagreement of these losses with the closure's, or nothing."""
    like = evaluate.first
    dtype = like.dtype if isinstance(like, Tensor) and like.is_floating_point() else torch.float64
    unit = max(torch.finfo(dtype).eps, 1e-11)  # float64 can spare some
    for found, expected in pairs:
        if not isfinite(expected):
            continue  # a run that explodes: what overflows first says nothing
        allowed = 64 * unit * max(abs(expected), abs(found)) + 1e-3 * span
        if isfinite(found) and abs(found - expected) <= allowed:
            continue
        rounding = 16 * noise(evaluate, evaluate(), closure.objective.model.parameters())
        if not isfinite(found) or abs(found - expected) > rounding:
            return f"a loss of {found:.9g} where the closure gives {expected:.9g}"
    return ""
