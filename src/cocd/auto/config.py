"""The constants of `AutoCoCD`, each with its meaning."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from math import isnan


@dataclass(frozen=True)
class AutoConfig:
    """The constants of `AutoCoCD`; docs/adaptive.md derives them. None needs tuning.

    They are there for ablations: `AutoCoCD(params, config=replace(AutoConfig(), damping=0.0))`.

    Probes:
        radius: radius of the probes if `eps` is not given.
        one_sided_radius: radius of one-sided differences, as a multiple of `eps`. Their error grows
            with it.
        measure_every: sweeps between two measurements of curvature.

    Radius of each tensor:
        radius_steps: steps observed before a radius changes.
        radius_factor: factor of each change.
        short_step: length of steps, in radii, below which the radius narrows.
        long_step: length of steps above which a narrowed radius widens again.
        narrowest: smallest multiple of `eps`.
        widest: largest multiple of `eps`.
        lost_share: share of lost differences above which the radius widens.
        less_lost: factor by which widening must lower that share, or it is undone.
        more_lost: rise of that share at which narrowing is undone.

    Direction:
        damping: share of the block's mean curvature added to each coordinate's, because a
            coordinate can look flat by chance.
        reach: largest move of a coordinate in one step, in radii, at the start.
        reach_growth: factor on that limit after each step that ends at it.
        limited: share of steps at the limit for which the limit stays the same.
        curvature_floor: smallest curvature, as a multiple of the steepest slope over its radius.

    Line search:
        length_follow: exponent with which the remembered length follows one search, since searches
            on mini-batches are noisy.
        length_shrink: factor on the remembered length after a failed search.
        rounding: units in the last place of the loss below which a difference means nothing.

    Part of the best step:
        part: first share of the best step that is taken; the smallest share if noise is small.
        part_sweeps: sweeps after which that share falls as one over the root of sweeps.
        end: last share of `max_evaluations`, over which steps shrink.
        end_part: factor on the last step.
        end_sweeps: sweeps that noise must have limited for steps to shrink at the end.

    Budget and boldness:
        least_budget: smallest compute budget, if n is large enough.
        largest_budget: largest first compute budget.
        first_steps: fewest steps of the first sweep, if n is large enough.
        judged_sweeps: sweeps whose steps are judged on the next batch.
        bold_sweeps: sweeps before steps become shorter; the first slopes are mostly signal.
        judged_steps: steps before the first conclusion.
        window: largest number of steps behind a conclusion.
        halving_errors: standard errors by which kappa exceeds the part when the budget halves.
        boldness_errors: standard errors added to kappa before steps become shorter.
        boldest: largest ratio of the part to kappa.
        least_boldness: smallest factor on all steps.

    Scales of tensors:
        compared_from: first sweep whose slopes are compared with those of the sweep before.
        compared_until: end of that comparison; 0 compares none.
        compared_errors: standard errors by which a tensor stands out.
        noisy: coherence of all other tensors above which noise is not what limits them.
        scale_step: factor on the steps of a tensor that stands out.

    Rollback:
        lost: multiple of the lowest running loss that triggers a check.
        lost_noise: smallest distance from the running loss, in mean deviations of one loss.
        loss_follow: weight of one loss in the running loss.
        copy_steps: fewest steps between two copies of the parameters.
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
        """The saved constants; raises if they do not fit."""
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
