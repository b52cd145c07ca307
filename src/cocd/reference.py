"""The paper's algorithm on a flat vector, every quantity explicit: to be read beside the paper.

Everything else in this package must give the same trajectory, state and number of evaluations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class State(NamedTuple):
    """After one step: the point reached, the estimate that led there, f before it, the cost."""

    x: Vector
    g: Vector
    loss: float
    evaluations: int


def cocd(
    f: Callable[[Vector], float],
    x: Vector,
    *,
    lr: float,
    eps: float,
    B: int,
    m: int,
    gamma: float,
    weight_decay: float = 0.0,
    difference: str = "central",
) -> Iterator[State]:
    """Coherent Coordinate Descent (section 4.1), one `State` a step, for ever.

    >>> import numpy as np
    >>> steps = cocd(lambda x: x @ x / 2, np.ones(2), lr=0.5, eps=0.1, B=1, m=2, gamma=1.0)
    >>> next(steps).x.round(6), next(steps).x.round(6)
    (array([0.5, 1. ]), array([0. , 0.5]))
    """
    x, n = np.array(x, dtype=np.float64), len(x)
    memory: deque[tuple[int, float]] = deque(maxlen=m)  # FIFO of (i, estimate)
    cursor = evaluations = 0
    while True:
        f_t = f(x)
        evaluations += 1
        memory = deque(((i, gamma * g_i) for i, g_i in memory), maxlen=m)  # decay, eq. 5
        for i in ((cursor + k) % n for k in range(B)):  # cyclic order, eq. 2
            e = np.zeros(n)
            e[i] = eps
            if difference == "central":  # eq. 3
                g_i = (f(x + e) - f(x - e)) / (2 * eps)
            else:
                g_i = (f(x + e) - f_t if difference == "forward" else f_t - f(x - e)) / eps
            evaluations += 2 if difference == "central" else 1
            memory.append((i, g_i))  # the oldest falls out, eq. 6
        cursor = (cursor + B) % n
        g = np.zeros(n)
        for i, g_i in memory:
            g[i] = g_i
        x = (1 - lr * weight_decay) * x - lr * g  # eq. 7
        yield State(x.copy(), g, f_t, evaluations)
