"""Every `python` block of every page runs, in order, as a reader would paste it.

Fragments that need more than the page are marked `py`.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def blocks(page: Path) -> list[str]:
    return [b for b in BLOCK.findall(page.read_text()) if not b.lstrip().startswith(">>>")]


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_the_code_of_a_page_runs_as_printed(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(blocks(page), 1):
        code = compile(block, f"{page.name}, block {number}", "exec")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a page may show one, and libraries have their own
            exec(code, namespace)


def test_a_public_name_without_an_entry_in_the_reference_is_found() -> None:
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("names", ROOT / "docs" / "public_names.py")
    assert spec is not None and spec.loader is not None
    names = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(names)
    everything = set(names.undocumented(()))
    assert {"cocd.AutoCoCD", "cocd.rules.flow", "cocd.integrations.Steps"} <= everything
    assert names.undocumented(everything) == []
    assert names.undocumented(everything - {"cocd.minimize"}) == ["cocd.minimize"]
