"""Handwritten digits learnt by several processes that share the probes of every step.

    torchrun --standalone --nproc_per_node 2 examples/distributed_digits.py

Needs torch, cocd and scikit-learn. Every rank holds the model and sees the same batches; each
probes its half of the coordinates. The result does not depend on the number of ranks.
"""

import argparse
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import cocd
import cocd.distributed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--budget", type=int, default=64, help="coordinates probed per step")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)  # the same on all ranks: weights, batches and dropout are then the same

    pixels, labels = load_digits(return_X_y=True)
    x = torch.tensor(pixels / 8 - 1, dtype=torch.float32).view(-1, 1, 8, 8)
    y = torch.tensor(labels)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    optimizer = cocd.CoCD(
        model.parameters(), lr=0.02, eps=0.1, compute_budget=args.budget, decay=0.98
    )
    objective = cocd.trace(model, cross_entropy)
    shard = cocd.distributed.Shard(optimizer, check_every=50)

    started = time.perf_counter()
    for _ in range(args.steps):
        chosen = torch.randint(len(y), (128,))
        loss = optimizer.step(shard(objective(x[chosen], y[chosen])))
    seconds = time.perf_counter() - started

    if shard.rank == 0:
        accuracy = (model(x).argmax(1) == y).float().mean()
        print(
            f"{shard.size} ranks, {args.steps} steps of {args.budget} coordinates: "
            f"loss {loss:.4f}, {accuracy:.1%} right, {optimizer.evaluations:,} evaluations "
            f"in {seconds:.1f} s"
        )
    dist.barrier()  # no rank takes the group down while another still uses it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
