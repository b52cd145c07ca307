"""Starts real ranks on this machine: processes of one gloo group, each running a function."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_SECONDS = 300  # after which ranks are taken to hang
_CONTEXT: Any = multiprocessing.get_context(
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)
# Imported once, in the server that the ranks are forked from; optimizers load the last one.
if _CONTEXT.get_start_method() == "forkserver":
    _CONTEXT.set_forkserver_preload(["cocd.distributed", "pytest", "torch._dynamo"])


class Died(str):
    """Stands for the result of a rank that ended without one."""


def run_ranks(body: Callable[..., Any], size: int, *args: Any) -> list[Any]:
    """What ``body(rank, *args)`` returns on each of `size` ranks, or the error that it raises."""
    with tempfile.TemporaryDirectory() as folder:
        place = f"file://{Path(folder).as_posix()}/store"
        pipes, processes = [], []
        for rank in range(size):
            mine, theirs = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(
                target=_rank, args=(theirs, place, rank, size, body, args), daemon=True
            )
            process.start()
            theirs.close()
            pipes.append(mine)
            processes.append(process)
        try:
            return [_result(pipe, rank) for rank, pipe in enumerate(pipes)]
        finally:
            for process in processes:
                process.join(5)
                process.kill()
                process.join()


def _result(pipe: Connection, rank: int) -> Any:
    if not pipe.poll(_SECONDS):
        raise AssertionError(f"rank {rank} hangs")
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:
        return Died(f"rank {rank} died")


def _rank(
    pipe: Connection,
    place: str,
    rank: int,
    size: int,
    body: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=size)
    try:
        result = body(rank, *args)
    except BaseException as error:
        result = error
    pipe.send_bytes(pickle.dumps(result))  # tensors by value: nothing outlives the rank
    dist.destroy_process_group()
