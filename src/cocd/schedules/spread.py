"""`Spread`: the cyclic order with a long stride."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from .schedule import Schedule, Stretch


class Spread(Schedule):
    """The coordinates of a block lie far apart.

    Neighbours in the flat vector belong to the same unit or filter, so their effects depend on
    each other. The k-th refresh is of coordinate ``k stride mod n``. The stride is near n over the
    golden ratio and coprime to n: a sweep visits every coordinate once, consecutive ones are spread
    evenly, and there is no state to store.

    >>> Spread(10).next(4)
    [(0, 1), (7, 8), (4, 5), (1, 2)]
    """

    repeats = False
    ascending = True

    def order(self, start: int, stop: int, n: int) -> Iterator[Stretch]:
        """Refresh k is of coordinate k stride mod n."""
        stride = max(1, round(n * 0.6180339887498949))
        while gcd(stride, n) != 1:
            stride += 1
        for k in range(start, stop):
            i = k * stride % n
            yield i, i + 1
