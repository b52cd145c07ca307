"""Performs plans in forked children, and kills those that are to be killed at a given moment.

``python experiment_driver.py JOBS.json``: a list of ``{"name", "args", "kill"}``; jobs that are
listed together, in a list of their own, run side by side. `kill` is null or ``[where, count]``:

- ``step``: after that many steps, SIGKILL
- ``row``: when half of that row has been written
- ``after row``: when that row is on the disk and the checkpoint is not
- ``checkpoint``: when half of that checkpoint has been written
- ``interrupt``, ``terminate``: after that many steps, SIGINT or SIGTERM

What a job printed is in ``NAME.out``, its exit code (negative: the signal) in ``codes.json``.
Forking spares every job the time that importing torch takes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from cocd_paper import cli as _cli
from cocd_paper import display, reproduce, runner, store, training  # noqa: F401


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def on_call(count: int, then: Callable[[], None]) -> Callable[[], bool]:
    """True from the `count`-th call on, at which `then` is called."""
    calls = 0

    def called() -> bool:
        nonlocal calls
        calls += 1
        if calls == count:
            then()
        return calls >= count

    return called


def arrange(where: str, count: int) -> None:
    """Make the process meet its end at that moment."""
    if where in ("step", "interrupt", "terminate"):
        number = {"step": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM}
        called = on_call(count, lambda: os.kill(os.getpid(), number[where]))
        step = training.Training.step

        def stepped(self: training.Training) -> float:
            loss = step(self)
            called()
            return loss

        training.Training.step = stepped  # type: ignore[method-assign]
        # Checkpoints in the middle of epochs, too.
        runner.SAVE_AFTER = runner.LOOK_AFTER = 0.0
    elif where == "row":
        encode = store.encode
        due = on_call(count, lambda: None)

        def half(row: dict[str, Any]) -> bytes:
            whole = encode(row)
            return whole[: len(whole) // 2] if due() else whole

        store.encode = half
        die_after_append(count)
    elif where == "after row":
        die_after_append(count)
    elif where == "checkpoint":
        save = torch.save
        called = on_call(count, lambda: None)

        def saved(whole: Any, file: Any) -> None:
            save(whole, file)
            if called():
                file.flush()
                file.truncate(file.tell() // 2)
                die()

        torch.save = saved  # type: ignore[assignment]


def die_after_append(count: int) -> None:
    append = store.Store.append
    called = on_call(count, die)

    def appended(self: store.Store, row: dict[str, Any]) -> None:
        append(self, row)
        called()

    store.Store.append = appended  # type: ignore[method-assign]


def start(job: dict[str, Any], folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        out = os.open(folder / f"{job['name']}.out", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        if job["kill"]:
            arrange(*job["kill"])
        sys.argv = ["cocd", *job["args"]]
        code = _cli.main(job["args"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def drive(jobs: list[Any], folder: Path) -> dict[str, int]:
    codes: dict[str, int] = {}
    for entry in jobs:
        together = entry if isinstance(entry, list) else [entry]
        children = {start(job, folder): job["name"] for job in together}
        for child, name in children.items():
            _, status, used = os.wait4(child, 0)
            codes[name] = os.waitstatus_to_exitcode(status)
            print(f"{name}: {used.ru_utime + used.ru_stime:.1f} s", flush=True)
    return codes


if __name__ == "__main__":
    with suppress(ImportError):
        import cocd.objective.kernels.loops  # noqa: F401  # numba, which the children need not import again
    path = Path(sys.argv[1])
    torch.set_num_threads(1)
    found = drive(json.loads(path.read_text()), path.parent)
    (path.parent / "codes.json").write_text(json.dumps(found))
