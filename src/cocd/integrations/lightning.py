"""`Forward`: a mixin that trains a `LightningModule` without a backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..objective.protocol import Closure
from ..parts.types import State
from .steps import Gradient, check


class Forward:
    """Mix in before `LightningModule`; `configure_optimizers` returns an optimizer of this library.

    Write ``loss(batch)`` instead of ``training_step``. To step a torch optimizer with an estimator,
    set ``self.gradient`` to it in `configure_optimizers`. Schedulers step once per batch. Logging,
    validation, callbacks and checkpoints work as ever; the estimator is saved with the module.
    Gradient clipping and accumulation are refused by Lightning itself, as they always are in
    manual optimisation.

    >>> import cocd, torch
    >>> from lightning import LightningModule
    >>> from cocd.integrations.lightning import Forward
    >>> class Model(Forward, LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = torch.nn.Linear(4, 1)
    ...     def loss(self, batch):
    ...         x, y = batch
    ...         return torch.nn.functional.mse_loss(self.layer(x), y)
    ...     def configure_optimizers(self):
    ...         return cocd.AutoCoCD(self.parameters())
    """

    gradient: Gradient | None = None

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False

    def loss(self, batch: object) -> Tensor:
        """The loss of a batch; to be written by you."""
        raise NotImplementedError(f"{type(self).__name__} needs a method loss(self, batch)")

    def closure(self, batch: object) -> Closure:
        """What the optimizer evaluates; override it to return that of a traced objective."""
        return lambda: self.loss(batch)

    def training_step(self, batch: object, batch_idx: int) -> Tensor:
        """One step; logs ``train_loss`` and the evaluations so far."""
        module: Any = self
        wrapped = module.optimizers()
        optimizer = wrapped.optimizer
        check(optimizer, self.gradient)
        closure = self.closure(batch)
        if self.gradient is None:
            loss = wrapped.step(closure)
            count = optimizer.evaluations
        else:
            loss = self.gradient(closure)
            wrapped.step()
            optimizer.zero_grad()
            count = self.gradient.evaluations
        for scheduler in _as_list(module.lr_schedulers()):
            scheduler.step()
        loss = torch.as_tensor(loss).detach()
        module.log("train_loss", loss, prog_bar=True)
        module.log("evaluations", float(count))
        return loss

    def on_save_checkpoint(self, checkpoint: State) -> None:
        """Save the estimator, if there is one."""
        if self.gradient is not None:
            checkpoint["cocd_gradient"] = self.gradient.state_dict()

    def on_load_checkpoint(self, checkpoint: State) -> None:
        """Keep the estimator's state until there is one again."""
        self._saved_gradient = checkpoint.get("cocd_gradient")

    def on_train_start(self) -> None:
        """Go on with the estimator of a checkpoint."""
        saved = getattr(self, "_saved_gradient", None)
        if self.gradient is not None and saved is not None:
            self.gradient.load_state_dict(saved)
            self._saved_gradient = None


def _as_list(schedulers: object) -> list[Any]:
    if schedulers is None:
        return []
    return list(schedulers) if isinstance(schedulers, (list, tuple)) else [schedulers]
