"""A slow function on processes of this machine: one that hangs or dies costs its probe alone."""

import time

import numpy as np

import cocd


def simulate(x):
    time.sleep(0.01)
    return float(((x - 1) ** 2).sum())


if __name__ == "__main__":
    result = cocd.minimize(
        simulate, np.zeros(8), method="cocd", lr=0.2, eps=0.1, workers=2, timeout=30
    )
    print(result)
