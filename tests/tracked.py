"""Small runs for the tracker of coherence."""

import torch
from helpers import quadratic

import cocd
from cocd import baselines

F = quadratic(7)
METHODS = {
    "CoCD": lambda p, **o: cocd.CoCD(p, 0.01, compute_budget=3, **o),
    "decay": lambda p, **o: cocd.CoCD(p, 0.01, compute_budget=3, decay=0.5, **o),
    "ring": lambda p, **o: cocd.CoCD(p, 0.01, compute_budget=2, memory_budget=5, decay=0.9, **o),
    "weights": lambda p, **o: cocd.CoCD(p, 0.01, compute_budget=4, weight_decay=0.1, **o),
    "BCCD": lambda p, **o: baselines.BCCD(p, 0.01, compute_budget=3, **o),
    "Auto": lambda p, **o: cocd.AutoCoCD(p, compute_budget=3, **o),
    "Random": lambda p, **o: baselines.RandomCoordinate(p, 0.01, compute_budget=3, **o),
    "all": lambda p, **o: baselines.FiniteDifference(p, 0.01, **o),
}


def tensors(dtype=torch.float64):
    start = torch.linspace(-1, 2, 7, dtype=torch.float64).to(dtype)
    return [start[:3].clone().requires_grad_(), start[3:].view(2, 2).clone().requires_grad_()]


def problem(name, dtype=torch.float64, **options):
    params = tensors(dtype)
    optimizer = METHODS[name](list(zip("ab", params, strict=True)), **options)
    return optimizer, lambda: F(torch.cat([p.flatten() for p in params]).double())


def steps(optimizer, closure, count):
    for _ in range(count):
        optimizer.step(closure)
