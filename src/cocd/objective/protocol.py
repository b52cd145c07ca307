"""The protocol between an optimizer and a loss that is bound to a batch.

An ordinary closure becomes one of these through `closure.bound`; `cocd.trace` and
`cocd.distributed.Shard` make others. Inherit from `BoundLoss` to write your own, or from
`ForwardedLoss` to wrap another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, SupportsFloat, TypeVar

from torch import Tensor, nn

if TYPE_CHECKING:
    from ..parts.evaluation import Evaluations

LossValue = Tensor | SupportsFloat  # what a closure returns: a scalar tensor or a number
LossT = TypeVar("LossT", bound=LossValue)  # what one closure returns, and `step` with it
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar  # typing's has a default from 3.13 on

    ValueT = DefaultTypeVar("ValueT", bound=LossValue, covariant=True, default=LossValue)
else:
    ValueT = TypeVar("ValueT")  # what one loss function returns, and its closures with it
Closure = Callable[[], LossValue]
LossFunction = Callable[..., LossValue]  # of an output and a target
Difference = Literal["central", "forward", "backward"]
DIFFERENCES: tuple[Difference, ...] = ("central", "forward", "backward")


class Differences(NamedTuple):
    """Differences of the loss for some coordinates, float64 on the CPU; NaN where one failed.

    `first` is f(x + h) - f(x - h), f(x + h) - f(x) or f(x) - f(x - h); `second` is
    f(x + h) - 2 f(x) + f(x - h), with central differences only.
    """

    first: Tensor
    second: Tensor | None


class Request(NamedTuple):
    """Elements (logical, row-major) of a parameter, to be moved by `eps`."""

    tensor: Tensor
    elements: list[int]
    eps: float


def evaluations_per_coordinate(difference: Difference) -> int:
    """The cost of one coordinate; the unperturbed loss is shared and counted once per step."""
    return 2 if difference == "central" else 1


class BoundLoss(Protocol):
    """A loss on one batch, which can evaluate many losses at once.

    Evaluations without a call of the closure are counted with ``evaluate.charge``.
    """

    @abstractmethod
    def __call__(self) -> LossValue:
        """The loss at the current parameters."""

    @abstractmethod
    def modules(self) -> Iterable[nn.Module] | None:
        """The modules whose buffers an evaluation may change; None if unknown."""

    @abstractmethod
    def prepare(self, rewind: Callable[[], None]) -> LossValue:
        """The loss at the unperturbed point; may keep what later probes need.

        `rewind` restores random numbers and buffers, for losses that evaluate more than once.
        """

    @abstractmethod
    def quickly(self) -> LossValue:
        """The loss at the current parameters, moved since `prepare`, computed in any way."""

    def moved(self, tensors: list[Tensor], rewind: Callable[[], None]) -> LossValue:
        """The loss at a point where only `tensors` have moved since the step's first evaluation.

        They moved in place, or where they are read. Only what depends on them must be recomputed.
        """
        return self()

    @abstractmethod
    def differences(
        self,
        evaluate: Evaluations,
        loss: float,
        tensor: Tensor,
        index: list[int],
        eps: float,
        difference: Difference,
    ) -> Differences:
        """Differences for the elements `index` of one parameter.

        `evaluate` has been called once, at the unperturbed point, and gave `loss`.
        """

    def block_differences(
        self, evaluate: Evaluations, loss: float, requests: list[Request], difference: Difference
    ) -> list[Differences]:
        """The same for all parameters of a step."""
        return [self.differences(evaluate, loss, *request, difference) for request in requests]

    @abstractmethod
    def points_at_once(self, tensors: list[Tensor]) -> int:
        """How many points that differ in all `tensors` to evaluate at a time; 0 for one."""

    @abstractmethod
    def losses_at(
        self,
        evaluate: Evaluations,
        tensors: list[Tensor],
        stacks: list[Tensor],
        first: Callable[[], float],
    ) -> tuple[float, list[float] | None]:
        """The losses with the `tensors` as they stand in each layer of their `stacks`.

        `first` evaluates the first of these points by the closure. Returns that loss, and all the
        losses, or None if they cannot be evaluated at once.
        """

    def directional_losses(
        self,
        evaluate: Evaluations,
        count: int,
        evaluate_some: Callable[[Container[int]], list[float]],
    ) -> list[float]:
        """A step's `count` losses along directions.

        `evaluate_some` evaluates those with the given numbers, and returns NaN for the others.
        """
        return evaluate_some(range(count))

    def is_shared(self) -> bool:
        """Whether other processes share the evaluations."""
        return False

    def standing(self) -> AbstractContextManager[None]:
        """While entered, the parameters hold what the model reads."""
        return nullcontext()

    @abstractmethod
    def release(self) -> None:
        """Release what `prepare` kept."""


class ForwardedLoss(BoundLoss):
    """Forwards everything to another loss; wrappers override what they change."""

    def __init__(self, inner: BoundLoss) -> None:
        self.inner = inner

    def __call__(self) -> LossValue:
        return self.inner()

    def modules(self) -> Iterable[nn.Module] | None:
        return self.inner.modules()

    def prepare(self, rewind: Callable[[], None]) -> LossValue:
        return self.inner.prepare(rewind)

    def quickly(self) -> LossValue:
        return self.inner.quickly()

    def moved(self, tensors: list[Tensor], rewind: Callable[[], None]) -> LossValue:
        return self.inner.moved(tensors, rewind)

    def differences(
        self,
        evaluate: Evaluations,
        loss: float,
        tensor: Tensor,
        index: list[int],
        eps: float,
        difference: Difference,
    ) -> Differences:
        return self.inner.differences(evaluate, loss, tensor, index, eps, difference)

    def block_differences(
        self, evaluate: Evaluations, loss: float, requests: list[Request], difference: Difference
    ) -> list[Differences]:
        return self.inner.block_differences(evaluate, loss, requests, difference)

    def points_at_once(self, tensors: list[Tensor]) -> int:
        return self.inner.points_at_once(tensors)

    def losses_at(
        self,
        evaluate: Evaluations,
        tensors: list[Tensor],
        stacks: list[Tensor],
        first: Callable[[], float],
    ) -> tuple[float, list[float] | None]:
        return self.inner.losses_at(evaluate, tensors, stacks, first)

    def directional_losses(
        self,
        evaluate: Evaluations,
        count: int,
        evaluate_some: Callable[[Container[int]], list[float]],
    ) -> list[float]:
        return self.inner.directional_losses(evaluate, count, evaluate_some)

    def standing(self) -> AbstractContextManager[None]:
        return self.inner.standing()

    def is_shared(self) -> bool:
        return self.inner.is_shared()

    def release(self) -> None:
        self.inner.release()
