"""Run -> rows. It may be killed at any moment, and resumes from the last checkpoint."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Protocol

import torch

import cocd

from . import estimates, memory, methods, networks, step_time, tasks
from .runs import Run
from .store import Store, StoreError
from .training import Training

SAVE_AFTER = 60.0  # seconds of a long epoch
LOOK_AFTER = 0.25  # seconds between two reports of progress
DIVERGED = 1e6  # times the loss before the first step

# Plans that are not training curves: run, data folder and what to call between steps -> a row.
MEASUREMENTS: dict[str, Callable[[Run, Path | None, Callable[[], None]], dict[str, Any]]] = {
    "table-memory": lambda run, data, go_on: memory.measure(run),
    "table-time": lambda run, data, go_on: step_time.measure(run, go_on),
    "figure-error-bound": lambda run, data, go_on: estimates.measure(
        run, tasks.load(run, data), go_on
    ),
}


class Stopped(Exception):
    """The user wants to stop; the state has been saved at the last whole step."""


class Stop(Protocol):
    """Whether the user has asked to stop."""

    asked: bool


@dataclass
class Progress:
    """How far a run is. `total` is the sum of the step losses of the present epoch.

    `seconds` are of processor time, that of all threads: a busy machine does not change them.
    """

    epoch: int = 0
    in_epoch: int = 0
    total: float = 0.0
    seconds: float = 0.0
    loss: float = math.nan
    metric: float = math.nan
    initial: float = math.nan
    best: float = math.nan


class Watch(Protocol):
    """Who is told how it goes."""

    def begin(self, run: Run, progress: Progress) -> None:
        """A run begins, or goes on."""

    def step(self, run: Run, progress: Progress, training: Training) -> None:
        """Some steps have been taken."""

    def row(self, run: Run, row: dict[str, Any]) -> None:
        """A row has been written."""


def perform(
    run: Run, store: Store, *, data: Path | None, header: dict[str, Any], watch: Watch, stop: Stop
) -> str:
    """Bring a run to its end; returns its status, "done" or "diverged".

    The caller holds the store. Raises `Stopped` when the user has asked for it.
    """
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # A radius below rounding and estimates left out are settings' results, not news.
        for kind in (cocd.RadiusWarning, cocd.NonFiniteWarning):
            warnings.simplefilter("ignore", kind)
        if run.plan in MEASUREMENTS:
            return _measure(run, store, data, header, watch, stop)
        training = Training(run, tasks.load(run, data))
        progress = _begin(run, training, store, header, watch)
        return _train(run, training, progress, store, watch, stop)


def _begin(
    run: Run, training: Training, store: Store, header: dict[str, Any], watch: Watch
) -> Progress:
    saved = store.resume()
    if saved is not None:
        try:
            progress = Progress(**saved["progress"])
            training.load_state_dict(saved["training"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            raise StoreError(
                f"{store.checkpoint} does not fit this version of the method ({why}); "
                f"delete {store.folder} to start this run again"
            ) from error
        watch.begin(run, progress)
        return progress
    progress = Progress()
    watch.begin(run, progress)
    store.append({"row": "run", **header, "parameters": training.parameters})
    progress.loss, progress.metric = training.score()
    progress.initial, progress.best = progress.loss, progress.metric
    row = _epoch_row(training, progress, train_loss=None)
    store.append(row)
    watch.row(run, row)
    return progress


def _train(
    run: Run, training: Training, progress: Progress, store: Store, watch: Watch, stop: Stop
) -> str:
    how = ""
    while progress.epoch < run.epochs and not how:
        how = _steps(run, training, progress, watch, stop)
        if not how and _is_over(run, training, progress):
            how = _score(run, training, progress, store, watch)
        if not how:
            _save(store, training, progress)
            if stop.asked:
                raise Stopped
    end = {
        "row": "end",
        "status": "diverged" if how else "done",
        "how": how,
        "best_metric": progress.best,
        **_position(training, progress),
    }
    store.end(end)
    watch.row(run, end)
    return str(end["status"])


def _steps(run: Run, training: Training, progress: Progress, watch: Watch, stop: Stop) -> str:
    """Steps up to the epoch's end, the next checkpoint or the user's wish; says if it diverged."""
    began = looked = perf_counter()
    spent, clock = progress.seconds, process_time()
    how = ""
    while not _is_over(run, training, progress) and not stop.asked:
        try:
            loss = training.step()
        except cocd.NonFiniteLoss as error:
            how = f"step {training.steps + 1} could not be taken: {error}"
            break
        if not math.isfinite(loss):
            how = f"the loss of step {training.steps} is {loss}"
            break
        progress.in_epoch += 1
        progress.total += loss
        now = perf_counter()
        if now - looked > LOOK_AFTER:
            looked = now
            progress.seconds = spent + process_time() - clock
            watch.step(run, progress, training)
            if now - began > SAVE_AFTER:
                break
    progress.seconds = spent + process_time() - clock
    return how


def _is_over(run: Run, training: Training, progress: Progress) -> bool:
    """Whether the epoch has all its steps; or evaluations, where steps differ in these."""
    if not methods.finds_budget(run):
        return progress.in_epoch >= run.steps_per_epoch
    whole = int(run.options["max_evaluations"])
    return training.evaluations * run.epochs >= whole * (progress.epoch + 1)


def _score(run: Run, training: Training, progress: Progress, store: Store, watch: Watch) -> str:
    """The end of an epoch: its row; says if the run has diverged."""
    train_loss = progress.total / max(1, progress.in_epoch)  # 0 where a step was two epochs long
    progress.epoch, progress.in_epoch, progress.total = progress.epoch + 1, 0, 0.0
    progress.loss, progress.metric = training.score()
    row = {**_epoch_row(training, progress, train_loss), **training.found(), **training.coherence()}
    store.append(row)
    watch.row(run, row)
    if not progress.loss <= DIVERGED * progress.initial:
        return (
            f"the held-out loss is {progress.loss:.6g} after epoch {progress.epoch}, "
            f"{progress.initial:.6g} at first"
        )
    if training.task.better(progress.metric, progress.best):
        progress.best = progress.metric
    return ""


def _measure(
    run: Run, store: Store, data: Path | None, header: dict[str, Any], watch: Watch, stop: Stop
) -> str:
    """A measurement has one row and no checkpoint: what is not finished is made again."""

    def go_on() -> None:
        if stop.asked:
            raise Stopped

    store.resume()
    watch.begin(run, Progress())
    began = _processor()
    found = MEASUREMENTS[run.plan](run, data, go_on)
    end = {
        "row": "end",
        "status": "done",
        "epoch": run.epochs,
        "step": run.epochs * run.steps_per_epoch,
        "evaluations": found.get("evaluations", 0),
        "seconds": round(_processor() - began, 3),
        "how": "",
    }
    n = networks.parameters(tasks.network(run))
    store.append({"row": "run", **header, "parameters": n})
    store.append({"row": "measure", **found})
    store.end(end)
    watch.row(run, end)
    return "done"


def _processor() -> float:
    """Seconds of processor time, those of processes that were started and have ended included."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _save(store: Store, training: Training, progress: Progress) -> None:
    store.save({"training": training.state_dict(), "progress": asdict(progress)})


def _position(training: Training, progress: Progress) -> dict[str, Any]:
    return {
        "epoch": progress.epoch,
        "step": training.steps,
        "evaluations": training.evaluations,
        "seconds": round(progress.seconds, 3),
    }


def _epoch_row(training: Training, progress: Progress, train_loss: float | None) -> dict[str, Any]:
    return {
        "row": "epoch",
        "train_loss": train_loss,
        "loss": progress.loss,
        "metric": progress.metric,
        **_position(training, progress),
    }
