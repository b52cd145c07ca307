"""The methods: AutoCoCD with its defaults, and its peers at the best of a grid of rates."""

from __future__ import annotations

from typing import Any

import torch

import cocd

Params = list[torch.nn.Parameter]
FIRST_RATE, SMALLEST, LARGEST = 1e-2, 1e-9, 100.0  # the learning rates to try
PEERS = ("CoCD", "RandomCoordinate", "SPSA", "MeZO")
_DIRECTIONS = 8
# Radii: a coordinate's, a direction's, and a direction's where the loss is rough.
_COORDINATE, _SMOOTH, _ROUGH = 0.1, 0.01, 0.1


def build(method: str, params: Params, rate: float | None, seed: int, rough: bool) -> Any:
    """The optimizer of that name; AutoCoCD has no rate."""
    if rate is None:
        return cocd.AutoCoCD(params)
    if method in ("CoCD", "RandomCoordinate"):
        # As AutoCoCD's least: 64, or an eighth of all.
        B = min(64, max(1, sum(p.numel() for p in params) // 8))
        if method == "CoCD":
            return cocd.CoCD(params, lr=rate, eps=_COORDINATE, compute_budget=B, decay=0.9)
        return cocd.baselines.RandomCoordinate(
            params, lr=rate, eps=_COORDINATE, compute_budget=B, seed=seed
        )
    kind = cocd.baselines.SPSA if method == "SPSA" else cocd.baselines.MeZO
    eps = _ROUGH if rough else _SMOOTH
    return kind(params, lr=rate, eps=eps, directions=_DIRECTIONS, seed=seed)
