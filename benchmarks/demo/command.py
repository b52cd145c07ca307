"""The subcommand: its options, and the order of things."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from cocd_paper.cli import whole_number

from . import display, methods, page, plot, results, task, train

STEPS = 800


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cocd demo``."""
    parser.add_argument(
        "--out", type=Path, default=Path("runs/demo"), help="folder for the results (%(default)s)"
    )
    parser.add_argument(
        "--steps",
        type=whole_number(1),
        default=STEPS,
        help="steps of CoCD; the others get as many evaluations, rounded up to whole steps "
        "of all of them (%(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0, 2**32 - 1),
        default=0,
        help="for the split, the first weights, the batches and the directions (%(default)s)",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="say nothing but where the results are"
    )


def run(args: argparse.Namespace) -> int:
    """Train, write ``results.json``, ``plot.png`` and ``index.html``, say where they are."""
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"cocd demo: cannot write to {args.out}: {error.strerror}", file=sys.stderr)
        return 2

    digits = task.digits(args.seed)
    plan = methods.equal_evaluations(methods.methods(args.seed), args.steps)
    with _one_thread(), display.live(plan, quiet=args.quiet) as reporter:
        rows = [
            train.train(method, digits, steps, args.seed, reporter(method.name))
            for method, steps in plan
        ]
        outcome = results.collect(rows, seed=args.seed, task=task.describe(digits))

    files = [args.out / name for name in ("results.json", "plot.png", "index.html")]
    results.write(outcome, files[0])
    plot.write(outcome, files[1])
    page.write(outcome, files[2])
    if not args.quiet:
        display.show(outcome)
    print("\n".join(str(file) for file in files))
    return 0


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread.

    A second one gains little on a network this small, and where another program wants a core the
    threads spend their time waiting for each other: a hundred times slower was seen.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
