"""ResNet-20 on CIFAR-10 with four decays: reduced by default, the paper's size on request."""

from __future__ import annotations

from collections.abc import Iterator

from ..runs import Run, Setting

NAME = "figure-resnet"
ABOUT = "ResNet-20 on CIFAR-10, gamma from 0 to 0.95; reduced size unless --task says -full"
REDUCED, FULL = "cifar10-resnet", "cifar10-resnet-full"
TASKS = (REDUCED,)
OPTIONAL = (FULL,)
EPOCHS = 10  # the paper's time limit
DECAYS = (0.0, 0.5, 0.9, 0.95)

# Budget, batch size, steps of an epoch. Behind the first layers nearly all of the network changes
# with a probe, so the reduced size is a small one: ten epochs probe 9,600 of 269,722 coordinates.
SIZES = {REDUCED: (32, 16, 30), FULL: (2048, 128, 391)}


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """One run for each decay."""
    budget, batch, steps = SIZES[task]
    size = "full size" if task == FULL else "reduced"
    label = f"CoCD ({size}: B {budget:,}, batch {batch}, {steps} steps an epoch)"
    for decay in DECAYS:
        settings: dict[str, Setting] = {
            "lr": 0.1,
            "eps": 1.0,
            "decay": decay,
            "compute_budget": budget,
            "weight_decay": 1e-4,
            "batch_size": batch,
            "activation": "relu",
            "dtype": "float32",
        }
        yield Run(
            NAME, REDUCED, "cocd", label, settings, seed, epochs, steps, vary="decay", group=size
        )
