"""Never wrong in silence: an engine's differences are held against the closure's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..parts.evaluation import Evaluations
from .checks import magnitude, noise
from .closure import sequential
from .graph.graph import Run
from .protocol import ValueT

if TYPE_CHECKING:
    from .traced import Objective, Record

_CHECKED = 3  # coordinates of a tensor that are also evaluated one by one, the first time
_RADIUS = 0.1  # at least: a smaller one would leave little but rounding to compare


class Truth(NamedTuple):
    """Differences by the closure itself."""

    elements: list[int]
    radius: float
    expected: Tensor
    bend: Tensor  # of both sides above twice the base point


def truth_of(
    objective: Objective[ValueT],
    evaluate: Evaluations,
    loss: float,
    tensor: Tensor,
    record: Record,
    index: list[int],
    eps: float,
) -> Truth | None:
    """A few coordinates, evaluated by the closure itself: one, if it is not the first time.

    None if the closure cannot be evaluated there, which is news the first time alone.
    """
    chosen = sorted({index[0], index[len(index) // 2], index[-1]})[:_CHECKED]
    if record.checked:
        chosen = [index[(objective.checks * 2654435761 >> 8) % len(index)]]
    radius = max(eps, _RADIUS)
    try:
        with (
            evaluate.uncounted(objective.count_checks),
            record.timing.evaluating(2 * len(chosen), tensor),
        ):
            expected, bend = sequential(evaluate, loss, tensor, chosen, radius, "central")
    except Exception:
        if not record.checked:
            raise
        return None
    assert bend is not None
    return Truth(chosen, radius, expected, bend)


def problem_with(
    objective: Objective[ValueT],
    run: Run | None,
    evaluate: Evaluations,
    loss: float,
    name: str,
    tensor: Tensor,
    truth: Truth,
    found: Tensor,
) -> str:
    """What is wrong with the differences that an engine has found, or nothing."""
    index, _, expected, bend = truth
    if objective._records[name].checked and not bool(expected.isfinite().all()):
        return ""  # a run that explodes: what overflows first says nothing
    if not torch.equal(expected.isfinite(), found.isfinite()):
        return "gives finite losses where the closure does not, or the other way round"
    coarsest = max(torch.finfo(dtype).eps for dtype in (tensor.dtype, *_floats(run, evaluate)))
    unit = max(coarsest, 1e-11)  # float64 can spare some
    summed = getattr(objective._loss, "reduction", "mean") == "sum"
    outputs = 0.0 if run is None else magnitude(run.output, summed)
    # Near a minimum the losses of both sides are large beside that of the base point.
    allowed = unit * (64 * (abs(loss) + bend.abs()) + 8 * outputs + 2e3 * expected.abs())
    excess = torch.where(expected.isfinite(), (expected - found).abs() - allowed, 0)
    if bool((excess > 0).any()):
        with evaluate.uncounted(objective.count_checks):
            rounding = noise(evaluate, loss, objective.model.parameters())
        if excess.max() > 16 * rounding:
            worst = int(excess.argmax())
            return (
                f"disagrees with the closure on element {index[worst]}: a difference of "
                f"{found[worst]:.9g} where the closure gives {expected[worst]:.9g}"
            )
    return ""


def _floats(run: Run | None, evaluate: Evaluations) -> set[torch.dtype]:
    """What the loss and the activations are made in."""
    found = set() if run is None else set(run.memo("floats", run.floats))
    if isinstance(evaluate.first, Tensor) and evaluate.first.is_floating_point():
        found.add(evaluate.first.dtype)
    return found
