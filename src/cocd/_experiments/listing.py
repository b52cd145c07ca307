"""``cocd list``: the plans, what each is and what it costs here."""

from __future__ import annotations

import argparse

import torch
from rich.console import Console
from rich.table import Table

from . import costs, plans


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cocd list``."""
    parser.add_argument(
        "--quick", action="store_true", help="take the stored times as they are, measure nothing"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        speed = 1.0 if args.quick else costs.measure_speed()
    finally:
        torch.set_num_threads(threads)
    table = Table(caption=caption(speed, args.quick), caption_justify="left")
    for name in ("plan", "what it is"):
        table.add_column(name, overflow="fold")
    for name in ("task", "runs", "epochs", "time"):
        table.add_column(name, justify="left" if name == "task" else "right", no_wrap=True)
    for cells in rows(speed):
        if cells[0]:
            table.add_section()
        table.add_row(*cells)
    Console().print(table)
    return 0


def rows(speed: float) -> list[tuple[str, str, str, str, str, str]]:
    """A line for each plan and task; one seed.

    >>> rows(1.0)[0][:4]
    ('table-main', '...', 'sarcos', '3...')
    """
    lines = []
    for plan, module in plans.PLANS.items():
        name, about = plan, module.ABOUT
        for task in (*module.TASKS, *getattr(module, "OPTIONAL", ())):
            made = list(plans.generate(plan, tasks=[task]))
            time = costs.duration(sum(costs.seconds(run, speed) for run in made))
            epochs = str(module.EPOCHS or "-")
            lines.append((name, about, task, str(len(made)), epochs, time))
            name = about = ""
    return lines


def caption(speed: float, quick: bool) -> str:
    """Where the times come from."""
    if quick:
        source = "Times are stored ones, of another machine."
    else:
        source = (
            f"Times are stored ones, scaled by {1 / speed:.2f}: what a step of CoCD on SARCOS took "
            "here just now over what it took there."
        )
    return f"{source} One seed, one thread; two processes share a plan and halve them."
