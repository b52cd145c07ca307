"""The subcommand ``cocd-paper data``: what is there, and getting what is not."""

from __future__ import annotations

import argparse
import sys

from .files import FILES, NAMES, DataError, Place, get, place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cocd-paper data``."""
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    status = actions.add_parser("status", help="what is there; exits with 1 if not all of it is")
    fetch = actions.add_parser("get", help="download what is missing or damaged")
    for action in (status, fetch):
        action.add_argument(
            "name",
            nargs="?" if action is status else None,
            choices=[*NAMES, "all"],
            default="all",
            metavar="NAME",
            help=f"{', '.join(NAMES)} or all",
        )
        action.add_argument(
            "--data",
            metavar="DIR",
            help="the data folder (COCD_DATA, else a folder in the user's cache)",
        )


def run(args: argparse.Namespace) -> int:
    """Do it; 1 if a set is missing or damaged, or could not be had."""
    names = NAMES if args.name == "all" else (args.name,)
    try:
        where = place(args.data)
    except DataError as error:
        print(f"cocd-paper data: {error}", file=sys.stderr)
        return 1
    act = _status if args.action == "status" else _get
    return max([act(name, where) for name in names])


def _status(name: str, where: Place) -> int:
    wrong = where.problems(name)
    there = [path for path in FILES[name] if (where.folder / path).is_file()]
    damaged = any(path in wrong for path in there)
    state = "damaged" if damaged else "incomplete" if wrong and there else "missing"
    print(f"{name:8} {state if wrong else 'complete':10} {where.folder}")
    if wrong:
        first = next((path for path in there if path in wrong), next(iter(wrong)))
        print(f"  {wrong[first]}")
    return int(bool(wrong))


def _get(name: str, where: Place) -> int:
    try:
        news = get(name, where)
    except DataError as error:
        print(f"cocd-paper data: {error}", file=sys.stderr)
        return 1
    print(f"{name}: {'complete' if news else 'already complete'} in {where.folder}")
    return 0
