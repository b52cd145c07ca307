"""The commands that make what a section shows."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from .read import Result


class _Kind(NamedTuple):
    """What commands must share to be brought together: what stands before the tasks, and after."""

    head: str
    tail: str = ""
    known: bool = True


def commands(results: Iterable[Result]) -> tuple[str, ...]:
    r"""As few as make all these runs: a run is made by any command whose plan has it.

    Rows are made in many sittings, each with some of the tasks, runs and seeds. These are brought
    together, without folders and threads; a number of epochs that is not the plan's stays, with
    the runs that it was for.

    >>> def made(by, seed=0):
    ...     return Result({"command": f"cocd reproduce {by}", "seed": seed}, (), (), None, "")
    >>> print(*commands([
    ...     made("table-main --task mnist --only BCCD --data /home/me/data"),
    ...     made("table-main --task mnist --only CoCD --seeds 1", 1),
    ...     made("table-main --task sarcos --seeds 0,1"),
    ...     made("table-main --task sarcos --seeds 0,1", 1),
    ...     made("figure-error-bound --only mini-batches --epochs 3"),
    ... ]), sep="\n")
    cocd reproduce figure-error-bound --only mini-batches --epochs 3
    cocd reproduce table-main --task mnist sarcos --seeds 0,1
    """
    seeds: dict[tuple[_Kind, str], set[int]] = {}
    for result in results:
        kind, tasks = _parts(str(result.run["command"] or ""))
        for task in (tasks or [""]) if kind.head else ():
            seeds.setdefault((kind, task), set()).add(int(result.run["seed"]))
    tasks_of: dict[tuple[_Kind, tuple[int, ...]], list[str]] = {}
    for (kind, task), found in seeds.items():
        tasks_of.setdefault((kind, tuple(sorted(found))), []).append(task)
    return tuple(sorted(_command(*key, tasks) for key, tasks in tasks_of.items()))


def _command(kind: _Kind, seeds: tuple[int, ...], tasks: list[str]) -> str:
    own = "" if "" in tasks else f"--task {shlex.join(tasks)}"  # without, it is all of the plan's
    which = "" if seeds == (0,) or not kind.known else f"--seeds {','.join(map(str, seeds))}"
    return " ".join(filter(None, [kind.head, own, kind.tail, which]))


def _parts(command: str) -> tuple[_Kind, list[str]]:
    """The command without what is of one sitting, and its tasks; whole if it is not of ours."""
    try:
        known, others = _PARSER.parse_known_intermixed_args(shlex.split(command))
    except (ValueError, argparse.ArgumentError):
        return _Kind(_without_folders(command), known=False), []
    if (known.cocd, known.name) != ("cocd", "reproduce") or not known.plan or others:
        return _Kind(_without_folders(command), known=False), []
    tail = ["--only", known.only] if known.only and known.epochs else []
    tail += ["--epochs", known.epochs] if known.epochs else []
    tail += ["--activation", known.activation] if known.activation else []
    tail += ["--published"] if known.published else []
    tail += ["--smoke"] if known.smoke else []
    return _Kind(f"cocd reproduce {known.plan}", shlex.join(tail)), known.task or []


def _without_folders(command: str) -> str:
    """Of a machine, which are nobody else's business."""
    return re.sub(r"(--[a-z]+[ =])(\S*/\S*)", r"\1DIR", command)


def _parser() -> argparse.ArgumentParser:
    """Of what `cocd reproduce` takes; the report need not know more of it than this."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    for name in ("cocd", "name", "plan"):
        parser.add_argument(name, nargs="?")
    parser.add_argument("--task", nargs="+")
    for option in ("--only", "--epochs", "--seeds", "--data", "--out", "--threads", "--activation"):
        parser.add_argument(option)
    for option in ("--published", "--smoke"):
        parser.add_argument(option, action="store_true")
    return parser


_PARSER = _parser()
