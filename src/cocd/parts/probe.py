"""How the losses at x ± eps e_i are evaluated.

An objective that knows how to evaluate many probes at once offers ``differences`` (see
`Prober`), one that wants all of a step's together ``block``; for any other closure each probe is
one call, with the weight perturbed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from math import isfinite
from operator import eq
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..errors import NonFiniteLoss, RadiusWarning
from .evaluation import Evaluations, offered
from .layout import Run, bits, by_tensor, elements, gather
from .warn import warn

DIFFERENCES = ("central", "forward", "backward")


class Differences(NamedTuple):
    """Differences of the loss for some coordinates, float64 on the CPU; NaN where one failed.

    `first` is f(x + h) - f(x - h), f(x + h) - f(x) or f(x) - f(x - h); `second` is
    f(x + h) - 2 f(x) + f(x - h) and comes with central differences alone.
    """

    first: Tensor
    second: Tensor | None


class Prober(Protocol):
    """An objective that evaluates many probes at once."""

    def differences(
        self,
        evaluate: Evaluations,
        loss: float,
        tensor: Tensor,
        index: list[int],
        eps: float,
        difference: str,
    ) -> Differences:
        """Differences for the elements `index` (logical, row-major) of the parameter `tensor`.

        `evaluate` has been called once, at the unperturbed point, and gave `loss`.
        """


class Request(NamedTuple):
    """Elements (logical, row-major) of a parameter, to be moved by `eps`."""

    tensor: Tensor
    elements: list[int]
    eps: float


def evaluations_per_coordinate(difference: str) -> int:
    """The cost of one coordinate; the unperturbed loss is shared and counted once a step."""
    return 2 if difference == "central" else 1


def probe(
    evaluate: Evaluations,
    tensors: list[Tensor],
    block: Iterable[Run],
    eps: Callable[[Tensor], float],
    difference: str,
) -> tuple[float, Differences]:
    """f(x_t), and the quotients of differences (eq. 3) for a block of coordinates at x_t.

    What is evaluated is decided here; nothing is changed. A tensor that no longer requires grad
    is left alone: its coordinates cost nothing and come out as NaN.
    """
    loss = evaluate(prepare=True)
    if not isfinite(loss):
        raise NonFiniteLoss(f"the loss at x_t is {loss}; nothing has been changed")
    requests = [Request(tensors[t], index, eps(tensors[t])) for t, index in by_tensor(block)]
    moving = [request for request in requests if request.tensor.requires_grad]
    found = iter(differences(evaluate.closure, evaluate, loss, moving, difference))
    parts: list[Differences] = []
    for tensor, index, h in requests:
        if not tensor.requires_grad:
            nothing = torch.full((len(index),), torch.nan, dtype=torch.float64, device="cpu")
            parts.append(Differences(nothing, nothing if difference == "central" else None))
        else:
            first, second = next(found)
            width = 2 * h if difference == "central" else h
            parts.append(Differences(first / width, None if second is None else second / h**2))
    return loss, parts[0] if len(parts) == 1 else _joined(parts)


def differences(
    objective: Any, evaluate: Evaluations, loss: float, requests: list[Request], difference: str
) -> list[Differences]:
    """An answer for each request, by whatever the objective offers."""
    if not requests:
        return []
    if (block := offered(objective, "block")) is not None:
        answers: list[Differences] = block(evaluate, loss, requests, difference)
        return answers
    of = offered(objective, "differences") or sequential
    return [of(evaluate, loss, *request, difference) for request in requests]


def _joined(parts: list[Differences]) -> Differences:
    quotients = torch.cat([part.first for part in parts])
    curvatures = [part.second for part in parts if part.second is not None]
    return Differences(quotients, torch.cat(curvatures) if curvatures else None)


def sequential(
    evaluate: Evaluations,
    loss: float,
    tensor: Tensor,
    index: list[int],
    eps: float,
    difference: str,
) -> Differences:
    """One evaluation a probe, the weight perturbed in place and written back bit for bit."""
    saved = gather(tensor, index)
    plus, minus = saved + eps, saved - eps
    old_bits, plus_bits, minus_bits = map(bits, (saved, plus, minus))
    if difference == "backward" or any(map(eq, old_bits, plus_bits)):
        check_radius(saved, plus, minus, eps, difference)
    place = elements(tensor)
    rows = list(zip(index, old_bits, plus_bits, minus_bits, strict=True))
    above, below = difference != "backward", difference != "forward"

    def points() -> Generator[None, None, None]:
        for i, old, plus, minus in rows:
            try:
                if above:
                    place[i] = plus
                    yield
                if below:
                    place[i] = minus
                    yield
            finally:
                place[i] = old

    values = np.array(evaluate.losses(points)).reshape(len(index), above + below)
    up, down = values[:, 0] if above else loss, values[:, -1] if below else loss
    with np.errstate(over="ignore", invalid="ignore"):  # the caller looks at what is not finite
        first = torch.from_numpy(up - down)
        if difference != "central":
            return Differences(first, None)
        return Differences(first, torch.from_numpy((up - loss) + (down - loss)))


def is_lost(tensor: Tensor, index: list[int], radius: float) -> bool:
    """Whether rounding takes more than a tenth of a radius at some of the weights.

    >>> weights = torch.tensor([1.0, 1e6])
    >>> is_lost(weights, [0], 0.02), is_lost(weights, [0, 1], 0.02)
    (False, True)
    """
    largest = float(gather(tensor, index).abs().amax())
    return largest * torch.finfo(tensor.dtype).eps > 0.1 * radius


def check_radius(saved: Tensor, plus: Tensor, minus: Tensor, eps: float, difference: str) -> None:
    if difference != "backward" and not bool((plus == saved).any()):
        return  # as nearly always
    above, below = plus == saved, minus == saved
    nowhere = {"central": above & below, "forward": above, "backward": below}[difference]
    lost = int(nowhere.sum())
    if lost:
        warn(
            f"eps={eps:g} is lost in rounding at {lost} of {saved.numel()} weights of dtype "
            f"{saved.dtype}, whose estimates are therefore zero; use a larger eps or a wider dtype",
            RadiusWarning,
        )
