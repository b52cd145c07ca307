"""Engines: how a block of probes is evaluated without a forward pass for each.

incremental: follow what one weight changes through the layers (`graph`, `change`, `rules`).
batched: whole forward passes of many perturbed copies at once (`batched`).
sequential: the closure itself, once a probe (`cocd.parts.probe.sequential`).
"""

from .traced import Objective, trace

__all__ = ["Objective", "trace"]
