"""Formulas between $$ and $$ become MathML when the site is built, so pages load nothing."""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r"^\$\$(.+?)\$\$$", re.M | re.S)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What mkdocs calls for each page."""
    return FORMULA.sub(lambda found: convert(found[1].strip(), display="block"), markdown)
