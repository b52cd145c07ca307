"""The command ``cocd-paper``: one line in `COMMANDS` for each subcommand.

A subcommand is a module with ``add_arguments(parser)`` and ``run(args) -> exit code``. It is
imported only when it is called.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cocd import __version__


class Command(NamedTuple):
    """A subcommand."""

    name: str
    help: str
    module: str


COMMANDS = (
    Command("data", "find or download the paper's data", "cocd_paper.data.command"),
    Command("list", "the plans, and what each costs here", "cocd_paper.listing"),
    Command("reproduce", "run the experiments of a table or figure", "cocd_paper.reproduce"),
    Command("llm", "fine-tune a language model by forward passes", "cocd_paper.llm.command"),
    Command("report", "rows as tables, figures and a page", "cocd_paper.report.command"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    >>> main([])  # doctest: +ELLIPSIS
    usage: cocd-paper ...
    2
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["version"]:
        argv = ["--version"]
    # The program's own options take no values: the first word is the subcommand.
    word = next((arg for arg in argv if not arg.startswith("-")), None)
    command = next((c for c in COMMANDS if c.name == word), None)
    try:
        code = _run(command, argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("cocd-paper: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read what is printed has seen enough, such as `head`
        silence()
        return 141


def silence() -> None:
    """Nothing that is still to be printed finds the closed pipe again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _run(command: Command | None, argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="cocd-paper", description="The experiments of the CoCD paper, run with cocd."
    )
    parser.add_argument("--version", action="version", version=f"cocd-paper {__version__}")
    subparsers = parser.add_subparsers(metavar="command")
    parsers = {c.name: subparsers.add_parser(c.name, help=c.help) for c in COMMANDS}
    if command is None:
        parser.parse_args(argv)  # --help, --version or a mistake: none of them returns
        parser.print_help()
        return 2
    module = importlib.import_module(command.module)
    parsers[command.name].description = command.help
    module.add_arguments(parsers[command.name])
    return int(module.run(parser.parse_args(argv)))


@contextmanager
def writable(option: str, path: Path) -> Iterator[None]:
    """What goes wrong while `path` is written becomes a sentence about the option that named it."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise ValueError(
            f"{option} {path} cannot be written ({why}); give another place"
        ) from error


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """An argparse type: a whole number from `low` to `high`.

    >>> whole_number(1)("12")
    12
    >>> whole_number(1)("0")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: '0' is not a whole number of at least 1
    """
    expected = f"of at least {low}" if high is None else f"from {low} to {high}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {expected}")
        return value

    return parse
