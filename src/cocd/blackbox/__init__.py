"""Black boxes: functions of a vector that can be evaluated but not differentiated."""

from .adapters import Nevergrad, optuna_sampler
from .ask_tell import AskTell
from .minimize import minimize, scipy_method

__all__ = ["AskTell", "Nevergrad", "minimize", "optuna_sampler", "scipy_method"]
