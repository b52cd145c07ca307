"""Pages for contributors name files that exist, and every folder of the library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("docs/design.md", "CONTRIBUTING.md", "paper/README.md")
PATH = re.compile(r"`([\w./-]+(?:\.py|\.md|/))`")
OTHERS = ("runs/", "site/", "build/", "dist/")  # what programs write


def named(page: Any) -> Iterator[Any]:
    """(path, the folders that it may be relative to): the root, those of its section's title."""
    folders = [ROOT, ROOT / "paper/src/cocd_paper"] if page.startswith("paper") else [ROOT]
    for line in (ROOT / page).read_text("utf-8").splitlines():
        paths = [path for path in PATH.findall(line) if not path.startswith(OTHERS)]
        if line.startswith("#") and paths:
            sections = [ROOT / path for path in paths]
            folders = [ROOT, *sections, *(section.parent for section in sections)]
        for path in paths:
            yield path, folders


def exists(path: Any, folders: Any) -> Any:
    return any((folder / path).exists() for folder in folders)


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    paths = list(named(page))
    assert paths
    assert not [path for path, folders in paths if not exists(path, folders)]


def test_the_design_names_every_folder_of_the_library() -> None:
    text = (ROOT / "docs/design.md").read_text("utf-8")
    source = ROOT / "src/cocd"
    folders = {p.parent.relative_to(source) for p in source.rglob("__init__.py")} - {Path()}
    assert not [str(folder) for folder in folders if f"{folder.name}/" not in text]
