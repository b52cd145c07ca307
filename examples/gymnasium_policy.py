"""A policy for a MuJoCo robot, learnt from the return of whole episodes alone.

    python examples/gymnasium_policy.py [--small] [--workers 2] [--out FILE.png]

Needs cocd, gymnasium[mujoco] and matplotlib (cocd[examples]); nothing is rendered. The robot is
gymnasium's Swimmer: three links, two motors, rewarded for swimming forward. The controller is
action = tanh(W observation), with 16 weights that start at zero. `cocd.minimize` sees 16 numbers
go in and one return come out; the simulator in between is not differentiated. Episodes begin at
fixed seeds, so the same weights give the same return; whether the policy holds elsewhere is
measured from starts that the search has not seen. The evaluations of a step do not depend on each
other: `--workers` makes them in processes.
"""

import argparse
import sys
import time
from functools import lru_cache
from pathlib import Path

import gymnasium
import numpy as np
from matplotlib.figure import Figure

import cocd

OTHERS = range(100, 105)  # the seeds of starts that the search does not see


@lru_cache(maxsize=1)  # one robot in each process
def robot(steps: int) -> gymnasium.Env:
    return gymnasium.make("Swimmer-v5", max_episode_steps=steps)


def episode(weights: np.ndarray, steps: int, seed: int) -> tuple[float, np.ndarray]:
    """The return of one episode, and the robot's path, (steps, 2)."""
    env = robot(steps)
    observation, _ = env.reset(seed=seed)
    total, path, over = 0.0, [], False
    while not over:
        observation, reward, ended, cut, info = env.step(np.tanh(weights @ observation))
        total += float(reward)
        path.append((info["x_position"], info["y_position"]))
        over = ended or cut
    return total, np.array(path)


def loss(weights: np.ndarray, steps: int, seeds: range) -> float:
    """The mean return from these starts, to be minimised."""
    return -float(np.mean([episode(weights, steps, seed)[0] for seed in seeds]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="fewer and shorter episodes")
    parser.add_argument("--workers", type=int, default=1, help="processes that run episodes")
    parser.add_argument("--out", type=Path, default=Path("runs/examples/gymnasium_policy.png"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)

    steps, seeds, evaluations = (50, range(1), 150) if args.small else (100, range(2), 300)
    x0 = np.zeros((2, 8))
    curve = [(1, -loss(x0, steps, seeds))]

    def progress(intermediate_result) -> None:
        now = intermediate_result
        curve.append((now.nfev, -now.fun))
        text = f"\r{now.nfev:,} evaluations, best return {-now.fun:.2f}"
        print(text, end="", file=sys.stderr, flush=True)

    started = time.perf_counter()
    result = cocd.minimize(
        loss,
        x0,
        args=(steps, seeds),
        compute_budget=4,  # weights probed per step: of few evaluations many steps
        maxfev=evaluations,
        workers=args.workers,
        callback=progress,
        rng=0,
    )
    seconds = time.perf_counter() - started
    print(file=sys.stderr)

    draw(args.out, curve, {"at the start": x0, "learnt": result.x}, steps)
    before, after = (-loss(weights, steps, OTHERS) for weights in (x0, result.x))
    print(
        f"return from {curve[0][1]:.2f} to {-result.fun:.2f} (mean of {len(OTHERS)} starts not "
        f"trained on: {before:.2f} and {after:.2f}) in {result.nfev * len(seeds):,} episodes of "
        f"{steps} steps and {seconds:.1f} s; picture: {args.out}"
    )


def draw(path: Path, curve: list, policies: dict, steps: int) -> None:
    """The learning curve, and where the robot goes."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.step(*zip(*curve, strict=True), where="post")
    left.set(xlabel="evaluations", ylabel="best return so far")
    for name, weights in policies.items():
        right.plot(*episode(weights, steps, seed=0)[1].T, label=name)
    right.set(xlabel="x", ylabel="y", title=f"path of the robot in {steps} steps", aspect="equal")
    right.set_adjustable("datalim")
    right.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
