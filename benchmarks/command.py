"""The subcommand: its options, and the order of things."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from . import blocks, measure, overhead, precision, report, scaling, scaling_ranks
from .blackbox import options as blackbox
from .lane import ENGINES, accelerator
from .workloads import MNIST, ON_REQUEST, SARCOS, WORKLOADS

SUBJECTS = ("engines", "scaling", "precision", "overhead", "ranks", "blackbox")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cocd bench``."""
    parser.add_argument(
        "subject",
        nargs="?",
        choices=SUBJECTS,
        default="engines",
        help="engines: a step of each engine on each workload; scaling: over B and over n; "
        "precision: errors against float64; overhead: a step beside its bare evaluations; ranks: "
        "what cocd.distributed would gain on 2 to 1,024 of them; blackbox: cocd.minimize beside "
        "its peers, at equal evaluations (%(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    parser.add_argument(
        "--figures",
        type=Path,
        metavar="FOLDER",
        help="with ranks and blackbox, draw the rows as well",
    )
    parser.add_argument(
        "--workload",
        nargs="+",
        choices=[*WORKLOADS, *ON_REQUEST],
        metavar="NAME",
        help=f"with engines, these only: {', '.join(WORKLOADS)}; or, which is not in the table, "
        f"{', '.join(ON_REQUEST)}",
    )
    parser.add_argument(
        "--engine",
        nargs="+",
        choices=list(ENGINES),
        metavar="NAME",
        help="with engines, these only: accelerated (incremental, with the fused kernels), "
        "incremental (with plain tensor operations), batched, sequential",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a small sample: it shows that it works, not more"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    blackbox.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, print, write."""
    if problem := _problem(args):
        print(f"cocd bench: {problem}", file=sys.stderr)
        return 2
    with report.progress(quiet=args.quiet) as progress:
        rows = _MEASURE[args.subject](args, progress)
    if args.subject == "blackbox":  # it has written its rows, one run after the other
        blackbox.show(rows, args)
    else:
        if args.json:
            report.write(rows, args.json)
        _SHOW[args.subject](rows)
    if args.figures:
        _draw(args.subject, rows, args.figures)
    return 0


def _draw(subject: str, rows: list[report.Row], folder: Path) -> None:
    if subject == "ranks":
        from .ranks_figure import write
    else:
        from .blackbox.figure import write
    write(rows, folder)


def _problem(args: argparse.Namespace) -> str:
    """What cannot work, found before the minutes are spent."""
    if args.subject != "engines" and (args.workload or args.engine):
        return f"--workload and --engine do not go with {args.subject}"
    if args.subject != "blackbox" and (used := blackbox.given(args)):
        verb = "does" if len(used) == 1 else "do"
        return f"{' and '.join(used)} {verb} not go with {args.subject}"
    if args.figures and args.subject not in ("ranks", "blackbox"):
        return f"--figures does not go with {args.subject}"
    if args.figures and not find_spec("matplotlib"):
        return "--figures needs matplotlib: pip install 'cocd[demo]'"
    if args.engine == ["accelerated"] and not accelerator():
        return "the accelerator is not there or off: pip install 'cocd[fast]'"
    if args.json:
        try:
            args.json.touch()
        except OSError as error:
            return f"cannot write to {args.json}: {error.strerror}"
    return blackbox.problem(args) if args.subject == "blackbox" else ""


def _engines(args: argparse.Namespace, progress: report.Report) -> list[report.Row]:
    chosen = args.engine or list(ENGINES)
    engines = [e for e in ENGINES if e in chosen and (e != "accelerated" or accelerator())]
    known = {**WORKLOADS, **ON_REQUEST}
    names = [name for name in known if name in (args.workload or WORKLOADS)]
    effort = blocks.QUICK if args.quick else blocks.FULL
    rows: list[report.Row] = []
    for i, name in enumerate(names):
        rows += measure.measure(
            known[name],
            engines,
            effort,
            lambda text, share, i=i: progress(text, (i + share) / len(names)),  # type: ignore[misc]
        )
    return rows


def _scaling(args: argparse.Namespace, progress: report.Report) -> list[report.Row]:
    if not args.quick:
        return scaling.scaling(report=progress)
    return scaling.scaling(
        scaling.QUICK_SIZES, scaling.QUICK_BUDGETS, rounds=scaling.QUICK_ROUNDS, report=progress
    )


def _precision(args: argparse.Namespace, progress: report.Report) -> list[report.Row]:
    if not args.quick:
        return precision.precision(report=progress)
    return precision.precision((1e-6, 1e-3, 1.0), (SARCOS, MNIST), samples=2, report=progress)


def _overhead(args: argparse.Namespace, progress: report.Report) -> list[report.Row]:
    pairs = overhead.QUICK_PAIRS if args.quick else overhead.PAIRS
    return overhead.overhead(pairs=pairs, report=progress)


def _ranks(args: argparse.Namespace, progress: report.Report) -> list[report.Row]:
    if not args.quick:
        return scaling_ranks.scaling_ranks(report=progress)
    lanes = scaling_ranks.default_lanes()[:1]
    return scaling_ranks.scaling_ranks(lanes, count=3, rounds=1, repeats=50, report=progress)


def _show_engines(rows: list[report.Row]) -> None:
    threads = report.environment()["threads"]
    report.show(f"One step of CoCD, {threads} threads", *report.engines_table(rows), words=2)
    if not accelerator():
        print("Without the accelerator, which cocd[fast] brings.")


def _show_scaling(rows: list[report.Row]) -> None:
    title = f"A step over n and over B, last layer of a wide MLP, {rows[0]['engine']} engine"
    report.show(title, *scaling.table(rows))
    print("\n".join(scaling.summary(rows)))


def _show_precision(rows: list[report.Row]) -> None:
    print(report.markdown(*precision.table(rows)))


def _show_overhead(rows: list[report.Row]) -> None:
    print(overhead.sentence(rows[0]))


def _show_ranks(rows: list[report.Row]) -> None:
    title = "Milliseconds a step (and the share of communication) over ranks: a simulation"
    report.show(title, *scaling_ranks.table(rows), words=0)
    print("\n".join(scaling_ranks.summary(rows)))


_MEASURE = {
    "engines": _engines,
    "scaling": _scaling,
    "precision": _precision,
    "overhead": _overhead,
    "ranks": _ranks,
    "blackbox": blackbox.rows,
}
_SHOW = {
    "engines": _show_engines,
    "scaling": _show_scaling,
    "precision": _show_precision,
    "overhead": _show_overhead,
    "ranks": _show_ranks,
}
