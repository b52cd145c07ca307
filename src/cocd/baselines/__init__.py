"""Other zeroth-order methods, from the same parts and with the same guarantees.

| method             | what it swaps                                            | evaluations a step |
| ------------------ | -------------------------------------------------------- | ------------------ |
| `BCCD`             | memory: none                                             | 2B + 1             |
| `FiniteDifference` | schedule: all n coordinates at every step                | 2n + 1             |
| `RandomCoordinate` | schedule: B coordinates drawn at random; memory: none    | 2B + 1             |
| `SPSA`             | probe: Rademacher directions instead of coordinates      | 2 a direction      |
| `ZOSGD`            | probe: Gaussian directions                               | 2 a direction      |
| `MeZO`             | probe: Gaussian directions, no copy of the parameters    | 2 a direction      |
| `EvolutionStrategy`| probe: Gaussian directions; update: by rank, as an option| 2 a direction      |

>>> import torch, cocd
>>> x = torch.ones(3, requires_grad=True)
>>> optimizer = cocd.baselines.SPSA([x], lr=0.05, eps=0.01, directions=4, seed=0)
>>> for _ in range(100):
...     loss = optimizer.step(lambda: (x**2).sum())
>>> bool(x.norm() < 1e-3), optimizer.evaluations
(True, 800)
"""

from ._coordinates import BCCD, FiniteDifference, RandomCoordinate
from ._directions import SPSA, ZOSGD, EvolutionStrategy, MeZO

__all__ = [
    "BCCD",
    "SPSA",
    "ZOSGD",
    "EvolutionStrategy",
    "FiniteDifference",
    "MeZO",
    "RandomCoordinate",
]
