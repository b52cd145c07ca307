"""Unit probes: gradients and training from forward passes that nudge single units."""

from .unit_descent import UnitDescent
from .unit_gradient import UnitGradient

__all__ = ["UnitDescent", "UnitGradient"]
