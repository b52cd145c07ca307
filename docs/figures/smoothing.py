"""Draw what a large radius does to a wavy function: docs/figures/smoothing.svg."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

WAVE, SPEED = 0.08, 25.0  # height and frequency of the ripples on a parabola
RADII = (0.01, 0.1, 0.4)


def f(x: np.ndarray) -> np.ndarray:
    return x**2 / 2 + WAVE * np.cos(SPEED * x)


def main() -> None:
    plt.rcParams["svg.hashsalt"] = "cocd"
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    x = np.linspace(-1.5, 1.5, 600)
    left.plot(x, f(x), color="0.35")
    left.set(title="f(x): a parabola with ripples", xlabel="x")
    for eps in RADII:
        right.plot(x, (f(x + eps) - f(x - eps)) / (2 * eps), label=f"ε = {eps:g}")
    right.set(title="central difference", xlabel="x")
    right.legend(loc="upper left")
    for axes in (left, right):
        axes.grid(color="#e5e5e5")
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
