"""Black boxes: functions of a vector that can be evaluated and not differentiated."""

from .minimize import minimize, scipy_method
from .search import AskTell

__all__ = ["AskTell", "minimize", "scipy_method"]
