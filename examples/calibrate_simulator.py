"""Calibration of a simulator: which rates of an ODE explain what was measured?

    python examples/calibrate_simulator.py [--small] [--out FILE.png]

Needs cocd and matplotlib (cocd[examples]). The simulator is the predator-prey model of Lotka and
Volterra, integrated by SciPy. It is run with known rates, its output is spoilt by 10 % noise, and
the rates and both initial populations are then found again from the noisy data alone. The solver
is a black box: it chooses its steps by itself, which makes its output slightly rough, and it may
fail for absurd rates. A run that failed gives NaN and costs its probe alone.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp

import cocd

NAMES = ["birth", "predation", "growth", "death", "prey", "predators"]
TRUE = np.array([0.8, 0.05, 0.02, 0.6, 30.0, 8.0])  # what the data are made with
GUESS = np.array([0.6, 0.04, 0.03, 0.8, 25.0, 10.0])  # where the calibration starts
NOISE = 0.1  # of each measurement, relative


def simulate(parameters: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Both populations at these times, (2, k)."""
    birth, predation, growth, death, prey, predators = parameters

    def rates(_: float, state: np.ndarray) -> list[float]:
        hares, lynxes = state
        return [hares * (birth - predation * lynxes), lynxes * (growth * hares - death)]

    span = (times[0], times[-1])
    run = solve_ivp(rates, span, [prey, predators], "LSODA", times, rtol=1e-6, atol=1e-6)
    return run.y if run.success and (run.y > 0).all() else np.full((2, len(times)), np.nan)


def misfit(logarithms: np.ndarray, times: np.ndarray, data: np.ndarray) -> float:
    """The mean squared relative error; of logarithms, since all parameters are positive."""
    return float(np.mean((np.log(simulate(np.exp(logarithms), times)) - np.log(data)) ** 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="fewer evaluations")
    parser.add_argument("--out", type=Path, default=Path("runs/examples/calibrate_simulator.png"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)

    times = np.linspace(0, 20, 41)
    rng = np.random.default_rng(0)
    data = simulate(TRUE, times) * np.exp(NOISE * rng.standard_normal((2, len(times))))

    def progress(intermediate_result) -> None:
        now = intermediate_result
        text = f"\r{now.nfev:,} simulations, relative error {np.sqrt(now.fun):.4f}"
        print(text, end="", file=sys.stderr, flush=True)

    started, x0 = time.process_time(), np.log(GUESS)
    result = cocd.minimize(
        misfit,
        x0,
        args=(times, data),
        bounds=[(x - 2, x + 2) for x in x0],  # each parameter known to a factor of 7
        maxfev=300 if args.small else 1500,
        callback=progress,
        rng=0,
    )
    seconds = time.process_time() - started
    print(file=sys.stderr)

    found = np.exp(result.x)
    for name, guess, value, true in zip(NAMES, GUESS, found, TRUE, strict=True):
        print(f"{name:10} guessed {guess:7.3f}   found {value:7.3f}   true {true:7.3f}")
    draw(args.out, times, data, found)
    before, after = np.sqrt(misfit(x0, times, data)), np.sqrt(result.fun)
    best = np.sqrt(misfit(np.log(TRUE), times, data))
    print(
        f"relative error from {before:.4f} to {after:.4f} ({best:.4f} with the true parameters) "
        f"in {result.nfev:,} simulations and {seconds:.1f} s of processor time; picture: {args.out}"
    )


def draw(path: Path, times: np.ndarray, data: np.ndarray, found: np.ndarray) -> None:
    """The data, the first guess and the fit."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    fine = np.linspace(times[0], times[-1], 400)
    first, fit = simulate(GUESS, fine), simulate(found, fine)
    for row, (name, colour) in enumerate([("prey", "C0"), ("predators", "C1")]):
        axes.plot(times, data[row], "o", color=colour, ms=4, label=f"{name}, measured")
        axes.plot(fine, fit[row], color=colour, label=f"{name}, calibrated")
        axes.plot(fine, first[row], ":", color=colour, lw=1, label=f"{name}, first guess")
    axes.set(xlabel="time", ylabel="population", ylim=(0, None))
    figure.legend(loc="outside upper center", ncols=2, fontsize="small")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
