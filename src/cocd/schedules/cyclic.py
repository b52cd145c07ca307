"""`Cyclic`: the paper's order."""

from __future__ import annotations

from collections.abc import Iterator

from .schedule import Schedule, Stretch


class Cyclic(Schedule):
    """The paper's order, i <- (i mod n) + 1 (section 3.2).

    >>> cyclic = Cyclic(4)
    >>> cyclic.next(3), cyclic.advance(3), cyclic.next(3)
    ([(0, 3)], None, [(3, 4), (0, 2)])
    """

    repeats = False

    def order(self, start: int, stop: int, n: int) -> Iterator[Stretch]:
        """Refresh k is of coordinate k mod n."""
        while start < stop:
            position = start % n
            length = min(stop - start, n - position)
            yield position, position + length
            start += length
