"""The numbers behind `AutoCoCD`, each with what it means."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from math import isnan


@dataclass(frozen=True)
class AutoConfig:
    """The constants of `AutoCoCD`; docs/adaptive.md derives them. None needs tuning.

    They are there for ablations: `AutoCoCD(params, config=replace(AutoConfig(), damping=0.0))`.

    Probes:
        radius: radius of the probes where no `eps` is given.
        one_sided_radius: radius of one-sided differences, as a multiple of `eps`. Their error
            grows with it.
        measure_every: sweeps from one measurement of curvature to the next.

    Radius of each tensor:
        radius_steps: steps that are looked at before a radius changes.
        radius_factor: factor by which it changes.
        short_step: length of steps, in radii, below which the radius becomes narrower.
        long_step: length of steps above which a narrow radius becomes wider again.
        narrowest: least multiple of `eps`.
        widest: largest multiple of `eps`.
        lost_share: share of lost differences above which the radius becomes wider.
        less_lost: factor by which that must make the share smaller, or it is taken back.
        more_lost: rise of the share with which a narrower radius is taken back.

    Direction:
        damping: share of the block's mean curvature that is added to each coordinate's. What
            looks flat may be flat by chance.
        reach: radii that a coordinate moves at most in one step, to begin with.
        reach_growth: factor on that limit after each step that ends at it.
        limited: share of steps that end at the limit where it stays as it is.
        curvature_floor: least curvature, as a multiple of the steepest slope over its radius.

    Line search:
        length_follow: exponent with which the remembered length follows one search; on a
            mini-batch each search is noisy.
        length_shrink: factor on the remembered length after a search that found nothing.
        rounding: units in the last place of the loss below which a difference means nothing.

    Part of the best step:
        part: share of the best step that is taken at first, and at least where noise is small.
        part_sweeps: sweeps after which that share begins to fall as one over the root of sweeps.
        end: share of `max_evaluations`, at their end, over which steps shrink.
        end_part: what the last step is multiplied by.
        end_sweeps: sweeps in which noise has limited steps before they shrink at the end.

    Budget and boldness:
        least_budget: least compute budget that is found, where n is large enough.
        largest_budget: compute budget at first, at most.
        first_steps: steps that the first sweep takes, at least, where n is large enough.
        judged_sweeps: sweeps in which steps are judged on the next batch.
        bold_sweeps: sweeps before steps become shorter; the first slopes are mostly signal.
        judged_steps: steps before anything is concluded.
        window: largest number of steps that a conclusion looks back on.
        halving_errors: standard errors by which kappa exceeds the part when the budget halves.
        boldness_errors: standard errors that kappa is given before steps become shorter.
        boldest: largest ratio of the part to kappa.
        least_boldness: least factor on all steps.

    Scales of tensors:
        compared_from: sweep from which slopes are compared with those of a sweep before.
        compared_until: sweep until which they are; 0 compares none.
        compared_errors: standard errors by which a tensor stands out.
        noisy: coherence of all other tensors above which noise does not hold them back.
        scale_step: factor on the steps of a tensor that stands out.

    Rollback:
        lost: multiple of the lowest running loss at which all may be lost.
        lost_noise: distance from the running loss at least, in mean distances of one loss.
        loss_follow: weight of one loss in the running loss.
        copy_steps: steps between two copies of the parameters, at least.
    """

    radius: float = 0.3
    one_sided_radius: float = 1 / 15
    measure_every: int = 4

    radius_steps: int = 8
    radius_factor: float = 4.0
    short_step: float = 0.01
    long_step: float = 0.1
    narrowest: float = 1e-4
    widest: float = 64.0
    lost_share: float = 0.5
    less_lost: float = 0.9
    more_lost: float = 0.1

    damping: float = 0.1
    reach: float = 3.0
    reach_growth: float = 1.2
    limited: float = 0.2
    curvature_floor: float = 1e-12

    length_follow: float = 0.2
    length_shrink: float = 0.5
    rounding: float = 8.0

    part: float = 0.4
    part_sweeps: float = 5.0
    end: float = 0.3
    end_part: float = 0.02
    end_sweeps: float = 100.0

    least_budget: int = 64
    largest_budget: int = 512
    first_steps: int = 32
    judged_sweeps: float = 4
    bold_sweeps: float = 1
    judged_steps: int = 16
    window: int = 512
    halving_errors: float = 2.0
    boldness_errors: float = 1.0
    boldest: float = 1.7
    least_boldness: float = 0.1

    compared_from: int = 2
    compared_until: int = 8
    compared_errors: float = 4.0
    noisy: float = 0.25
    scale_step: float = 1.5

    lost: float = 3.0
    lost_noise: float = 3.0
    loss_follow: float = 0.02
    copy_steps: int = 50

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            whole = isinstance(each.default, int) and each.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                kind = "an integer" if whole else "a number"
                raise ValueError(f"{each.name} must be {kind}, got {value!r}")
            if isnan(value) or value < 0:
                raise ValueError(f"{each.name} must be 0 or more, got {value!r}")
            if each.name in _POSITIVE and not value:
                raise ValueError(f"{each.name} must be above 0, got {value!r}")

    def state_dict(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_state(cls, saved: dict[str, float]) -> AutoConfig:
        """What was saved, or a sentence about what does not fit."""
        known = {each.name for each in fields(cls)}
        if known != saved.keys():
            odd = ", ".join(sorted(known ^ saved.keys()))
            raise ValueError(f"state_dict was saved with another set of constants: {odd}")
        return cls(**saved)  # type: ignore[arg-type]


_POSITIVE = {
    "radius", "one_sided_radius", "measure_every", "reach", "part", "part_sweeps", "end",
    "least_budget", "largest_budget", "first_steps", "judged_steps", "window", "scale_step",
    "length_shrink", "boldest",
}  # fmt: skip
