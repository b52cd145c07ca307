"""ResNet-20 on CIFAR-10 with four decays: small steps by default, others on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..runs import Run, Setting

NAME = "figure-resnet"
ABOUT = "ResNet-20 on CIFAR-10, gamma from 0 to 0.95; reduced unless --task says -narrow or -full"
REDUCED, NARROW, FULL = "cifar10-resnet", "cifar10-resnet-narrow", "cifar10-resnet-full"
TASKS = (REDUCED,)
OPTIONAL = (NARROW, FULL)
EPOCHS = 10  # the paper's time limit
DECAYS = (0.0, 0.5, 0.9, 0.95)


class Size(NamedTuple):
    """Channels of the first stage, and how much is done."""

    name: str
    width: int
    budget: int
    batch: int
    steps: int  # of an epoch


# Behind the first layers nearly all of the network changes with a probe, so the reduced size takes
# few steps: ten epochs probe 9,600 of 269,722 coordinates. The narrow one has a quarter of the
# channels (17,326 coordinates) and all steps, with as large a share of the coordinates in each.
SIZES = {
    REDUCED: Size("reduced", 16, 32, 16, 30),
    NARROW: Size("quarter width", 4, 132, 128, 391),
    FULL: Size("full size", 16, 2048, 128, 391),
}


def runs(task: str, seed: int, epochs: int) -> Iterator[Run]:
    """One run for each decay."""
    size = SIZES[task]
    how = f"B {size.budget:,}, batch {size.batch}, {size.steps} steps per epoch"
    for decay in DECAYS:
        settings: dict[str, Setting] = {
            "lr": 0.1,
            "eps": 1.0,
            "decay": decay,
            "compute_budget": size.budget,
            "weight_decay": 1e-4,
            "batch_size": size.batch,
            "activation": "relu",
            "dtype": "float32",
        }
        if task == NARROW:
            settings["width"] = size.width
        yield Run(
            NAME, REDUCED, "cocd", f"CoCD ({size.name}: {how})", settings, seed, epochs, size.steps,
            vary="decay", group=size.name,
        )  # fmt: skip
