"""Coherent Coordinate Descent: training and optimising without gradients.

>>> import torch, cocd
>>> model = torch.nn.Linear(3, 1)
>>> x, y = torch.randn(8, 3), torch.zeros(8, 1)
>>> optimizer = cocd.CoCD(model.parameters(), lr=1e-2, eps=0.1, compute_budget=2, decay=0.99)
>>> loss = optimizer.step(lambda: torch.nn.functional.mse_loss(model(x), y))
>>> optimizer.evaluations
5
"""

from importlib.metadata import PackageNotFoundError, version

from . import baselines, data, diagnostics, distributed, networks, reference, rules, theory
from ._adaptive import AutoCoCD
from ._blackbox import AskTell, minimize, scipy_method
from ._engines import Objective, trace
from ._gradient import CoherentGradient
from ._optimizer import CoCD
from .errors import (
    EngineWarning,
    NonFiniteLoss,
    NonFiniteWarning,
    RadiusWarning,
    RestoreWarning,
    SharedMemoryError,
)

try:
    __version__ = version("cocd")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "AskTell",
    "AutoCoCD",
    "CoCD",
    "CoherentGradient",
    "EngineWarning",
    "NonFiniteLoss",
    "NonFiniteWarning",
    "Objective",
    "RadiusWarning",
    "RestoreWarning",
    "SharedMemoryError",
    "__version__",
    "baselines",
    "data",
    "diagnostics",
    "distributed",
    "minimize",
    "networks",
    "reference",
    "rules",
    "scipy_method",
    "theory",
    "trace",
]
