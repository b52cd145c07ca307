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

from . import (
    baselines,
    basis,
    diagnostics,
    distributed,
    objective,
    reference,
    rules,
    schedules,
    sparsity,
    theory,
)
from .auto.config import AutoConfig
from .blackbox import AskTell, Nevergrad, minimize, optuna_sampler, scipy_method
from .cores import cores, merge_cores
from .errors import (
    ClosureWarning,
    EngineWarning,
    NonFiniteLoss,
    NonFiniteWarning,
    RadiusWarning,
    RestoreWarning,
)
from .objective.traced import Objective, trace
from .optim.auto_cocd import AutoCoCD
from .optim.baselines.mezo_log import MeZOLog
from .optim.baselines.replay import replay
from .optim.cocd import CoCD
from .optim.coherent_gradient import CoherentGradient
from .units import UnitDescent, UnitGradient

try:
    __version__ = version("cocd")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "AskTell",
    "AutoCoCD",
    "AutoConfig",
    "ClosureWarning",
    "CoCD",
    "CoherentGradient",
    "EngineWarning",
    "MeZOLog",
    "Nevergrad",
    "NonFiniteLoss",
    "NonFiniteWarning",
    "Objective",
    "RadiusWarning",
    "RestoreWarning",
    "UnitDescent",
    "UnitGradient",
    "__version__",
    "baselines",
    "basis",
    "cores",
    "diagnostics",
    "distributed",
    "merge_cores",
    "minimize",
    "objective",
    "optuna_sampler",
    "reference",
    "replay",
    "rules",
    "schedules",
    "scipy_method",
    "sparsity",
    "theory",
    "trace",
]
