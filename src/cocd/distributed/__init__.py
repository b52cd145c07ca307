"""Share the evaluations of a step among the ranks of a ``torch.distributed`` process group.

Every rank holds the model and sees the same batch. Each evaluates its slice of the probes; an
all-gather collects the differences, and every rank makes the same update from the same numbers.
Only a few numbers per probe cross the network, whatever the size of the model.
"""

from .ranks import RankError
from .shard import Shard

__all__ = ["RankError", "Shard"]
