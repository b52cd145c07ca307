"""Draw the buffer of the reference implementation over a few steps: docs/figures/buffer.svg."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

from cocd import reference

N, B, STEPS, GAMMA = 12, 3, 8, 0.7


def main() -> None:
    # On a linear function every fresh slope is 1, so a remembered one shows its decay alone.
    run = reference.cocd(lambda x: x.sum(), np.zeros(N), lr=0.1, eps=0.1, B=B, m=N, gamma=GAMMA)
    buffer = np.array([state.g for state in islice(run, STEPS)])
    plt.rcParams["svg.hashsalt"] = "cocd"
    figure, axes = plt.subplots(figsize=(7, 4))
    axes.imshow(buffer, cmap="Blues", vmin=0, vmax=1.2)
    for step, row in enumerate(buffer):
        for i, value in enumerate(row):
            if value:
                axes.text(i, step, f"{value:.2g}", ha="center", va="center", fontsize=7)
        first = step * B % N
        axes.add_patch(
            plt.Rectangle((first - 0.5, step - 0.5), B, 1, fill=False, edgecolor="C1", linewidth=2)
        )
    axes.set_xticks(range(N), range(1, N + 1))
    axes.set_yticks(range(STEPS), range(1, STEPS + 1))
    axes.set_xlabel("coordinate")
    axes.set_ylabel("step")
    axes.set_title(f"n = {N}, B = {B}, γ = {GAMMA}: outlined slopes are fresh, the others fade")
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
