"""Express a loss in coefficients of the parameters with respect to orthonormal bases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from ..basis import Basis
from ..objective.closure import sequential
from ..objective.protocol import (
    BoundLoss,
    Difference,
    Differences,
    ForwardedLoss,
    LossValue,
    Request,
)
from .restore import put

if TYPE_CHECKING:
    from .evaluation import Evaluations


class Coefficients(ForwardedLoss):
    """While entered, the parameters hold the coefficients z of their values x, tensor by tensor.

    During an evaluation the parameters are x_t + Q (z - z_t). So at z_t the loss sees x_t bit for
    bit, and rounding errors of z_t do not accumulate from step to step.
    """

    def __init__(self, inner: BoundLoss, tensors: Sequence[Tensor], bases: Sequence[Basis]) -> None:
        if inner.is_shared():
            raise ValueError(
                "basis cannot be combined with cocd.distributed.Shard, whose ranks probe weights; "
                "use one process or leave basis out"
            )
        super().__init__(inner)
        # Writes through `data` do not raise versions, by which writing forwards are detected.
        self._tensors, self._bases = [tensor.data for tensor in tensors], bases
        self._standing = False
        self._probed: tuple[Tensor, Callable[[], None]] | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Hold coefficients; on exit, move the parameters to the values of the coefficients."""
        self._x = [tensor.clone() for tensor in self._tensors]
        pairs = list(zip(self._tensors, self._bases, strict=True))
        put(self._tensors, [b.coefficients(_flat(t)).view(t.shape) for t, b in pairs])
        self._z = [tensor.clone() for tensor in self._tensors]
        left = self._x
        try:
            yield
            left = self._values()
        finally:
            put(self._tensors, left)

    def _values(self) -> list[Tensor]:
        """The parameters that belong to the current coefficients."""
        found = []
        everything = zip(self._tensors, self._bases, self._x, self._z, strict=True)
        for tensor, basis, x, z in everything:
            change = _flat(tensor) - _flat(z)
            if change.any():
                x = (_flat(x) + basis.combine(change)).view(x.shape).to(x)
            found.append(x)
        return found

    @contextmanager
    def standing(self) -> Iterator[None]:
        if self._standing:
            yield
            return
        z = [tensor.clone() for tensor in self._tensors]
        put(self._tensors, self._values())
        self._standing = True
        try:
            yield
        finally:
            self._standing = False
            put(self._tensors, z)

    def __call__(self) -> LossValue:
        with self.standing():
            if self._probed is None:
                return self.inner()
            tensor, rewind = self._probed
            return self.inner.moved([tensor], rewind)

    def prepare(self, rewind: Callable[[], None]) -> LossValue:
        with self.standing():
            return self.inner.prepare(rewind)

    def quickly(self) -> LossValue:
        with self.standing():
            return self.inner.quickly()

    def moved(self, tensors: list[Tensor], rewind: Callable[[], None]) -> LossValue:
        with self.standing():
            return self.inner.moved(tensors, rewind)

    def block_differences(
        self, evaluate: Evaluations, loss: float, requests: list[Request], difference: Difference
    ) -> list[Differences]:
        return BoundLoss.block_differences(self, evaluate, loss, requests, difference)

    def differences(
        self,
        evaluate: Evaluations,
        loss: float,
        tensor: Tensor,
        index: list[int],
        eps: float,
        difference: Difference,
    ) -> Differences:
        """Evaluate once per probe: a coefficient moves a whole tensor, which no engine supports.

        A traced objective computes only what depends on that tensor.
        """
        self._probed = tensor, evaluate.rewind
        try:
            return sequential(evaluate, loss, tensor, index, eps, difference)
        finally:
            self._probed = None


def _flat(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1).double().cpu()
