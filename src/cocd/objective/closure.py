"""An ordinary closure as a `BoundLoss`: each probe is one call, the weight perturbed in place."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from operator import eq
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import RadiusWarning
from ..parts.layout import bits, elements, gather
from ..parts.warn import warn
from .protocol import BoundLoss, Closure, Difference, Differences, LossValue

if TYPE_CHECKING:
    from ..parts.evaluation import Evaluations


class ClosureLoss(BoundLoss):
    """A function that returns the loss."""

    def __init__(self, closure: Closure) -> None:
        self._closure = closure

    def __call__(self) -> LossValue:
        return self._closure()

    def modules(self) -> Iterable[nn.Module] | None:
        """The module if it is itself the closure; otherwise unknown."""
        return (self._closure,) if isinstance(self._closure, nn.Module) else None

    def prepare(self, rewind: Callable[[], None]) -> LossValue:
        return self._closure()

    def quickly(self) -> LossValue:
        return self._closure()

    def differences(
        self,
        evaluate: Evaluations,
        loss: float,
        tensor: Tensor,
        index: list[int],
        eps: float,
        difference: Difference,
    ) -> Differences:
        return sequential(evaluate, loss, tensor, index, eps, difference)

    def points_at_once(self, tensors: list[Tensor]) -> int:
        return 0

    def losses_at(
        self,
        evaluate: Evaluations,
        tensors: list[Tensor],
        stacks: list[Tensor],
        first: Callable[[], float],
    ) -> tuple[float, list[float] | None]:
        return first(), None

    def release(self) -> None:
        pass


def bound(closure: Closure) -> BoundLoss:
    """The closure as a `BoundLoss`, if it is not one already.

    Decided by inheritance, not by attribute names: a module's attributes are its layers.
    """
    known = BoundLoss in type(closure).__mro__
    return closure if known else ClosureLoss(closure)  # type: ignore[return-value]


def sequential(
    evaluate: Evaluations,
    loss: float,
    tensor: Tensor,
    index: list[int],
    eps: float,
    difference: Difference,
) -> Differences:
    """One evaluation per probe, the weight perturbed in place and written back bit for bit."""
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


def check_radius(
    saved: Tensor, plus: Tensor, minus: Tensor, eps: float, difference: Difference
) -> None:
    """Warn if adding the radius changes nothing."""
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
