"""What is measured: the paper's three networks with its settings, and ResNet-20."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from cocd_paper import networks
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss


@dataclass(frozen=True)
class Workload:
    """A network, its batches, and the settings of the optimizer.

    `sequential_block` and `batched_block` are the coordinates in a block of those engines.
    `whole_cycle` says whether the incremental engines run all coordinates or a sample of every
    tensor. After `seconds` no further round begins.
    """

    name: str
    network: Callable[[], nn.Module]
    loss: Callable[[Any, Any], Tensor]
    inputs: tuple[int, ...]
    targets: int  # how many numbers a target has; 0 for one of ten labels
    batch: int
    compute_budget: int
    settings: dict[str, float]
    steps_per_epoch: int
    paper_seconds_per_epoch: float | None
    sequential_block: int
    batched_block: int
    whole_cycle: bool
    seconds: float

    def model(self) -> nn.Module:
        """The network, always with the same weights, in train mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.network().train()

    def data(self) -> tuple[Tensor, Tensor]:
        """A batch of random numbers: the cost does not depend on the values."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(self.batch, *self.inputs, generator=generator)
        if self.targets:
            # As far from zero as the torques of the SARCOS arm: a loss near 190 to begin with.
            return x, 14 * torch.randn(self.batch, self.targets, generator=generator)
        return x, torch.randint(10, (self.batch,), generator=generator)


SARCOS = Workload(
    name="sarcos-mlp",
    network=networks.sarcos_mlp,
    loss=mse_loss,
    inputs=(21,),
    targets=7,
    batch=64,
    compute_budget=64,
    settings={"lr": 1e-3, "eps": 1.0, "decay": 1.0, "weight_decay": 1e-4},
    steps_per_epoch=695,
    paper_seconds_per_epoch=6.12,
    sequential_block=64,
    batched_block=64,
    whole_cycle=True,
    seconds=15,
)

MNIST = Workload(
    name="mnist-cnn",
    network=networks.mnist_cnn,
    loss=cross_entropy,
    inputs=(1, 28, 28),
    targets=0,
    batch=128,
    compute_budget=256,
    settings={"lr": 1e-2, "eps": 0.1, "decay": 0.99, "weight_decay": 1e-4},
    steps_per_epoch=469,
    paper_seconds_per_epoch=44.56,
    sequential_block=2,
    batched_block=4,
    whole_cycle=True,
    seconds=45,
)

CIFAR = Workload(
    name="cifar-cnn",
    network=networks.cifar_cnn,
    loss=cross_entropy,
    inputs=(3, 32, 32),
    targets=0,
    batch=128,
    compute_budget=1024,
    settings={"lr": 1e-2, "eps": 0.1, "decay": 0.99, "weight_decay": 5e-4},
    steps_per_epoch=391,
    paper_seconds_per_epoch=77.03,
    sequential_block=2,
    batched_block=4,
    whole_cycle=True,
    seconds=60,
)

# Not in the paper: these settings hardly move the network.
RESNET = Workload(
    name="resnet-20",
    network=networks.resnet20,
    loss=cross_entropy,
    inputs=(3, 32, 32),
    targets=0,
    batch=32,
    compute_budget=64,
    settings={"lr": 1e-4, "eps": 1e-2, "decay": 0.99, "weight_decay": 1e-4},
    steps_per_epoch=1563,
    paper_seconds_per_epoch=None,
    sequential_block=1,
    batched_block=2,
    whole_cycle=False,
    seconds=60,
)

# The paper's figure of ResNet-20 at its full size, B = 2,048: a step of it is 32 of these.
RESNET_FULL = replace(
    RESNET, name="resnet-20-full", batch=128, steps_per_epoch=391 * 2048 // 64, seconds=20
)

WORKLOADS = {workload.name: workload for workload in (SARCOS, MNIST, CIFAR, RESNET)}
ON_REQUEST = {workload.name: workload for workload in (RESNET_FULL,)}  # not in the table
