"""What can go wrong, by name."""

__all__ = [
    "ClosureWarning",
    "EngineWarning",
    "NonFiniteLoss",
    "NonFiniteWarning",
    "RadiusWarning",
    "RestoreWarning",
]


class NonFiniteLoss(ArithmeticError):
    """The loss is NaN or infinite where the method cannot continue without it.

    Nothing has changed when it is raised: parameters, memory, position, random state and module
    buffers are as they were before the step.

    >>> import torch, cocd
    >>> x = torch.zeros(2, requires_grad=True)
    >>> optimizer = cocd.CoCD([x], lr=0.1)
    >>> optimizer.step(lambda: (x / 0).sum())
    Traceback (most recent call last):
    cocd.errors.NonFiniteLoss: the loss at x_t is nan; nothing has changed
    """


class NonFiniteWarning(RuntimeWarning):
    """Some probes gave NaN or infinite losses; older estimates were kept."""


class ClosureWarning(RuntimeWarning):
    """The closure does not seem to be the loss of these parameters on one batch."""


class EngineWarning(RuntimeWarning):
    """A fast engine disagreed with the closure; another engine probes the parameter from now on."""


class RadiusWarning(RuntimeWarning):
    """``eps`` is so small that some weights do not change when it is added, in their dtype."""


class RestoreWarning(RuntimeWarning):
    """The loss rose so far that `AutoCoCD` restored earlier parameters."""
