"""One run's model, optimizer and batches, step by step, and all of it as a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import cocd
from cocd.diagnostics import Coherence

from . import methods, tasks
from .data import Splits
from .estimators import EstimatedDescent
from .runs import Run

SAMPLE = 25  # rows of each class that a method may look at before it starts


class Training:
    """A run in progress. The state covers all that decides the steps to come, bit for bit."""

    def __init__(self, run: Run, splits: Splits) -> None:
        torch.manual_seed(run.seed)
        self.run, self.splits, self.task = run, splits, tasks.find(run.task)
        self.model = tasks.network(run)
        self.objective: cocd.Objective | None = None
        if not methods.find(run.method).first_order:
            engine = run.options.get("engine")  # as a rule the best there is
            self.objective = cocd.trace(self.model, self.task.loss, engine=engine)  # type: ignore[arg-type]
        self.optimizer = methods.optimizer(run, self.model, self.objective, self._sample)
        self.scheduler = methods.scheduler(run, self.optimizer)
        size = int(run.options["batch_size"])
        self.batches = tasks.Batches(
            *(splits.train_x, splits.train_y, size, run.seed, tasks.dtype(run)),
            augment=str(run.options.get("augment", "none")),
        )
        self.tracker = Coherence(self.optimizer) if run.carry else None
        self.steps = 0

    def step(self) -> float:
        """One step on the next batch; returns the loss."""
        x, y = self.batches.next()
        loss: Any
        if self.objective is not None:
            loss = self.optimizer.step(self.objective(x, y))
        elif isinstance(self.optimizer, EstimatedDescent):
            loss = self.optimizer.step(lambda: self.task.loss(self.model(x), y))
        else:
            self.optimizer.zero_grad()
            loss = self.task.loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            loss = loss.detach()
        if self.scheduler is not None:
            self.scheduler.step()
        self.steps += 1
        return float(loss)

    def _sample(self) -> Callable[[], Any]:
        """The loss on the first training rows of each class."""
        x, y = self.splits.train_x, self.splits.train_y
        labels = range(int(y.max()) + 1)
        rows = torch.cat([(y == label).nonzero().flatten()[:SAMPLE] for label in labels])
        assert self.objective is not None  # who samples has no gradients
        return self.objective(tasks.cast(x[rows], tasks.dtype(self.run)), y[rows])

    @property
    def evaluations(self) -> int:
        """Of the objective, so far; a forward and a backward pass are one."""
        return self.steps if self.objective is None else int(self.optimizer.evaluations)

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return sum(p.numel() for p in self.model.parameters())

    def score(self) -> tuple[float, float]:
        """Loss and metric on the held-out rows."""
        return tasks.score(self.task, self.model, self.splits.held_x, self.splits.held_y)

    def found(self) -> dict[str, Any]:
        """What the method has settled by itself, where that is left to it."""
        if not isinstance(self.optimizer, cocd.AutoCoCD) or not methods.finds_budget(self.run):
            return {}
        names = [name for name, _ in self.model.named_parameters()]
        scales = zip(names, self.optimizer.scales, strict=True)
        return {
            "compute_budget": int(self.optimizer.compute_budget),
            "boldness": _short(float(self.optimizer.boldness)),
            "scales": {name: scale for name, scale in scales if scale != 1},
        }

    def coherence(self) -> dict[str, Any]:
        """What the tracker saw since it was last asked; nothing where there is none."""
        if self.tracker is None:
            return {}
        seen = self.tracker.summary()
        self.tracker.reset()
        return {"coherence": _compact(seen)}

    def state_dict(self) -> dict[str, Any]:
        """Numbers, strings, lists, dicts and tensors; live ones, to be written before a step."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "batches": self.batches.state_dict(),
            "random": torch.get_rng_state(),
            "steps": self.steps,
            "tracker": None if self.tracker is None else self.tracker.state_dict(),
            "objective": None if self.objective is None else self.objective.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was taken."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.batches.load_state_dict(state["batches"])
        torch.set_rng_state(state["random"])
        self.steps = int(state["steps"])
        if self.tracker is not None:
            self.tracker.load_state_dict(state["tracker"])
        if self.objective is not None:
            self.objective.load_state_dict(state["objective"])


def _compact(seen: dict[str, Any]) -> dict[str, Any]:
    """Few digits, and of the tensors no more than is drawn: there is one of these an epoch."""
    totals = {name: _short(value) for name, value in seen.items() if name != "by_tensor"}
    tensors = {
        tensor: {name: _short(values[name]) for name in ("correlation", "relative_change")}
        for tensor, values in seen["by_tensor"].items()
    }
    return {**totals, "by_tensor": tensors}


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
