"""What a run can tell of itself: is the gradient coherent enough for old estimates to be used?

>>> import torch, cocd
>>> from cocd.diagnostics import Coherence
>>> x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> optimizer = cocd.CoCD([x], lr=0.1, eps=0.1, compute_budget=1)
>>> tracker = Coherence(optimizer)
>>> for _ in range(9):
...     loss = optimizer.step(lambda: x @ x / 2)
>>> error = tracker.error(lambda: x @ x / 2, L=1.0)
>>> error.measured < error.euclidean_bound < error.bound, error.caveats
(True, ())
>>> optimizer.evaluations, tracker.evaluations
(27, 7)
"""

from .coherence import Coherence
from .error import Error

__all__ = ["Coherence", "Error"]
