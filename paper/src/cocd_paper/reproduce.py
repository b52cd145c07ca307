"""``cocd-paper reproduce``: the runs of a plan, one after the other, until all have ended."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import traceback
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy
import torch

import cocd

from . import best, display, plans
from .cli import whole_number, writable
from .runner import Stopped, Watch, perform
from .runs import Run
from .stopping import Wish
from .store import SCHEMA, Held, Store
from .tasks import ACTIVATIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cocd-paper reproduce``."""
    parser.add_argument("plan", choices=list(plans.PLANS), metavar="PLAN", help="see `list`")
    parser.add_argument("--task", nargs="+", metavar="T", help="run only these tasks of the plan")
    parser.add_argument("--only", metavar="TEXT", help="run only those with TEXT in label or key")
    parser.add_argument("--data", type=Path, help="folder with the data sets (see cocd-paper data)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="folder of rows (%(default)s)"
    )
    parser.add_argument("--epochs", type=whole_number(1), help="epochs, instead of the plan's")
    parser.add_argument("--seeds", type=_seeds, default=(0,), help="such as 0,1,2 (default: 0)")
    parser.add_argument(
        "--activation",
        choices=list(ACTIVATIONS),
        help="activation of the network, instead of the plan's (tanh; ResNet-20: relu)",
    )
    parser.add_argument(
        "--published",
        action="store_true",
        help="SARCOS as it is distributed, whose test rows are also among the training rows",
    )
    parser.add_argument(
        "--threads",
        type=whole_number(1, 1024),
        default=1,
        help="threads of one process (%(default)s); two processes on one plan gain more",
    )
    parser.add_argument("--smoke", action="store_true", help="small form, on generated data")
    parser.add_argument(
        "--best",
        action="store_true",
        help="run nothing; print the best settings of each grid among the rows of tune in --out",
    )


def run(args: argparse.Namespace) -> int:
    """Perform the plan; 0 if all its runs have ended or are being made, 1 if some failed.

    130 after Ctrl-C.
    """
    try:
        if args.best:
            return _print_best(args)
        chosen = select(args)
        if args.out.exists() and not args.out.is_dir():
            raise ValueError(f"--out {args.out} is a file; give a folder")
        with writable("--out", args.out):
            (args.out / args.plan).mkdir(parents=True, exist_ok=True)
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        print(f"cocd-paper reproduce: {error}", file=sys.stderr)
        return 2
    torch.set_num_threads(args.threads)
    return perform_all(chosen, args)


def _print_best(args: argparse.Namespace) -> int:
    if args.plan != "tune":
        raise ValueError(f"--best is for the plan tune, got {args.plan}")
    if args.activation or args.published:
        raise ValueError("--best reads rows of the plan as it is: no --activation, no --published")
    found = best.choose(args.out / args.plan)
    if not found:
        raise ValueError(
            f"--best: no run of tune has ended below {args.out / args.plan}, not counting small "
            "forms; give the folder of its rows as --out, or run the plan first"
        )
    print(best.table(found))
    return 0


def select(args: argparse.Namespace) -> list[Run]:
    """The runs that the arguments ask for."""
    if args.smoke and args.epochs is not None:
        raise ValueError(
            f"--epochs {args.epochs} is not for --smoke, whose runs are as short as can be; "
            "leave one of them out"
        )
    tasks = list(dict.fromkeys(args.task)) if args.task else None
    found = list(
        plans.generate(
            args.plan,
            tasks=tasks,
            seeds=args.seeds,
            epochs=args.epochs,
            smoke=args.smoke,
            activation=args.activation,
            published=args.published,
        )
    )
    only = args.only or ""
    chosen = [run for run in found if only in run.label or only in run.key]
    if not chosen:
        labels = "; ".join(dict.fromkeys(run.label for run in found))
        raise ValueError(
            f"--only {only!r} fits none of the {len(found)} runs of {args.plan}; their labels are "
            f"{labels}"
        )
    return chosen


def perform_all(chosen: list[Run], args: argparse.Namespace) -> int:
    """Every run that is not finished and that no other process holds."""
    stores = {run.key: Store(args.out / run.plan / run.key, run) for run in chosen}
    waiting = [run for run in chosen if not stores[run.key].finished()]
    failed: list[Run] = []
    told: set[str] = set()
    ended = len(chosen) - len(waiting)
    with Wish() as wish, display.watching(args.plan, len(chosen), ended) as watch:
        progressed = True
        while progressed:  # what another process held may be free by now, and unfinished
            progressed = False
            for run in list(waiting):
                outcome = "stopped" if wish.asked else _one(run, stores, args, watch, wish, told)
                if outcome == "stopped":
                    break
                if outcome != "held":
                    waiting.remove(run)
                    progressed = True
                if outcome == "failed":
                    failed.append(run)
            if wish.asked:
                break
    return _conclude(chosen, waiting, failed, wish, args)


def _one(
    run: Run,
    stores: dict[str, Store],
    args: argparse.Namespace,
    watch: Watch,
    wish: Wish,
    told: set[str],
) -> str:
    """Perform a run, or say why not: "done", "held", "stopped" or "failed"."""
    store = stores[run.key]
    try:
        with store.held():
            if store.finished():  # by another process, meanwhile
                return "done"
            perform(run, store, data=args.data, header=header(run), watch=watch, stop=wish)
            return "done"
    except Held:
        return "held"
    except Stopped:
        return "stopped"
    except Exception as error:
        # One run that fails must not cost the others. What the user can mend is a sentence, and
        # data that are missing are missed by many runs: that is said once.
        known = isinstance(error, (ValueError, OSError))
        said = str(error) if known else traceback.format_exc().rstrip()
        if said not in told:
            told.add(said)
            print(f"cocd-paper reproduce: {run.plan}/{run.key} failed: {said}", file=sys.stderr)
        return "failed"


def _conclude(
    chosen: list[Run], waiting: list[Run], failed: list[Run], wish: Wish, args: argparse.Namespace
) -> int:
    ended = len(chosen) - len(waiting) - len(failed)
    where = args.out / args.plan
    if wish.asked:
        print(
            f"cocd-paper reproduce: stopped, {ended} of {len(chosen)} runs have ended; the same "
            "command resumes from here",
            file=sys.stderr,
        )
        return wish.code
    print(f"{ended} of {len(chosen)} runs have ended: {where}")
    if waiting:
        print(f"{len(waiting)} are being made by another process")
    if failed:
        many = "1 run" if len(failed) == 1 else f"{len(failed)} runs"
        print(f"cocd-paper reproduce: {many} failed", file=sys.stderr)
    return 1 if failed else 0


def header(run: Run) -> dict[str, Any]:
    """What the first row says of a run and of where it was made."""
    return {
        "schema": SCHEMA,
        "key": run.key,
        **run.to_row(),
        "versions": {
            "cocd": cocd.__version__,
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
        },
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "platform": platform.platform(),
        },
        "command": shlex.join(["cocd-paper", *sys.argv[1:]]),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _cpu() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _seeds(text: str) -> tuple[int, ...]:
    """Whole numbers, separated by commas."""
    return tuple(dict.fromkeys(whole_number(0, 2**32 - 1)(part) for part in text.split(",")))
