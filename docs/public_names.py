"""The build of the site fails if a public name has no entry in the API reference."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.exceptions import PluginError

import cocd
import cocd.integrations


def public_names(module: ModuleType) -> Iterator[str]:
    """Full names of everything that a module and its public modules export."""
    for name in module.__all__:
        value = getattr(module, name)
        if not isinstance(value, ModuleType):
            yield f"{module.__name__}.{name}"
        elif hasattr(value, "__all__"):
            yield from public_names(value)


def undocumented(entries: Collection[str]) -> list[str]:
    """Public names that are missing from the entries of the reference."""
    names = [*public_names(cocd), *public_names(cocd.integrations)]
    return [name for name in names if name not in entries and not name.endswith("__")]


def on_post_build(config: Any, **_: Any) -> None:
    """mkdocs calls this last; mkdocstrings has written the inventory of the reference by then."""
    packed = (Path(config["site_dir"]) / "objects.inv").read_bytes().split(b"\n", 4)[4]
    entries = {line.split(" ")[0] for line in zlib.decompress(packed).decode().splitlines()}
    if missing := undocumented(entries):
        raise PluginError(f"no entry in docs/reference for {', '.join(missing)}")
