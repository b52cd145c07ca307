"""Black boxes: functions of a vector that can be evaluated and not differentiated."""

from .ask_tell import AskTell
from .minimize import minimize, scipy_method

__all__ = ["AskTell", "minimize", "scipy_method"]
