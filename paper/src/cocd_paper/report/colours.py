"""One colour for each method, wherever it is drawn."""

from __future__ import annotations

# Okabe and Ito's colours, told apart by most colour-blind readers.
METHODS = {
    "cocd": "#0072B2",
    "bccd": "#E69F00",
    "spsa": "#009E73",
    "sgd": "#777777",
    "zosgd": "#D55E00",
    "random": "#56B4E9",
    "mezo": "#8C6BB1",
    "adam": "#A08060",
}
OTHER = "#CC79A7"

# For the values of one setting, small to large.
RAMP = ("#5E3C99", "#2C7BB6", "#1B9E77", "#7FA61C", "#E0A100", "#D95F02")


def colour(method: str) -> str:
    """The colour of a method.

    >>> colour("CoCD") == colour("cocd")
    True
    """
    return METHODS.get(method.lower(), OTHER)


def ramp(count: int) -> list[str]:
    """`count` colours from the first to the last of `RAMP`, spread out; they repeat if need be.

    >>> ramp(2)
    ['#5E3C99', '#D95F02']
    """
    if count > len(RAMP):
        return [RAMP[i % len(RAMP)] for i in range(count)]
    last = max(count - 1, 1)
    return [RAMP[round(i * (len(RAMP) - 1) / last)] for i in range(count)]


def shade(colour: str, share: float) -> str:
    """`colour` mixed with white (`share` > 0) or with black (`share` < 0).

    >>> shade("#000000", 0.5), shade("#ffffff", -1)
    ('#808080', '#000000')
    """
    end = 255 if share > 0 else 0
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + abs(share) * (end - part)):02x}" for part in parts)
