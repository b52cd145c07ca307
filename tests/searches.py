"""Drive a search by hand, and compare what it saved."""

import numpy as np
from blackboxes import bowl

PLAIN = {"method": "cocd", "lr": 0.02, "eps": 0.1, "compute_budget": 2, "decay": 0.9}


def drive(search, fun=bowl, steps=None):
    """Evaluate until the search is done, or for some batches; the points that were evaluated."""
    seen = []
    while not search.done and (steps is None or steps > 0):
        points = search.ask()
        seen.extend(points)
        search.tell([fun(p) for p in points])
        steps = None if steps is None else steps - 1
    return np.array(seen)


def same(one, two):
    """Two states, to the bit."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[k], two[k]) for k in one)
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and one.tobytes() == two.tobytes()
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two or (one != one and two != two)
