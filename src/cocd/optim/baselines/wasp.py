"""`WASP`: slopes along the vectors of a basis, remembered, as many fresh ones as it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from typing import cast

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ...basis import KINDS, Basis, named
from ...errors import NonFiniteLoss
from ...objective.protocol import LossT
from ...parts.evaluation import Evaluations
from ...parts.layout import Kind
from ...parts.restore import restored
from ...parts.stop import agrees
from ...parts.types import Modules, State
from ...parts.update import decay_weights
from ...parts.validation import check_choice, check_count
from ..base import ZerothOrder


class WASP(ZerothOrder):
    """The web of affine spaces of Rakita et al. (2025), in an orthonormal basis.

    Each step probes one basis vector after the other, by one-sided differences, until a fresh slope
    agrees with the one remembered for that vector. It then trusts the others, and moves along all
    remembered slopes. In the identity basis this is CoCD with ``decay=1`` and a budget that is
    settled at each step.

    Args:
        params: parameters, named parameters or groups, as for any torch optimizer.
        lr: the learning rate.
        eps: the radius of the probes, along unit vectors of all parameters together.
        basis: "rotation" (a dense random rotation, for n up to some thousand), "hadamard" (random
            and fast, for any n) or "identity".
        tolerance: slopes agree if they have one sign and neither is larger than this many times
            the other. The paper has 1.1, its code 1.3.
        compute_budget: probes per step at most; None for n.
        weight_decay: decoupled, as for `CoCD`.
        nonfinite: as for `CoCD`.
        modules: as for `CoCD`.
        seed: decides the basis.

    >>> import torch, cocd
    >>> x = torch.ones(8, requires_grad=True)
    >>> optimizer = cocd.baselines.WASP([x], lr=0.2, eps=0.01)
    >>> for _ in range(60):
    ...     loss = optimizer.step(lambda: ((x - 3) ** 2).sum())
    >>> bool((x - 3).abs().max() < 0.02), optimizer.evaluations < 60 * 9
    (True, True)
    """

    _whole = (*ZerothOrder._whole, "eps", "basis", "tolerance", "compute_budget", "seed")
    _kept = (
        *ZerothOrder._kept,
        "eps",
        "basis",
        "tolerance",
        "compute_budget",
        "seed",
        "_basis",
        "_slopes",
        "_next",
        "_swept",
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        eps: float = 1e-2,
        basis: str = "hadamard",
        tolerance: float = 1.1,
        compute_budget: int | None = None,
        weight_decay: float = 0.0,
        nonfinite: str = "skip",
        modules: Modules = None,
        seed: int = 0,
    ) -> None:
        if not (isfinite(eps) and eps > 0):
            raise ValueError(f"eps must be a positive number, got {eps!r}")
        if not (isfinite(tolerance) and tolerance >= 1):
            raise ValueError(f"tolerance must be a factor of at least 1, got {tolerance!r}")
        self.eps, self.tolerance, self.seed = float(eps), float(tolerance), seed
        self.basis = check_choice("basis", basis, KINDS)
        self.compute_budget = compute_budget
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay}, nonfinite, modules)
        if not self._trainable():
            raise ValueError(
                "params holds nothing to train: every parameter is empty or has requires_grad=False"
            )
        self._swept: list[int] = []  # positions of the parameters that make up the flat vector
        self._next = 0
        self._follow()
        self._budget()

    def step(self, closure: Callable[[], LossT] | None = None) -> LossT:  # type: ignore[override]
        """Probe until slopes agree, move; returns the loss at x_t, before the update."""
        with self._evaluating(closure) as evaluate:
            self._groups_by_tensor()
            tensors = self._follow()
            loss = evaluate()
            if not isfinite(loss):
                raise NonFiniteLoss(f"the loss at x_t is {loss}; nothing has changed")
            slopes, position, failed = self._probe(evaluate, tensors, loss)
            evaluate.interrupts.deliver()  # nothing has changed so far
            self._report_nonfinite(failed, "probes gave a loss that is not finite")
            self._slopes, self._next = slopes, position
            self._move(tensors)
        return cast(LossT, evaluate.first)

    def estimate(self) -> Tensor:
        """The gradient estimate, flat, in the coordinates of the parameters."""
        return self._basis.combine(self._slopes)

    def _probe(
        self, evaluate: Evaluations, tensors: list[Tensor], loss: float
    ) -> tuple[Tensor, int, int]:
        """Fresh slopes among the remembered ones, the vector that comes next, how many failed."""
        slopes, position, failed = self._slopes.clone(), self._next, 0
        largest = min(torch.finfo(Kind.of(tensor).dtype).max for tensor in tensors)
        with restored(tensors) as saved:
            for _ in range(self._budget()):
                _add(tensors, saved, self._basis.vector(position), self.eps)
                fresh, stale = (evaluate() - loss) / self.eps, float(slopes[position])
                if abs(fresh) <= largest:
                    slopes[position] = fresh
                else:
                    failed += 1
                position = (position + 1) % self._basis.n
                if agrees(fresh, stale, self.tolerance):
                    break
        return slopes, position, failed

    def _move(self, tensors: list[Tensor]) -> None:
        options = self._groups_by_tensor()
        for tensor, g in zip(tensors, _split(self.estimate(), tensors), strict=True):
            lr = float(options[id(tensor)]["lr"])
            decay_weights([tensor], lr, float(options[id(tensor)]["weight_decay"]))
            if lr:  # to subtract nothing would still turn -0.0 into 0.0
                tensor.sub_(g.to(tensor), alpha=lr)

    def _budget(self) -> int:
        if self.compute_budget is None:
            return self._basis.n
        budget = check_count("compute_budget", self.compute_budget)
        if budget > self._basis.n:
            raise ValueError(
                f"compute_budget={budget} is more than the {self._basis.n} vectors of the basis"
            )
        return budget

    # --- which tensors there are ----------------------------------------------------------------

    def _follow(self) -> list[Tensor]:
        """The tensors that are trained; where they are others than before, in a new basis.

        What is remembered of the tensors that stay is carried over.
        """
        parameters = self._parameters()
        swept = [i for i, p in enumerate(parameters) if p.requires_grad and p.numel()]
        if swept != self._swept:
            remembered: dict[int, Tensor] = {}
            if self._swept:
                sizes = [parameters[i].numel() for i in self._swept]
                parts = torch.split(self.estimate(), sizes)
                remembered = dict(zip(self._swept, parts, strict=True))
            nothing = torch.zeros(max(map(Tensor.numel, parameters)), dtype=torch.float64)
            flat = [remembered.get(i, nothing[: parameters[i].numel()]) for i in swept]
            self._swept, self._next = swept, 0
            self._basis = self._new_basis()
            self._slopes = self._basis.coefficients(torch.cat(flat))
        return [parameters[i] for i in swept]

    def _new_basis(self) -> Basis:
        parameters = self._parameters()
        n = sum(parameters[i].numel() for i in self._swept)
        return named(self.basis, n, self.seed)

    # --- saving --------------------------------------------------------------------------------

    def _snapshot(self) -> State:
        settings = {name: getattr(self, name) for name in ("eps", "basis", "tolerance", "seed")}
        return {
            **super()._snapshot(),
            **settings,
            "compute_budget": self.compute_budget,
            "swept": list(self._swept),
            "slopes": self._slopes.clone(),
            "next": self._next,
        }

    def _check_snapshot(self, saved: State) -> None:
        super()._check_snapshot(saved)
        for name in ("basis", "seed"):
            if saved[name] != getattr(self, name):
                raise ValueError(
                    f"state_dict has {name}={saved[name]!r}, this optimizer has "
                    f"{name}={getattr(self, name)!r}; build it with the same"
                )

    def _restore(self, saved: State) -> None:
        super()._restore(saved)
        self.eps, self.tolerance = float(saved["eps"]), float(saved["tolerance"])
        self.compute_budget = saved["compute_budget"]
        self._swept = list(saved["swept"])
        self._basis = self._new_basis()
        self._slopes, self._next = saved["slopes"].clone(), int(saved["next"])


def _add(tensors: list[Tensor], saved: list[Tensor], u: Tensor, eps: float) -> None:
    for tensor, value, part in zip(tensors, saved, _split(u, tensors), strict=True):
        torch.add(value, part.to(tensor), alpha=eps, out=tensor)


def _split(flat: Tensor, tensors: list[Tensor]) -> Iterator[Tensor]:
    """The flat vector in the shapes of the tensors."""
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        yield part.view(tensor.shape)
