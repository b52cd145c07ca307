"""A network of spiking neurons trained by unit probes, where autograd's gradient is zero.

    python examples/spiking_network.py [--small] [--out FILE.png]

Needs cocd, scikit-learn and matplotlib (cocd[examples]). Two layers of leaky neurons read a
handwritten digit for a few time steps; a neuron fires, 1 or 0, when its potential passes a
threshold, and a linear layer counts the spikes. A step has no slope, so backpropagation leaves both
layers as they were drawn and trains the last one alone. A unit probe moves the potential that one
neuron receives by a finite amount in every sample and sees whose loss changes: no surrogate slope
is made up, and the forward pass is all there is.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import cocd

STEPS = 4  # of time
RADIUS = 0.5  # of a probe; the threshold is 1


class Spikes(nn.Module):
    """Leaky neurons behind a linear layer: they fire above 1, and start again from what is left."""

    def __init__(self, inputs: int, neurons: int) -> None:
        super().__init__()
        self.current = nn.Linear(inputs, neurons)

    def forward(self, x: Tensor) -> Tensor:  # (N, time, inputs) -> (N, time, neurons)
        current = self.current(x)
        potential, fired = torch.zeros_like(current[:, 0]), []
        for now in current.unbind(1):
            potential = 0.8 * potential + now
            spikes = (potential > 1).to(x.dtype)
            potential = potential - spikes
            fired.append(spikes)
        return torch.stack(fired, 1)


class Network(nn.Module):
    """Two spiking layers, and a readout of how often each neuron of the second fired."""

    def __init__(self, neurons: int) -> None:
        super().__init__()
        self.first, self.second = Spikes(64, neurons), Spikes(neurons, neurons)
        self.readout = nn.Linear(neurons, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1).expand(-1, STEPS, -1)
        return self.readout(self.second(self.first(x)).mean(1))


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int, probe: bool, test) -> list[float]:
    """AdamW on slopes by probes or by autograd; test accuracy now and then."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    objective = cocd.trace(model, cross_entropy)
    gradient = cocd.UnitGradient(objective, directions=2, eps=RADIUS)
    generator = torch.Generator().manual_seed(0)
    curve = []
    for step in range(steps + 1):
        if step % max(1, steps // 20) == 0:
            curve.append(accuracy(model, *test))
            print(f"\rstep {step:,}, accuracy {curve[-1]:.3f}", end="", file=sys.stderr, flush=True)
        rows = torch.randint(0, len(x), (64,), generator=generator)
        if probe:
            gradient(objective(x[rows], y[rows]))
        else:
            optimizer.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="fewer neurons and steps")
    parser.add_argument("--out", type=Path, default=Path("runs/examples/spiking_network.png"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    neurons, steps = (16, 300) if args.small else (32, 1000)

    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 8, dtype=torch.float32), torch.tensor(labels)
    x, x_test, y, y_test = train_test_split(x, y, test_size=1 / 3, random_state=0, stratify=y)

    curves = {}
    for name, probe in (("backpropagation", False), ("unit probes", True)):
        torch.manual_seed(0)
        model = Network(neurons)
        began = time.process_time()
        curves[name] = train(model, x, y, steps, probe, (x_test, y_test))
        print(file=sys.stderr)
        print(f"{name}: {curves[name][-1]:.3f} after {time.process_time() - began:.0f} s")

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="steps", ylabel="test accuracy")
    for name, curve in curves.items():
        axes.plot([i * max(1, steps // 20) for i in range(len(curve))], curve, label=name)
    axes.legend()
    figure.savefig(args.out)
    plain, probed = (curves[name][-1] for name in ("backpropagation", "unit probes"))
    print(
        f"Where backpropagation trains the readout alone, unit probes train all three layers: "
        f"test accuracy from {plain:.3f} to {probed:.3f}; {args.out}"
    )


if __name__ == "__main__":
    main()
