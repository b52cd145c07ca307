"""`Run`: everything that decides a run, frozen, and its identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

Setting = float | int | str
Settings = tuple[tuple[str, Setting], ...]

SPLITS = ("test", "validation", "published")


@dataclass(frozen=True)
class Run:
    """One training or measurement, described completely: equal runs give equal rows.

    `settings` may be given as a mapping; it is kept as sorted pairs. An epoch is
    `steps_per_epoch` steps, not a pass over the data; an equal share of the evaluations where the
    compute budget is "auto".

    >>> run = Run("table-main", "sarcos", "cocd", "CoCD", {"lr": 1e-3, "eps": 1.0})
    >>> run.settings
    (('eps', 1.0), ('lr', 0.001))
    >>> run.key
    'cocd-s0-72d5b275'
    >>> Run.from_row(run.to_row()) == run
    True
    """

    plan: str
    task: str
    method: str
    label: str
    settings: Settings | Mapping[str, Setting]
    seed: int = 0
    epochs: int = 1
    steps_per_epoch: int = 1
    group: str = ""
    vary: str = ""
    split: str = "test"
    smoke: bool = False
    carry: bool = False

    def __post_init__(self) -> None:
        pairs = self.settings.items() if isinstance(self.settings, Mapping) else self.settings
        settings = tuple(sorted((str(name), value) for name, value in pairs))
        for name, value in settings:
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                raise ValueError(f"settings: {name}={value!r} must be a number or a string")
        object.__setattr__(self, "settings", settings)
        if self.split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {self.split!r}")
        if self.vary and self.vary not in dict(settings):
            raise ValueError(f"vary={self.vary!r} must be one of the settings")

    @property
    def options(self) -> dict[str, Setting]:
        """The settings as a dict of its own."""
        return dict(self.settings)

    @property
    def digest(self) -> str:
        """A hash of everything."""
        text = json.dumps(self.to_row(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def key(self) -> str:
        """A short stable identity, usable as a folder name."""
        varied = f"{self.vary}={self.options[self.vary]}" if self.vary else ""
        parts = [self.method, varied, f"s{self.seed}", self.digest[:8]]
        return "-".join(part for part in parts if part)

    def to_row(self) -> dict[str, Any]:
        """All fields, as JSON has them."""
        row = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**row, "settings": self.options}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Run:
        """The run that a row describes; other keys of the row are not its business."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: row[name] for name in names if name in row})
