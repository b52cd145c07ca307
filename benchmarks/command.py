"""The command line of the benchmarks: one subject, and its options."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from . import report

# Subject -> its module and what it measures.
SUBJECTS = {
    "engines": ("benchmarks.engines", "a step of each engine on each workload"),
    "scaling": ("benchmarks.scaling", "a step over B and over n"),
    "precision": ("benchmarks.precision", "errors of float32 differences against float64"),
    "overhead": ("benchmarks.overhead", "a step beside the bare evaluations that it makes"),
    "gradients": ("benchmarks.gradients", "a gradient that is followed along a random walk"),
    "bases": ("benchmarks.bases", "AutoCoCD along axes and along a random basis"),
    "policies": ("benchmarks.policies", "WASP and others on a robot, at equal episodes"),
    "mezo": ("benchmarks.mezo", "a step of MeZO beside the loop by which it is known"),
    "language-model": ("benchmarks.language_model", "a language model, layer by layer"),
    "unit-probes": ("benchmarks.unit_probes", "seconds to the paper's final score of CoCD"),
    "unit-positions": ("benchmarks.unit_positions", "how noisy slopes by unit probes are"),
    "suite": ("benchmarks.suite.options", "AutoCoCD beside tuned peers on small problems"),
    "blackbox": ("benchmarks.blackbox.options", "cocd.minimize beside its peers"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subject; returns the exit code.

    >>> main([])  # doctest: +ELLIPSIS
    usage: python benchmarks ...
    2
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python benchmarks", description=__doc__)
    subparsers = parser.add_subparsers(metavar="subject")
    for name, (module, purpose) in SUBJECTS.items():
        own = subparsers.add_parser(name, help=purpose, description=purpose)
        own.add_argument(
            "--json", type=report.writable, metavar="FILE", help="write the rows there as well"
        )
        own.add_argument(
            "--quick", action="store_true", help="a small sample: that it works, not more"
        )
        own.add_argument("--quiet", action="store_true", help="no progress display")
        if name in argv:  # the others are not imported
            found = importlib.import_module(module)
            found.add_arguments(own)
            own.set_defaults(run=found.run)
    args = parser.parse_args(argv)
    if not argv:
        parser.print_help()
        return 2
    try:
        return int(args.run(args))
    except report.Refused as error:
        print(f"benchmarks {argv[0]}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("benchmarks: interrupted", file=sys.stderr)
        return 130
