"""Runs whose evaluations ranks share: a small network, its batches, every method."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

import cocd
from cocd.baselines import BCCD, SPSA, ZOSGD, EvolutionStrategy, FiniteDifference, MeZO
from cocd.baselines import RandomCoordinate as Randomly

STEPS = 9


def network():
    """43 parameters in 6 tensors; random numbers and buffers are in play."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 2)
    )


def batches(count=STEPS):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 3, generator=generator), torch.randn(8, 2, generator=generator))
        for _ in range(count)
    ]


def optimize(make, shard=None, *, closure_of=None, steps=STEPS, resume=None):
    """Train a little; everything that must not depend on who evaluated what."""
    model = network()
    optimizer = make(model)
    if resume:
        model.load_state_dict(resume["model"])
        optimizer.load_state_dict(resume["optimizer"])
        torch.set_rng_state(resume["random"])
    share = (lambda closure: closure) if shard is None else shard(optimizer)
    closure_of = closure_of or (lambda model: lambda x, y: lambda: mse_loss(model(x), y))
    closure_of = closure_of(model)
    take = optimizer if isinstance(optimizer, cocd.CoherentGradient) else optimizer.step
    adam = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for x, y in batches(steps)[resume["step"] if resume else 0 :]:
        losses.append(float(take(share(closure_of(x, y)))))
        if take is optimizer:
            adam.step()
    return {
        "losses": losses,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "evaluations": optimizer.evaluations,
        "step": steps,
    }


def coordinates(kind, **options):
    options = {"lr": 0.01, "eps": 0.1, **options}
    return lambda model: kind(model.parameters(), **options)


def two_groups(model):
    groups = [
        {"params": model[0].parameters(), "eps": 0.2},
        {"params": model[4].parameters(), "decay": 0.5},
    ]
    return cocd.CoCD(groups, lr=0.01, compute_budget=7, memory_budget=20, decay=0.9)


def gradient(model):
    return cocd.CoherentGradient(model.parameters(), eps=0.1, compute_budget=4)


def half_frozen(model):
    model[0].requires_grad_(False)
    optimizer = cocd.CoCD(model.parameters(), lr=0.01, compute_budget=6)
    model[1].requires_grad_(False)  # keeps its place in the sweep, and costs nothing
    return optimizer


METHODS = {
    "cocd": coordinates(cocd.CoCD, compute_budget=5, decay=0.9),
    "fewer probes than ranks": coordinates(cocd.CoCD, compute_budget=1),
    "blocks over tensors": coordinates(cocd.CoCD, compute_budget=31),
    "forward": coordinates(cocd.CoCD, compute_budget=5, difference="forward"),
    "backward": coordinates(cocd.CoCD, compute_budget=5, difference="backward"),
    "groups and a ring": two_groups,
    "frozen tensors": half_frozen,
    "estimator": gradient,
    "AutoCoCD": lambda model: cocd.AutoCoCD(model.parameters()),
    "AutoCoCD, a budget of 5": lambda model: cocd.AutoCoCD(model.parameters(), compute_budget=5),
    "BCCD": coordinates(BCCD, compute_budget=5),
    "FiniteDifference": coordinates(FiniteDifference),
    "RandomCoordinate": coordinates(Randomly, compute_budget=6),
    "SPSA": coordinates(SPSA, directions=4),
    "SPSA, one pair": coordinates(SPSA, directions=1),
    "ZOSGD": coordinates(ZOSGD, directions=3),
    "MeZO": coordinates(MeZO, directions=3),
    "EvolutionStrategy": coordinates(EvolutionStrategy, directions=4, shaping="rank"),
}
