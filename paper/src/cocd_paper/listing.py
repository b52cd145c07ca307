"""``cocd-paper list``: the plans, what each is and what it costs here."""

from __future__ import annotations

import argparse

import torch

from . import costs, plans


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cocd-paper list``."""
    parser.add_argument(
        "--quick", action="store_true", help="use the stored times; measure nothing"
    )


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        speed = 1.0 if args.quick else costs.measure_speed()
    finally:
        torch.set_num_threads(threads)
    print("\n".join([*lines(speed), "", caption(speed, args.quick)]))
    return 0


def lines(speed: float) -> list[str]:
    """What each plan is, then a line for each of its tasks; one seed.

    >>> lines(1.0)[:2]
    ['table-main: ...', '  sarcos ... runs ... epochs ...']
    """
    out = []
    for plan, module in plans.PLANS.items():
        out.append(f"{plan}: {module.ABOUT}")
        for task in (*module.TASKS, *getattr(module, "OPTIONAL", ())):
            made = list(plans.generate(plan, tasks=[task]))
            time = costs.duration(sum(costs.seconds(run, speed) for run in made))
            epochs = f"{module.EPOCHS:>2} epochs" if module.EPOCHS else " " * 9
            out.append(f"  {task:<20}{len(made):>3} runs  {epochs}  {time:>10}")
    return out


def caption(speed: float, quick: bool) -> str:
    """Where the times come from."""
    if quick:
        source = "Times are stored ones, of another machine."
    else:
        source = (
            f"Times are stored ones, scaled by {1 / speed:.2f}: what a step of CoCD on SARCOS\n"
            "took here just now over what it took there."
        )
    return f"{source} One seed, one thread;\ntwo processes share a plan and halve them."
