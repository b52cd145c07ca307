"""Which coordinates a step probes: pass one as ``schedule=`` to any coordinate method.

| schedule | order |
| --- | --- |
| `Cyclic` | the paper's, one coordinate after the other |
| `Spread` | cyclic with a long stride: the coordinates of a block lie far apart |
| `Random` | drawn afresh for every block |

A schedule of your own is one method; see `Schedule`.
"""

from .cyclic import Cyclic
from .random import Random
from .schedule import Schedule, Stretch
from .spread import Spread

__all__ = ["Cyclic", "Random", "Schedule", "Spread", "Stretch"]
