"""Compare the engines on a workload, one row for each.

The engines take turns, a few steps at a time, so that a noisy machine slows all of them. If there
is time for several rounds, the median time of each block counts.
"""

from __future__ import annotations

import argparse
import warnings
from statistics import median
from time import perf_counter

from cocd_paper.peak import peak_extra_bytes

from cocd import EngineWarning

from . import report as output
from .blocks import FULL, QUICK, Block, Effort, cycle, first_of_each_shape, plan, probed
from .report import Report, Row
from .stepper import ENGINES, Step, Stepper, accelerator
from .workloads import ON_REQUEST, WORKLOADS, Workload

_TURNS = 8  # parts of a round; the engines alternate after each


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--workload",
        nargs="+",
        choices=[*WORKLOADS, *ON_REQUEST],
        default=list(WORKLOADS),
        metavar="NAME",
        help=f"these only: {', '.join(WORKLOADS)}; or, which is not in the table, "
        f"{', '.join(ON_REQUEST)}",
    )
    parser.add_argument(
        "--engine",
        nargs="+",
        choices=list(ENGINES),
        default=list(ENGINES),
        metavar="NAME",
        help="these only: accelerated (incremental, with the fused kernels), incremental (with "
        "plain tensor operations), batched, sequential",
    )


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    engines = [e for e in args.engine if e != "accelerated" or accelerator()]
    if not engines:
        raise output.Refused("the accelerator is not there or off: pip install 'cocd[fast]'")
    effort, known, names = QUICK if args.quick else FULL, {**WORKLOADS, **ON_REQUEST}, args.workload

    def all_workloads(report: Report) -> list[Row]:
        rows: list[Row] = []
        for i, name in enumerate(names):

            def part(text: str, share: float, i: int = i) -> None:
                report(text, (i + share) / len(names))

            rows += measure(known[name], engines, effort, part)
        return rows

    rows = output.run(args, all_workloads)
    threads = output.environment()["threads"]
    output.show(f"One step of CoCD, {threads} threads", *output.engines_table(rows), words=2)
    if not accelerator():
        print("Without the accelerator, which cocd[fast] brings.")
    return 0


def measure(
    workload: Workload,
    engines: list[str],
    effort: Effort = FULL,
    report: Report = lambda *_: None,
) -> list[Row]:
    """A row for each engine."""
    model, data = workload.model(), workload.data()

    def stepper_of(engine: str) -> Stepper:
        return Stepper(engine, model, workload.loss, data, workload.settings)

    steppers = [stepper_of(engine) for engine in engines]
    plans = [plan(stepper, workload, effort) for stepper in steppers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EngineWarning)  # the rows say who probed what
        for i, (stepper, blocks) in enumerate(zip(steppers, plans, strict=True)):
            report(f"{workload.name}: warming up {stepper.engine}", 0.15 * i / len(steppers))
            _warm_up(stepper, blocks)
        times = _rounds(workload, steppers, plans, effort, report)
        rows = []
        for i, (stepper, blocks, steps) in enumerate(zip(steppers, plans, times, strict=True)):
            report(f"{workload.name}: memory of {stepper.engine}", 0.9 + 0.1 * i / len(steppers))
            row = _row(workload, stepper, blocks, steps)
            # A new stepper, because memory that an objective keeps between steps counts, too.
            row["peak_extra_bytes"] = _peak(stepper_of(stepper.engine), blocks)
            rows.append(row)
    by_engine = {row["engine"]: row["seconds_per_step"] for row in rows}
    if slow := by_engine.get("sequential"):
        for row in rows:
            row["ratio_to_sequential"] = slow / row["seconds_per_step"]
    report(f"{workload.name}: done", 1.0)
    return rows


def _warm_up(stepper: Stepper, blocks: list[Block]) -> None:
    """Take a small step in every probed tensor: checks, compilation, first allocations."""
    offsets = stepper.offsets()
    for name, _ in probed(stepper, blocks):
        stepper.step(offsets[name], 1)
        if stepper.engine == "sequential":
            break  # all tensors are alike here


def _rounds(
    workload: Workload,
    steppers: list[Stepper],
    plans: list[list[Block]],
    effort: Effort,
    report: Report,
) -> list[list[list[Step]]]:
    """The steps of all rounds, by stepper and block."""
    times: list[list[list[Step]]] = [[[] for _ in blocks] for blocks in plans]
    started = perf_counter()
    for done in range(effort.rounds):
        elapsed = perf_counter() - started
        if done and elapsed * (done + 1) / done > workload.seconds:
            break  # another round would take too long
        for turn in range(_TURNS):
            # The order changes, so that no engine always follows the same one.
            for i in range(len(steppers)):
                stepper = (i + turn + done) % len(steppers)
                share = (done + (turn + i / len(steppers)) / _TURNS) / effort.rounds
                report(f"{workload.name}: {steppers[stepper].engine}", 0.15 + 0.75 * share)
                for k in _part(len(plans[stepper]), turn):
                    block = plans[stepper][k]
                    times[stepper][k].append(steppers[stepper].step(block.position, block.size))
    return times


def _part(count: int, turn: int) -> range:
    return range(count * turn // _TURNS, count * (turn + 1) // _TURNS)


def _row(workload: Workload, stepper: Stepper, blocks: list[Block], times: list[list[Step]]) -> Row:
    budget = workload.compute_budget
    total = sum(block.weight for block in blocks)
    rest = 0.0
    probes: dict[str, float] = {}
    for block, steps in zip(blocks, times, strict=True):
        share = block.weight / total
        rest += share * median(step.rest for step in steps)
        for name in steps[0].probes:
            seconds = median(step.probes[name] for step in steps)
            probes[name] = probes.get(name, 0.0) + share * seconds * budget / block.size
    step = rest + sum(probes.values())
    slowest = max(probes, key=lambda name: probes[name])
    return {
        "workload": workload.name,
        "engine": stepper.engine,
        "seconds_per_step": step,
        "ratio_to_sequential": None,  # the caller fills in these two
        "peak_extra_bytes": None,
        "seconds_per_epoch": step * workload.steps_per_epoch,
        "paper_seconds_per_epoch": workload.paper_seconds_per_epoch,
        "slowest_tensor": slowest,
        "slowest_fraction": probes[slowest] / step,
        "probe_fraction": 1 - rest / step,
        "parameters": stepper.n,
        "compute_budget": budget,
        "batch": workload.batch,
        "steps_per_epoch": workload.steps_per_epoch,
        "steps_measured": sum(map(len, times)),
        "rounds": len(times[0]),
        "sampled": blocks != cycle(stepper.n, budget),
        "probed_by": stepper.probed_by(),
    }


def _peak(stepper: Stepper, blocks: list[Block]) -> int:
    """The peak memory of a step beyond model, optimizer and batch."""

    def run() -> None:
        for block in first_of_each_shape(stepper, blocks):
            stepper.step(block.position, block.size)

    return peak_extra_bytes(run)
