"""Other zeroth-order methods, from the same parts and with the same guarantees.

| method              | what it swaps                                      | evaluations per step |
| ------------------- | -------------------------------------------------- | -------------------- |
| `BCCD`              | memory: none                                       | 2B + 1               |
| `FiniteDifference`  | schedule: all n coordinates                        | 2n + 1               |
| `RandomCoordinate`  | schedule: B drawn at random; memory: none          | 2B + 1               |
| `SPSA`              | probe: Rademacher directions, not coordinates      | 2 per direction      |
| `ZOSGD`             | probe: Gaussian directions                         | 2 per direction      |
| `MeZO`              | probe: Gaussian directions, never stored           | 2 per direction      |
| `EvolutionStrategy` | probe: Gaussian directions; update: ranks if asked | 2 per direction      |
| `WASP`              | probe: vectors of a basis, until slopes agree      | 2 to n + 1           |

>>> import torch, cocd
>>> x = torch.ones(3, requires_grad=True)
>>> optimizer = cocd.baselines.SPSA([x], lr=0.05, eps=0.01, directions=4, seed=0)
>>> for _ in range(100):
...     loss = optimizer.step(lambda: (x**2).sum())
>>> bool(x.norm() < 1e-3), optimizer.evaluations
(True, 800)
"""

from .optim.baselines.bccd import BCCD
from .optim.baselines.evolution_strategy import EvolutionStrategy
from .optim.baselines.finite_difference import FiniteDifference
from .optim.baselines.mezo import MeZO
from .optim.baselines.random_coordinate import RandomCoordinate
from .optim.baselines.spsa import SPSA
from .optim.baselines.wasp import WASP
from .optim.baselines.zo_sgd import ZOSGD

__all__ = [
    "BCCD",
    "SPSA",
    "WASP",
    "ZOSGD",
    "EvolutionStrategy",
    "FiniteDifference",
    "MeZO",
    "RandomCoordinate",
]
