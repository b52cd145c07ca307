"""The options of ``python benchmarks blackbox``, and the order of things."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cocd_paper.cli import whole_number

from .. import report as bench
from . import report, store
from .measure import Row, Run, estimate, key, measure, plan
from .peers import METHODS, missing
from .problems import COCO_DIMENSIONS, INSTANCES, SUITES, Problem

MINUTES = 60
_QUICK = argparse.Namespace(
    suite=["bbob"], dimension=[5], function=[1, 8], instance=[1], budget=[10, 40]
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--suite", nargs="+", choices=list(SUITES), metavar="NAME", help=", ".join(SUITES)
    )
    parser.add_argument("--dimension", nargs="+", type=whole_number(2), metavar="N")
    parser.add_argument("--function", nargs="+", type=whole_number(1, 24), metavar="I")
    parser.add_argument("--instance", nargs="+", type=whole_number(1, INSTANCES), metavar="I")
    parser.add_argument(
        "--budget",
        nargs="+",
        type=whole_number(1),
        metavar="K",
        help="evaluations for each coordinate; one run to the largest is looked at at each",
    )
    parser.add_argument(
        "--method", nargs="+", choices=list(METHODS), metavar="NAME", help=", ".join(METHODS)
    )
    parser.add_argument("--seed", type=whole_number(0), metavar="S", help="of the methods (0)")
    parser.add_argument(
        "--random-start", action="store_true", help="in [-4, 4]^n instead of the centre of the box"
    )
    parser.add_argument("--bounds", action="store_true", help="tell all methods the box [-5, 5]^n")
    parser.add_argument(
        "--minutes",
        type=whole_number(1),
        metavar="M",
        help=f"begin no run after so many ({MINUTES}); with --json the same command resumes",
    )
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw the rows as well")
    parser.add_argument("--estimate", action="store_true", help="say how long it will take; end")


def run(args: argparse.Namespace) -> int:
    """Measure, print, draw; rows are written one run after the other."""
    if reason := problem(args):
        raise bench.Refused(reason)
    with bench.progress(quiet=args.quiet) as progress:
        found = rows(args, progress)
    show(found, args)
    if args.figures:
        from .figure import write

        write(found, args.figures)
    return 0


def problem(args: argparse.Namespace) -> str:
    """What cannot work, or nothing."""
    if args.figures and not find_spec("matplotlib"):
        return "--figures needs matplotlib: pip install 'cocd[demo]'"
    for suite in args.suite or ():
        sizes = COCO_DIMENSIONS.get(suite) or (
            SUITES[suite].dimensions if suite == "digits" else ()
        )
        wrong = [n for n in args.dimension or () if sizes and n not in sizes]
        if wrong:
            return f"{suite} has no problem of dimension {wrong[0]}: {', '.join(map(str, sizes))}"
    if args.dimension and not args.suite and not args.quick:
        return "--dimension needs --suite, to say of which"
    chosen = _chosen(args)
    if all(reason for reason in chosen.no_suite.values()):
        return next(iter(chosen.no_suite.values()))
    if not chosen.methods:
        return next(iter(chosen.no_method.values()))
    if args.json and args.json.exists():
        try:
            store.load(args.json)
        except ValueError as error:
            return str(error)
    return ""


@dataclass(frozen=True)
class Chosen:
    """What is to be run, and what is not there to be run."""

    runs: list[Run]
    methods: list[str]
    no_method: dict[str, str]
    no_suite: dict[str, str]


def _chosen(args: argparse.Namespace) -> Chosen:
    if args.quick:
        fallback = vars(_QUICK)
        args = argparse.Namespace(
            **{
                name: fallback.get(name) if value is None else value
                for name, value in vars(args).items()
            }
        )
    wanted = args.method or list(METHODS)
    reasons = {m: missing(METHODS[m].needs, METHODS[m].extra) for m in wanted}
    no_suite = {
        suite: missing(SUITES[suite].needs, SUITES[suite].extra) for suite in args.suite or SUITES
    }
    names = [name for name, reason in reasons.items() if not reason]
    problems = [
        Problem(
            suite,
            function,
            n,
            instance,
            "random" if args.random_start and suite in COCO_DIMENSIONS else "centre",
            args.bounds and suite != "digits",
        )
        for suite, reason in no_suite.items()
        if not reason
        for n in args.dimension or SUITES[suite].dimensions
        for instance in args.instance or SUITES[suite].instances
        for function in range(1, len(SUITES[suite].functions) + 1)
        if not args.function or len(SUITES[suite].functions) == 1 or function in args.function
    ]
    runs = plan(
        problems,
        names,
        lambda problem: tuple(args.budget or SUITES[problem.suite].budgets),
        args.seed or 0,
    )
    return Chosen(runs, names, {m: r for m, r in reasons.items() if r}, no_suite)


def rows(args: argparse.Namespace, progress: bench.Report) -> list[Row]:
    """Measure what is not in the file yet; the rows of what was asked for."""
    chosen = _chosen(args)
    found = store.load(args.json) if args.json else []
    _announce(args, chosen, found)
    if args.estimate:
        return []
    path = args.json
    found = measure(
        chosen.runs,
        found,
        minutes=args.minutes or MINUTES,
        keep=(lambda rows: store.save(rows, path)) if path else (lambda rows: None),
        report=progress,
    )
    if (left := len(_left(chosen.runs, found))) and not args.quiet:
        remedy = "the same command resumes" if path else "--json would keep them"
        print(f"{left:,} of {len(chosen.runs):,} runs are left: {remedy}.", file=sys.stderr)
    asked = {one for run in chosen.runs for one in run.keys}
    return [row for row in found if key(row) in asked]


def _left(runs: list[Run], rows: list[Row]) -> list[Run]:
    known = {key(row) for row in rows}
    return [run for run in runs if not known.issuperset(run.keys)]


def _announce(args: argparse.Namespace, chosen: Chosen, rows: list[Row]) -> None:
    """What will be done and how long it takes, before it is; what is not there, and why."""
    if args.quiet and not args.estimate:
        return
    for name, reason in {**chosen.no_method, **chosen.no_suite}.items():
        if reason:
            print(f"Without {name}: {reason}", file=sys.stderr)
    left = _left(chosen.runs, rows)
    evaluations = sum(run.maxfev for run in left)
    text = f"{len(left):,} of {len(chosen.runs):,} runs to do, {evaluations:,} evaluations"
    if args.estimate or not args.quick:
        text += f", about {estimate(left) / 60:,.1f} minutes"
    print(f"{text}.", file=sys.stderr, flush=True)


def show(rows: list[Row], args: argparse.Namespace) -> None:
    """The tables of what was measured, and the losses by name."""
    skipped = _chosen(args).no_method
    for (suite, _), mine in report.groups(rows).items():
        if suite == "overhead":
            bench.show(*report.overheads(mine, skipped))
            continue
        for table in (report.ranking(mine, skipped), report.duels(mine), report.figures(mine)):
            if table is not None:
                bench.show(*table)
        print("\n".join(report.losses(mine) + report.failures(mine)))
