"""Parts of a page that needs no network."""

from __future__ import annotations

from importlib.resources import files


def asset(package: str, name: str) -> str:
    """The text of a file that comes with `package`."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def style() -> str:
    """The style sheet that all pages begin with: colours, text, tables, charts."""
    return asset(__package__ or "", "base.css")
