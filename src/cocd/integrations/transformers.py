"""`Trainer`: that of Hugging Face, with optimizers that need no backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from ..objective.protocol import Closure
from .steps import Gradient, OnStep, Steps, detached

_FILE = "cocd.pt"  # in a checkpoint, beside optimizer.pt


class Trainer(transformers.Trainer):
    """`transformers.Trainer` for the optimizers of this library.

    Datasets, collators, schedulers, evaluation, callbacks, logging, checkpoints, and `peft` work as
    they do there. ``loss.backward()`` is never called, and nothing but an estimator allocates
    gradients. A run that is resumed from a checkpoint resumes bit for bit.

    Args:
        optimizers: an optimizer of this library and a scheduler or None, as there; an optimizer
            alone will do. With `gradient`, any torch optimizer.
        gradient: `cocd.CoherentGradient` or `cocd.UnitGradient`; the optimizer steps with what it
            leaves in ``p.grad``.
        bind: makes the closure for a batch, ``bind(batch) -> closure``, such as that of a traced
            objective: ``lambda batch: objective(batch, batch["labels"])``. None takes the loss
            that `compute_loss` gives.
        on_step: functions that get a dict after each step; see `cocd.integrations.Steps`.
        dropout: False probes the model in evaluation mode, as MeZO's code does, because dropout
            adds noise to every slope. True probes it in training mode.
        options: all else that `transformers.Trainer` takes, by name.
    """

    def __init__(
        self,
        model: nn.Module,
        args: transformers.TrainingArguments,
        *,
        optimizers: Optimizer | tuple[Optimizer, LambdaLR | None],
        gradient: Gradient | None = None,
        bind: Callable[[dict[str, Any]], Closure] | None = None,
        on_step: OnStep | Iterable[OnStep] = (),
        dropout: bool = False,
        **options: Any,
    ) -> None:
        pair = optimizers if isinstance(optimizers, tuple) else (optimizers, None)
        self.steps = Steps(pair[0], gradient, on_step=on_step)
        self.bind, self.dropout = bind, dropout
        _check_arguments(args)
        super().__init__(model, args, optimizers=pair, **options)

    # --- one step -------------------------------------------------------------------------------

    def training_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Probe, and move; with a `gradient` the trainer calls ``optimizer.step`` afterwards."""
        model.train(self.dropout)
        inputs = self._prepare_inputs(inputs)

        def closure() -> Tensor:
            with self.compute_loss_context_manager():
                loss: Tensor = self.compute_loss(  # type: ignore[assignment]
                    model, dict(inputs), num_items_in_batch=num_items_in_batch
                )
            return loss

        loss = self.steps.estimate(closure if self.bind is None else self.bind(inputs))
        self.steps.tell(loss)
        return detached(loss, self.args.device)

    def create_scheduler(
        self, num_training_steps: int, optimizer: Optimizer | None = None
    ) -> LRScheduler:
        """As there; before, the optimizer that has moved by then loses its own turn."""
        wrapped: Any = self.optimizer if optimizer is None else optimizer
        if self.steps.gradient is None and wrapped is not self.steps.optimizer:
            wrapped.step = MethodType(_nothing, wrapped)  # `training_step` has done it
        return super().create_scheduler(num_training_steps, optimizer)

    def _clip_grad_norm(self, model: nn.Module) -> object:
        if self.steps.gradient is None:
            return None
        return super()._clip_grad_norm(model)  # type: ignore[no-untyped-call]

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | float | None = None) -> object:
        if self.steps.gradient is None:
            return None
        return super()._get_grad_norm(model, grad_norm=grad_norm)  # type: ignore[no-untyped-call]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As there, with the evaluations so far."""
        super().log({**logs, "evaluations": self.steps.evaluations}, start_time)

    # --- checkpoints ----------------------------------------------------------------------------

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        gradient = self.steps.gradient
        state = {
            "steps": self.steps.steps,
            "gradient": None if gradient is None else gradient.state_dict(),
        }
        torch.save(state, Path(output_dir, _FILE))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        path = Path(checkpoint, _FILE)
        if not path.exists():
            raise ValueError(f"resume_from_checkpoint: {checkpoint} was not saved by this Trainer")
        state = torch.load(path, weights_only=True)
        if self.steps.gradient is not None:
            self.steps.gradient.load_state_dict(state["gradient"])
        self.steps.steps = int(state["steps"])


def _nothing(optimizer: object, closure: object = None) -> None:
    """Stand in for ``step`` where the step has been made."""


def _check_arguments(args: transformers.TrainingArguments) -> None:
    if args.gradient_accumulation_steps != 1:
        raise ValueError(
            f"gradient_accumulation_steps={args.gradient_accumulation_steps}: there are no "
            "gradients to accumulate; raise per_device_train_batch_size instead, which costs no "
            "memory for activations"
        )
    if args.world_size > 1 or args.n_gpu > 1:
        raise ValueError(
            f"args has {max(args.world_size, args.n_gpu)} devices, each of which would get a batch "
            "of its own; use one, or cocd.distributed.Shard in a loop of your own"
        )
