"""Models that do in their forward what a tracer does not expect."""

from . import outside, randomness, settings, stored, writes
from .model import ADVERSARIES, Adversary, Model
from .settings import GLOBAL
from .writes import Packed, Spectral

__all__ = [
    "ADVERSARIES",
    "GLOBAL",
    "Adversary",
    "Model",
    "Packed",
    "Spectral",
    "outside",
    "randomness",
    "settings",
    "stored",
    "writes",
]
