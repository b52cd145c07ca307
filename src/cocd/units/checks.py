"""Checks of unit rules and replays against plain evaluations, at their first use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .batch import Batch
from .layers import Layer
from .tape import Diverged, Nudges

# How far rounding may take a replay from the recording.
_REPEATS = {torch.float64: 1e-8, torch.float32: 1e-3}


class Coupled(ValueError):
    """One sample's loss depends on another's activations."""


def problem_with(batch: Batch, layer: Layer, radius: float) -> tuple[str, int]:
    """The problem with a layer's rule or replay, or nothing; and the evaluations spent.

    Two checks. The rule must be the transpose of what the call does with its parameters; this needs
    no evaluation. And nudging the output by the effect of a step of the parameters must change the
    losses as the step itself does, and no other sample's loss.
    """
    generator = torch.Generator().manual_seed(0)
    if len(layer.calls) > 1:  # a step also moves the inputs of later calls: second order
        radius /= 100
    steps = _steps(batch, layer, radius, generator)
    shifts, slopes = [], []
    for site in layer.calls:
        with moved(batch, steps):
            again = site.again()
        shifts.append(again - site.again())
        slopes.append(torch.randn(again.shape, generator=generator).to(again))
    if layer.calls[0].parameters:
        problem = _not_transposed(layer, steps, shifts, slopes)
        if problem:
            return problem, 0
    else:
        shifts = [radius * torch.sign(d) for d in slopes]
    nudges = dict(zip(layer.sites, shifts, strict=True))
    here = batch.losses(Nudges(nudges)) - batch.base
    spent = 1 + _refuse_coupling(batch, layer, nudges)
    if not steps or _used_elsewhere(batch, layer):
        return "", spent
    with moved(batch, steps):
        there = batch.losses(Nudges({})) - batch.base
    size = float(there.abs().max())
    if not float((here - there).abs().max()) <= 2e-2 * size + _noise(batch, layer):
        return (
            f"nudging its output changes the losses by {float(here.abs().max()):.6g}, moving "
            f"its weights accordingly changes them by {size:.6g}"
        ), spent + 1
    return "", spent + 1


def refuse_difference(batch: Batch) -> None:
    """A replay without nudges must give the losses of the recording."""
    apart = (batch.losses(Nudges({})) - batch.base).abs().max()
    size = 1e-3 + float(batch.base.abs().max())
    allowed = max((_REPEATS.get(t, 2e-2) for t in batch.dtypes), default=2e-2)
    if not float(apart) <= size * allowed:
        raise Diverged("a pass without changes gives other losses")


def _not_transposed(
    layer: Layer, steps: dict[str, Tensor], shifts: list[Tensor], slopes: list[Tensor]
) -> str:
    """<slopes of the parameters, their step> must be <slopes of the output, its step>."""
    found = layer.slopes(torch.cat([d.reshape(-1) for d in slopes]))
    by_rule = 0.0
    for name, parameter in layer.calls[0].parameters.items():
        if name not in found or found[name].shape != torch.Size(parameter.shape):
            return f"its rule gives no slopes of {name} in its shape"
        by_rule += float((found[name].double() * parameter.of(steps[parameter.name])).sum())
    products = [d.double() * m for d, m in zip(slopes, shifts, strict=True)]
    by_call = float(sum(p.sum() for p in products))
    size = float(sum(p.square().sum() for p in products)) ** 0.5
    if not abs(by_rule - by_call) <= 2e-2 * size + 1e-12:
        return f"its rule's slopes disagree with the call's ({by_rule:.6g}, {by_call:.6g})"
    return ""


def _used_elsewhere(batch: Batch, layer: Layer) -> bool:
    """Whether other calls read one of the parameters, so that its step would move them too."""
    own = {p.name for p in layer.calls[0].parameters.values()}
    return any(
        p.name in own
        for i, site in enumerate(batch.recording.sites)
        if i not in layer.sites
        for p in site.parameters.values()
    ) or bool(own & set(batch.recording.without_rule))


def _noise(batch: Batch, layer: Layer) -> float:
    wide = layer.calls[0].output.dtype == torch.float64
    return (1e-10 if wide else 1e-4) * (1e-3 + float(batch.base.abs().max()))


def _refuse_coupling(batch: Batch, layer: Layer, nudges: dict[int, Tensor]) -> int:
    """Nudge half of the samples: the losses of the rest must stay; gives the evaluations."""
    halves = _halves(batch.samples)
    for half in halves:
        held = {
            site: nudges[site] * half[layout.owners].to(nudges[site].device)
            for site, layout in zip(layer.sites, layer.layouts, strict=True)
        }
        change = (batch.losses(Nudges(held)) - batch.base).abs()
        rest = float(change[~half.to(change.device)].max())
        if rest > 1e-3 * float(change.max()) + _noise(batch, layer) / 10:
            raise Coupled(
                f"the losses of some samples change when {layer.name} is nudged in others alone: "
                "samples are coupled in a way that has no rule; use cocd.CoCD or cocd.AutoCoCD for "
                "this model"
            )
    return len(halves)


def _halves(samples: int) -> list[Tensor]:
    """Halves such that of any two samples one has the first without the second.

    By the digits of their numbers in base 2, since two numbers differ in one of them.

    >>> [half.nonzero().flatten().tolist() for half in _halves(3)]
    [[1], [0, 2], [2], [0, 1]]
    """
    number = torch.arange(samples)
    ones = [(number >> digit) % 2 == 1 for digit in range((samples - 1).bit_length())]
    return [half for one in ones for half in (one, ~one)]


def _steps(
    batch: Batch, layer: Layer, radius: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """A step of random signs for each parameter, as long as moves the output by the radius."""
    found = {}
    for parameter in layer.calls[0].parameters.values():
        whole = batch.parameters[parameter.name]
        step = torch.zeros_like(whole)
        signs = torch.randint(0, 2, parameter.shape, generator=generator) * 2.0 - 1
        part = parameter.of(step)
        inputs = max(1, part.numel() // max(layer.units, 1))
        part += (signs * radius / inputs**0.5).to(part)
        found[parameter.name] = step
    return found


@contextmanager
def moved(batch: Batch, steps: dict[str, Tensor]) -> Iterator[None]:
    """Inside, the parameters are moved; they are restored bit for bit."""
    saved = {name: batch.parameters[name].detach().clone() for name in steps}
    try:
        for name, step in steps.items():
            batch.parameters[name].add_(step)
        yield
    finally:
        for name, values in saved.items():
            batch.parameters[name].copy_(values)
