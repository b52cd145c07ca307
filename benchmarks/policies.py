"""Compare WASP with CoCD, SPSA and finite differences on a robot, at equal episodes.

The robot is gymnasium's Swimmer-v5 (MuJoCo), the policy action = tanh(W observation) with 16
weights that start at zero, the loss minus the return of one short episode from a fixed start. The
learning rates are chosen by the return from separate starts; the results use other starts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

import cocd
from cocd import baselines

from . import report as output
from .report import Refused, Report, Row

STEPS = 50  # of an episode
EPISODES, QUICK_EPISODES = 100, 20
RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 1.0)
EPS = 0.1
TRAINED, CHOSEN_ON, REPORTED_ON = 0, range(1, 4), range(100, 105)  # seeds of starts
SHAPE = (2, 8)

Build = Callable[[list[Tensor], float], Any]  # weights, learning rate
METHODS: dict[str, Build] = {
    "finite differences": lambda p, lr: cocd.CoCD(
        p, lr=lr, eps=EPS, compute_budget=p[0].numel(), decay=0.0, difference="forward"
    ),
    "CoCD, B = 4": lambda p, lr: cocd.CoCD(
        p, lr=lr, eps=EPS, compute_budget=4, difference="forward"
    ),
    "SPSA, 2 directions": lambda p, lr: baselines.SPSA(p, lr=lr, eps=EPS, directions=2, seed=0),
    "WASP, identity": lambda p, lr: baselines.WASP(p, lr=lr, eps=EPS, basis="identity"),
    "WASP, rotation": lambda p, lr: baselines.WASP(p, lr=lr, eps=EPS, basis="rotation"),
    "WASP, rotation, at most 4": lambda p, lr: baselines.WASP(
        p, lr=lr, eps=EPS, basis="rotation", compute_budget=4
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    for name in ("gymnasium", "mujoco"):
        if find_spec(name) is None:
            raise Refused(f"{name} is not installed; install cocd[examples]")
    episodes, rates = (QUICK_EPISODES, RATES[:1]) if args.quick else (EPISODES, RATES)
    rows = output.run(args, lambda report: policies(episodes=episodes, rates=rates, report=report))
    print("| method | lr | steps | episodes per step | return | at the start |")
    print("| :-- | --: | --: | --: | --: | --: |")
    for row in rows:
        print(
            f"| {row['method']} | {row['lr']:g} | {row['steps']} "
            f"| {row['episodes'] / row['steps']:.1f} | {row['return']:.1f} | {row['before']:.1f} |"
        )
    return 0


def policies(
    *, episodes: int, rates: Sequence[float], report: Report = lambda *_: None
) -> list[Row]:
    """A row for each method, with the learning rate that is best on the starts for selection."""
    rows, before = [], mean_return(torch.zeros(SHAPE), REPORTED_ON)
    for done, (name, build) in enumerate(METHODS.items()):
        report(f"policies: {name}", done / len(METHODS))
        tried = []
        for lr in rates:
            learnt = learn(build, lr, episodes)
            tried.append((mean_return(learnt[0], CHOSEN_ON), lr, learnt))
        _, lr, (weights, steps, made) = max(tried, key=lambda one: one[0])
        rows.append(
            {
                "method": name,
                "lr": lr,
                "tried": [one[:2] for one in tried],
                "steps": steps,
                "episodes": made,
                "return": mean_return(weights, REPORTED_ON),
                "before": before,
            }
        )
    report("policies: done", 1.0)
    return rows


def learn(build: Build, lr: float, episodes: int) -> tuple[Tensor, int, int]:
    """The weights after training, the steps taken, and the actual number of episodes."""
    weights = torch.zeros(SHAPE, dtype=torch.float64, requires_grad=True)
    optimizer, steps = build([weights], lr), 0
    while optimizer.evaluations < episodes:
        optimizer.step(lambda: -episode(weights, TRAINED))
        steps += 1
    return weights.detach(), steps, optimizer.evaluations


def mean_return(weights: Tensor, seeds: Sequence[int]) -> float:
    """From these starts."""
    return sum(episode(weights, seed) for seed in seeds) / len(seeds)


def episode(weights: Tensor, seed: int) -> float:
    """The return of one episode. The same weights and seed give the same return."""
    env, matrix = robot(), weights.detach().double().numpy()
    observation, _ = env.reset(seed=seed)
    total = 0.0
    for _ in range(STEPS):
        action = torch.tanh(torch.from_numpy(matrix @ observation)).numpy()
        observation, reward, *_ = env.step(action)
        total += float(reward)
    return total


@lru_cache(maxsize=1)
def robot() -> Any:
    """Built once."""
    import gymnasium

    return gymnasium.make("Swimmer-v5").unwrapped
