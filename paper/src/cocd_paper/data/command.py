"""The subcommand ``cocd-paper data``: what is there, and getting what is not."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cocd.errors import DataError

from .contents import Found, Place, inspect, overall, place
from .install import get
from .places import NAMES
from .progress import size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cocd-paper data``."""
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    status = actions.add_parser("status", help="what is there; exits with 1 if not all of it is")
    status.add_argument(
        "names", nargs="*", type=_name, metavar="NAME", help=f"{', '.join(NAMES)}; default: all"
    )
    fetch = actions.add_parser("get", help="download what is missing or damaged")
    fetch.add_argument(
        "name", choices=[*NAMES, "all"], metavar="NAME", help=f"{', '.join(NAMES)} or all"
    )
    for action in (status, fetch):
        action.add_argument(
            "--data",
            metavar="DIR",
            help="the data folder (COCD_DATA, else a folder in the user's cache)",
        )


def run(args: argparse.Namespace) -> int:
    """Do it; 1 if a set is missing or damaged, or could not be had."""
    try:
        where = place(args.data)
    except DataError as error:
        return _fail(str(error))
    if args.action == "status":
        return _status(args.names or NAMES, where)
    return _get(args.name, where)


def _name(text: str) -> str:
    if text not in NAMES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(NAMES)}")
    return text


def _status(names: Sequence[str], where: Place) -> int:
    found = {name: inspect(name, where) for name in names}
    rows = [("set", "state", "size", "where")]
    for name, parts in found.items():
        rows.append((name, overall(parts), _size(parts), str(parts[0].files[0].parent)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, state, amount, folder in rows:
        print(f"{name:<{widths[0]}}  {state:<{widths[1]}}  {amount:>{widths[2]}}  {folder}")
    for parts in found.values():
        problem = next((part.problem for part in parts if part.problem), None)
        if problem:
            print(problem)
    return int(any(overall(parts) != "complete" for parts in found.values()))


def _get(name: str, where: Place) -> int:
    code = 0
    for each in NAMES if name == "all" else (name,):
        try:
            news = get(each, where)
        except DataError as error:
            code = _fail(str(error))
            continue
        parts = inspect(each, where) if news else []
        problem = next((part.problem for part in parts if part.problem), None)
        if problem:
            code = _fail(problem)
        else:
            print(f"{each}: {'complete' if news else 'already complete'} in {where.folder}")
    return code


def _size(parts: list[Found]) -> str:
    count = sum(file.stat().st_size for part in parts for file in part.files if file.is_file())
    return size(count) if count else "-"


def _fail(sentence: str) -> int:
    print(f"cocd-paper data: {sentence}", file=sys.stderr)
    return 1
