"""The subcommand: its options, and the order of things."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from ..cli import writable
from . import figures
from .markdown import fill
from .page import page
from .read import read
from .sections import Section, sections


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cocd-paper report``."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with rows")
    parser.add_argument("--open", action="store_true", help="show the page in the browser")
    parser.add_argument("--out", type=Path, metavar="DIR", help="output folder (DIR/report)")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="update the tables of this page of documentation, and its pictures in figures/",
    )


def run(args: argparse.Namespace) -> int:
    """Write ``index.html`` and ``figures/``, say where they are and what could not be read."""
    out = args.out or args.folder / "report"
    try:
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out {out} is a file; give a folder")
        if args.markdown is not None and not args.markdown.is_file():
            raise ValueError(f"--markdown {args.markdown} is not a file; name a page with tables")
        rows = read(args.folder)
        for problem in rows.problems:
            print(f"cocd-paper report: {problem}", file=sys.stderr)
        if not rows.results:
            raise ValueError(f"there are no rows below {args.folder}: run a plan first")
        made = sections(rows.results)
        file = out / "index.html"
        with writable("--out", out):
            out.mkdir(parents=True, exist_ok=True)
            draw(made, out / "figures", ("png", "svg"))
            file.write_text(page(rows, made), encoding="utf-8")
        print(file)
        if args.markdown is not None:
            with writable("--markdown", args.markdown):
                text = fill(args.markdown.read_text(encoding="utf-8"), made)
                draw(made, args.markdown.parent / "figures", ("svg",))
                args.markdown.write_text(text, encoding="utf-8")
            print(args.markdown)
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        print(f"cocd-paper report: {error}", file=sys.stderr)
        return 2
    if args.open and not webbrowser.open(file.resolve().as_uri()):
        print(f"cocd-paper report: no browser found; open {file} by hand", file=sys.stderr)
    return 0


def draw(made: Sequence[Section], folder: Path, kinds: Sequence[str]) -> None:
    """All charts, as pictures of these kinds."""
    for section in made:
        for chart in section.charts:
            figures.write(chart, folder, kinds)
