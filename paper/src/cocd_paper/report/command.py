"""The subcommand: its options, and the order of things."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from ..cli import writable
from . import figures
from .markdown import markdown
from .page import page
from .read import Rows, read
from .sections import Section, sections


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cocd-paper report``."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the rows are")
    parser.add_argument("--open", action="store_true", help="show the page in the browser")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (DIR/report)")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="write a page of documentation, too, with its pictures in figures/ beside it",
    )


def run(args: argparse.Namespace) -> int:
    """Write ``index.html`` and ``figures/``, say where they are and what could not be read."""
    out = args.out or args.folder / "report"
    try:
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out {out} is a file; give a folder")
        if args.markdown is not None and args.markdown.is_dir():
            raise ValueError(f"--markdown {args.markdown} is a folder; name a file in it")
        rows = read(args.folder)
        for problem in rows.problems:
            print(f"cocd-paper report: {problem}", file=sys.stderr)
        if not rows.results:
            raise ValueError(f"there are no rows below {args.folder}: run a plan first")
        made = sections(rows.results)
        with writable("--out", out):
            page_file = write(rows, made, out)
        print(page_file)
        if args.markdown is not None:
            with writable("--markdown", args.markdown):
                print(write_markdown(rows, made, args.markdown))
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        print(f"cocd-paper report: {error}", file=sys.stderr)
        return 2
    if args.open and not webbrowser.open(page_file.resolve().as_uri()):
        print(f"cocd-paper report: no browser found; open {page_file} by hand", file=sys.stderr)
    return 0


def write(rows: Rows, made: Sequence[Section], out: Path) -> Path:
    """The page and all figures below `out`; gives the page."""
    out.mkdir(parents=True, exist_ok=True)
    for section in made:
        for chart in (*section.charts, *section.coherence.most):  # the rest is on the page alone
            figures.write(chart, out / "figures")
    file = out / "index.html"
    file.write_text(page(rows, made), encoding="utf-8")
    return file


def write_markdown(rows: Rows, made: Sequence[Section], file: Path) -> Path:
    """The page of documentation and the pictures that it shows; gives the page."""
    folder = file.parent / "figures"
    for section in made:
        for chart in (*section.charts, *section.coherence.most):
            figures.write(chart, folder, kinds=("svg",))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(markdown(rows, made), encoding="utf-8")
    return file
