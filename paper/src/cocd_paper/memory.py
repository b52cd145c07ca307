"""What a method needs beside weights and batch, measured in processes of their own.

In a fresh process nothing that an earlier measurement left behind can be used again unseen. What
the allocator asks of the system differs from process to process, so there are several; what the
tensors take up does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import cocd

from . import methods, tasks
from .data import generated
from .peak import peak_extra_bytes, peak_tensor_bytes
from .runs import Run

STEPS = 2  # the first makes the state, the second has it already
PROCESSES = 3


def measure(run: Run) -> dict[str, Any]:
    """The numbers of one method on one network: of its peaks the median, the least and the most."""
    found = [_fresh(run) for _ in range(1 if run.smoke else PROCESSES)]
    peaks = sorted(one["peak_bytes"] for one in found)
    most = {"least_peak_bytes": peaks[0], "most_peak_bytes": peaks[-1], "processes": len(peaks)}
    return {**found[0], "peak_bytes": peaks[len(peaks) // 2], **most}


def _fresh(run: Run) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [sys.executable, "-m", "cocd_paper.memory"],
        input=json.dumps(run.to_row()),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # Ctrl-C is for this process, which stops when it has an answer
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise RuntimeError(f"the measuring process ended with {done.returncode}: {last}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def here(run: Run) -> dict[str, Any]:
    """The measurement itself.

    A twin takes the same steps first, so that libraries are loaded, loops compiled and threads
    started before memory is looked at.
    """
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    _steps(run)()
    peak = peak_extra_bytes(_steps(run))
    steps, made = _steps(run), []
    tensors = peak_tensor_bytes(lambda: made.append(steps()))
    ((optimizer, weights),) = made
    return {
        "state_bytes": _tensor_bytes(optimizer.state_dict()["state"]),
        "tensor_peak_bytes": tensors,
        "peak_bytes": peak,
        "weight_bytes": weights,
    }


def _steps(run: Run) -> Callable[[], tuple[Any, int]]:
    """Weights and a batch, made now; what is called later makes the optimizer and its steps."""
    task, model = tasks.find(run.task), tasks.network(run)
    x, y = _batch(run)
    first_order = methods.find(run.method).first_order
    options = run.options
    traced = options.get("engine", "trace") == "trace" and not first_order

    def steps() -> tuple[Any, int]:
        optimizer = methods.optimizer(run, model)
        objective = cocd.trace(model, task.loss) if traced else None
        for _ in range(STEPS):
            if objective is not None:
                optimizer.step(objective(x, y))
            elif first_order:
                optimizer.zero_grad()
                loss: Any = task.loss(model(x), y)
                loss.backward()
                optimizer.step()
            else:
                optimizer.step(lambda: task.loss(model(x), y))
        return optimizer, sum(p.numel() * p.element_size() for p in model.parameters())

    return steps


def _batch(run: Run) -> tuple[Tensor, Tensor]:
    """Of the right shape; what the numbers are does not matter to memory."""
    size, dataset = int(run.options["batch_size"]), tasks.find(run.task).dataset
    if not dataset:
        return torch.randn(size, 32), torch.randn(size, 32)
    rows = generated(dataset, run.seed, rows=size)
    return rows.train_x, rows.train_y


def _tensor_bytes(value: Any) -> int:
    """Of all tensors in a state, those of the torch generator and of counters included."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    parts = value.values() if isinstance(value, dict) else value
    return sum(map(_tensor_bytes, parts)) if isinstance(value, (dict, list, tuple)) else 0


if __name__ == "__main__":
    print(json.dumps(here(Run.from_row(json.load(sys.stdin)))))
