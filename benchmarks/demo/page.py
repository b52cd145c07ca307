"""The results as one HTML page that needs no network: table, charts, settings."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from cocd_paper.style.colours import colour
from cocd_paper.style.page import asset, style

from .chart import chart
from .look import COLUMNS, cells, settings
from .results import Results, note


def write(results: Results, path: Path) -> None:
    """Write `results` as a page."""
    path.write_text(page(results), encoding="utf-8")


def page(results: Results) -> str:
    """The page as text: no link, image, font or script from elsewhere."""
    task, rows = results["task"], results["rows"]
    charts = "".join(
        f"<figure><h2>{title.capitalize()}</h2>{chart(rows, key, title, percent=percent)}</figure>"
        for key, title, percent in (
            ("test_accuracy", "test accuracy", True),
            ("test_loss", "test loss", False),
        )
    )
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>cocd demo</title>
<style>{style()}{_file("page.css")}</style>
</head>
<body>
<h1>Handwritten digits, learnt without gradients</h1>
<p>A tanh network of {task["parameters"]:,} parameters, {task["training_rows"]:,} digits to learn
from, {task["test_rows"]:,} to be judged by. {escape(note(results))}</p>
<div class="charts">{charts}</div>
<table>
<thead><tr>{"".join(f"<th>{name}</th>" for name in (*COLUMNS, "settings"))}</tr></thead>
<tbody>{"".join(map(_row, rows))}</tbody>
</table>
<footer>Batches of {task["batch"]}, seed {results["seed"]}; {escape(versions)}. Seconds are of
training alone; threads: {results["machine"]["threads"]}.</footer>
<div id="tip"></div>
<script>{_file("page.js")}</script>
</body>
</html>
"""


def _row(row: dict[str, Any]) -> str:
    dot = f'<span class="dot" style="background:{colour(row["method"])}"></span>'
    first, *others = (f"{escape(cell)}</td>" for cell in [*cells(row), settings(row)])
    return f"<tr><td>{dot}{first}{''.join(f'<td>{cell}' for cell in others)}</tr>"


def _file(name: str) -> str:
    return asset(__package__ or "", name)
