"""Which coordinates a step probes: pass one as ``schedule=`` to any coordinate method.

| schedule | order |
| --- | --- |
| `Cyclic` | the paper's, one coordinate after the other |
| `Spread` | cyclic with a long stride: the coordinates of a block lie far apart |
| `Random` | drawn anew for every block |
| `Masked` | another schedule on a subset of the coordinates, redrawn from time to time |
| `Prioritised` | coordinates with steep slopes or large weights more often than the others |

A schedule of your own is one method; see `Schedule`.
"""

from .cyclic import Cyclic
from .masked import Masked
from .prioritised import Prioritised
from .random import Random
from .schedule import Schedule, Stretch
from .spread import Spread

__all__ = ["Cyclic", "Masked", "Prioritised", "Random", "Schedule", "Spread", "Stretch"]
