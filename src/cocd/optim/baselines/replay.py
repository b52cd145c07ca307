"""`replay`: repeat a run of `MeZO` from its log."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.optim.optimizer import ParamsT

from ...parts.warn import warn
from .mezo import MeZO
from .mezo_log import OPTIONS, MeZOLog, fingerprint


def replay(params: nn.Module | ParamsT, log: MeZOLog | str | os.PathLike[str]) -> None:
    """Repeat a run of `MeZO` on the parameters it started from, without an evaluation.

    Gives the trained weights bit for bit on the machine of the run, and on others where torch
    draws the same numbers. Warns if the final weights differ.

    Args:
        params: a model, or the parameters or groups that `MeZO` got, in the same order. Raises
            and changes nothing if they differ in one bit from those the run started from.
        log: ``optimizer.log``, or the path to which it was saved.
    """
    if not isinstance(log, MeZOLog):
        log = MeZOLog.load(log)
    optimizer = MeZO(params.parameters() if isinstance(params, nn.Module) else params, lr=0.0)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if isinstance(params, nn.Module) and fingerprint(parameters) != log.start:
        trained = [p for p in parameters if p.requires_grad]  # as they are given after freezing
        optimizer, parameters = MeZO(trained, lr=0.0), trained
    groups = optimizer.param_groups
    if fingerprint(parameters) != log.start:
        raise ValueError(
            "params are not those with which the logged run began; give the same model with the "
            "same weights, and the parameters in the order in which MeZO got them"
        )
    if log.steps and list(optimizer._places()) != log.trained:
        raise ValueError("params: other parameters have requires_grad=True than in the logged run")
    if log.steps and len(groups) != len(log.options[0]):
        raise ValueError(
            f"params has {len(groups)} parameter groups, the logged run {len(log.options[0])}"
        )
    with torch.no_grad():
        for number, step in enumerate(log.steps):
            for group, values in zip(groups, log.options.get(number, ()), strict=False):
                group.update(zip(OPTIONS, values, strict=True))
            optimizer._move([(seed, difference, 0.0) for seed, difference in step])
    if fingerprint(parameters) != log.end:
        warn(
            "params: the replayed weights are not those of the logged run, bit for bit; another "
            "machine or another version of torch draws numbers that differ in the last place",
            RuntimeWarning,
        )
