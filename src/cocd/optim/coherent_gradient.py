"""The estimator alone, for any torch optimizer to step with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import SharedMemoryError
from ..objective.protocol import Closure
from ..parts.layout import views
from ..schedules import Schedule
from .coordinate import CoordinateMethod


class CoherentGradient(CoordinateMethod):
    """CoCD's gradient estimate in ``p.grad``, so that any torch optimizer can take the step.

    Called with a closure it refreshes `compute_budget` coordinates, leaves the estimate in
    ``p.grad`` and returns the loss. Arguments as for `CoCD`, and:

    Args:
        share: make ``p.grad`` a view of the memory instead of a copy, where the memory holds all
            n coordinates in the parameter's own dtype. Nothing else may then write to it
            (clipping, ``zero_grad(set_to_none=False)``): the next call notices and refuses.

    >>> import torch, cocd
    >>> x = torch.tensor([3.0, -2.0], requires_grad=True)
    >>> gradient = cocd.CoherentGradient([x], eps=0.1, compute_budget=2)
    >>> adam = torch.optim.AdamW([x], lr=0.1)
    >>> for _ in range(200):
    ...     loss = gradient(lambda: ((x - 1) ** 2).sum())
    ...     adam.step()
    >>> bool((x - 1).abs().max() < 0.05)
    True
    """

    _whole = (*CoordinateMethod._whole, "share")
    _kept = (*CoordinateMethod._kept, "share")

    def __init__(
        self,
        params: Any,
        *,
        eps: float = 0.1,
        compute_budget: int | None = None,
        memory_budget: int | None = None,
        schedule: Schedule | None = None,
        decay: float = 1.0,
        difference: str = "central",
        nonfinite: str = "skip",
        modules: Any = None,
        share: bool = False,
    ) -> None:
        self.share = bool(share)
        self._versions: list[tuple[Tensor, int]] = []  # of the memory, as this class left it
        super().__init__(
            params,
            {"eps": eps, "decay": decay},
            compute_budget=compute_budget,
            memory_budget=memory_budget,
            schedule=schedule,
            difference=difference,
            nonfinite=nonfinite,
            modules=modules,
        )

    def __call__(self, closure: Closure) -> Any:
        """Refresh, leave the estimate in ``p.grad``, return the loss."""
        self._refuse_outside_writes()
        return self._run(closure)

    def step(self, closure: Closure | None = None) -> Any:
        """An estimator does not move; this says so."""
        raise TypeError(
            "CoherentGradient estimates and does not move: call it with the closure, then call "
            "step() of the optimizer that is to use p.grad, or use cocd.CoCD"
        )

    def _move(self) -> None:
        for t, tensor in enumerate(self._tensors):
            if tensor.requires_grad and not self._shares(t):
                if tensor.grad is None:
                    tensor.grad = torch.zeros_like(tensor)
                elif not self._memory.dense:
                    tensor.grad.zero_()
        for segment in self._memory.remembered(self._schedule):
            t, start, stop = segment.part
            tensor, values = self._tensors[t], self._memory.values(segment)
            if not tensor.requires_grad:
                continue
            if self._shares(t):
                tensor.grad = values.view(tensor.shape)
            elif tensor.grad is not None:
                for view, first, last in views(tensor.grad, start, stop):
                    view.copy_(values[first - start : last - start].view_as(view))
        self._versions = [(buffer, buffer._version) for buffer in self._memory.buffers]

    def _shares(self, t: int) -> bool:
        assert self._layout is not None
        buffer = self._memory.buffers[self._layout.kind[t]]
        return self.share and self._memory.dense and buffer.dtype == self._tensors[t].dtype

    def _refuse_outside_writes(self) -> None:
        # Only of tensors that still are the memory: growing or loading replaces them.
        live = {id(buffer) for buffer in self._memory.buffers}
        written = [b for b, version in self._versions if id(b) in live and b._version != version]
        if self.share and written:
            raise SharedMemoryError(
                "p.grad shares the memory (share=True) and was written from outside, so the "
                "estimates are lost: use share=False, or zero_grad(set_to_none=True) and no "
                "in-place clipping; then load a saved state or build the estimator anew"
            )

    def _joined(self) -> None:
        if self._layout is not None:
            self._refuse_outside_writes()
        super()._joined()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """After unpickling or copying."""
        super().__setstate__(state)
        self._versions = []
