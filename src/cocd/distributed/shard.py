"""`Shard`: closures whose evaluations are shared among ranks."""

from __future__ import annotations

import torch.distributed as dist

from ..objective.closure import bound
from ..objective.protocol import Closure
from ..optim.base import ZerothOrder
from ..optim.coherent_gradient import CoherentGradient, method_of
from ..parts.validation import check_count
from .ranks import Ranks
from .sharded_loss import ShardedLoss


class Shard:
    """Shares the evaluations of `optimizer`'s steps with the other ranks of a process group.

    ``shard(closure)`` turns an ordinary closure, or one from `cocd.trace`, into a closure for
    ``optimizer.step``. All ranks must use the same model, options, batches and seeds. Any optimizer
    of this package then takes the same steps on every rank as it would in one process, and its
    `evaluations` count those of all ranks.

    Args:
        optimizer: the optimizer; ranks compare its state. With `cocd.CoherentGradient`, pass that
            estimator.
        group: a process group; None for the default one.
        check_every: steps between comparisons of parameters, memory, random numbers and buffers.
            The first step is always checked.

    >>> import torch, cocd, cocd.distributed
    >>> from torch import distributed
    >>> distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    >>> x = torch.tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = cocd.CoCD([x], lr=0.2, eps=0.1, compute_budget=2)
    >>> shard = cocd.distributed.Shard(optimizer)
    >>> for _ in range(50):
    ...     loss = optimizer.step(shard(lambda: ((x - 1) ** 2).sum()))
    >>> x.detach().round(decimals=3), optimizer.evaluations
    (tensor([1., 1.]), 250)
    >>> distributed.destroy_process_group()
    """

    def __init__(
        self,
        optimizer: ZerothOrder | CoherentGradient,
        group: dist.ProcessGroup | None = None,
        check_every: int = 100,
    ) -> None:
        method = method_of(optimizer)
        if not isinstance(method, ZerothOrder):
            raise ValueError(
                f"optimizer must be one of cocd, got {type(optimizer).__name__}; beside "
                "cocd.CoherentGradient pass that one, not the optimizer that uses its estimate"
            )
        self.optimizer = method
        self.check_every = check_count("check_every", check_every)
        self.steps = 0  # begun so far
        self.ranks = Ranks(group)

    @property
    def rank(self) -> int:
        """This process's place in the group."""
        return self.ranks.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.ranks.size

    def __call__(self, closure: Closure) -> ShardedLoss:
        """The same objective for one step, with its probes shared among the ranks."""
        if not callable(closure) or isinstance(closure, ShardedLoss):
            raise ValueError(
                "closure must be a function that returns the loss and is not sharded yet, got "
                f"{closure!r}; call shard(lambda: loss_fn(model(x), y))"
            )
        return ShardedLoss(self, bound(closure))
