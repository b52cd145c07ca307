"""The networks of the paper's experiments, and two more to measure with.

The paper gives learning rates and budgets but not its networks; these have as many parameters as
its percentages imply. Each is an ordinary module with PyTorch's default initialisation. Tanh is
the default of the paper's three because stale estimates make their ReLU versions diverge at the
paper's settings.

>>> import torch
>>> from cocd_paper import networks
>>> networks.mnist_cnn()(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 10])
>>> networks.sarcos_mlp(activation=torch.nn.SiLU)[1]
SiLU()
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import pad

__all__ = [
    "ResNet",
    "cifar_cnn",
    "mlp",
    "mnist_cnn",
    "parameters",
    "resnet20",
    "sarcos_mlp",
    "small_cnn",
    "wide_mlp",
]

Activation = Callable[[], nn.Module]


def parameters(model: nn.Module) -> int:
    """How many numbers there are to train.

    >>> parameters(nn.Linear(3, 2))
    8
    """
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def mlp(*widths: int, activation: Activation = nn.Tanh) -> nn.Sequential:
    """Linear layers of these widths, inputs first, an activation after all but the last.

    >>> mlp(4, 8, 2)
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): Tanh()
      (2): Linear(in_features=8, out_features=2, bias=True)
    )
    """
    if len(widths) < 2:
        raise ValueError(f"widths must be those of at least inputs and outputs, got {widths}")
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def sarcos_mlp(*, activation: Activation = nn.Tanh, width: int = 60) -> nn.Sequential:
    """Inverse dynamics of the SARCOS arm: 21 inputs, four layers of 60 units, 7 torques.

    >>> parameters(sarcos_mlp())
    12727
    """
    return mlp(21, width, width, width, width, 7, activation=activation)


def mnist_cnn(*, activation: Activation = nn.Tanh) -> nn.Sequential:
    """Three 3x3 convolutions, each with an activation and max-pooling, and a linear layer.

    >>> parameters(mnist_cnn())
    19654
    """
    return _cnn(1, 28, activation)


def cifar_cnn(*, activation: Activation = nn.Tanh) -> nn.Sequential:
    """`mnist_cnn` for 3 x 32 x 32 images.

    >>> parameters(cifar_cnn())
    24350
    """
    return _cnn(3, 32, activation)


def small_cnn(*, activation: Activation = nn.ReLU) -> nn.Sequential:
    """About as many weights as DeepZero's small network, with BatchNorm, for 3 x 32 x 32 images.

    Three 3x3 convolutions, each with BatchNorm, max-pooling and an activation, and a linear layer.

    >>> parameters(small_cnn())
    11910
    """
    layers: list[nn.Module] = []
    channels = 3
    for width in (12, 16, 32):
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
        layers += [activation(), nn.MaxPool2d(2)]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * 4 * 4, 10))


def _cnn(channels: int, side: int, activation: Activation) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (12, 20, 64):
        layers += [nn.Conv2d(channels, width, 3, padding=1), activation(), nn.MaxPool2d(2)]
        channels, side = width, side // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side * side, 10))


def wide_mlp(
    n: int, *, inputs: int = 32, outputs: int = 32, activation: Activation = nn.Tanh
) -> nn.Sequential:
    """One hidden layer, as wide as about `n` parameters make it; half of them are in the last.

    >>> [parameters(wide_mlp(n)) for n in (10**4, 10**6)]
    [9977, 999992]
    """
    hidden = round((n - outputs) / (inputs + 1 + outputs))
    if hidden < 1:
        raise ValueError(f"n must leave room for a hidden unit, got {n}")
    return mlp(inputs, hidden, outputs, activation=activation)


def resnet20(
    *,
    classes: int = 10,
    activation: Activation = nn.ReLU,
    shortcut: str = "pad",
    width: int = 16,
) -> ResNet:
    """ResNet-20 for 3 x 32 x 32 images, with BatchNorm: three stages of three blocks.

    The stages have `width`, twice and four times as many channels.

    Where the size changes, ``shortcut="pad"`` takes every second pixel and pads the channels with
    zeros (He et al.'s option A), "conv" is a 1x1 convolution with BatchNorm (option B).

    >>> parameters(resnet20()), parameters(resnet20(shortcut="conv"))
    (269722, 272474)
    >>> parameters(resnet20(width=4))
    17326
    """
    return ResNet(3, classes, activation, shortcut, width)


class ResNet(nn.Module):
    """A residual network for small images: three stages of `depth` blocks.

    The stages have `width`, twice and four times as many channels.

    >>> import torch
    >>> ResNet(1, 10, nn.ReLU, "pad")(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, depth: int, classes: int, activation: Activation, shortcut: str, width: int = 16
    ) -> None:
        super().__init__()
        if shortcut not in ("pad", "conv"):
            raise ValueError(f"shortcut must be 'pad' or 'conv', got {shortcut!r}")
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), activation()
        )
        blocks: list[nn.Module] = []
        channels = width
        for outputs in (width, 2 * width, 4 * width):
            for _ in range(depth):
                blocks.append(_Block(channels, outputs, activation, shortcut))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        out: Tensor = self.head(self.blocks(self.stem(x)))
        return out


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, activation: Activation, shortcut: str) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.act1 = activation()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride == 2 and shortcut == "pad":
            self.shortcut = _Pad(outputs - inputs)
        elif stride == 2:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.act2 = activation()

    def forward(self, x: Tensor) -> Tensor:
        out = self.act1(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        result: Tensor = self.act2(out + self.shortcut(x))
        return result


class _Pad(nn.Module):
    """Every second pixel, and `channels` more channels of zeros, half of them on either side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.before, self.after = channels // 2, channels - channels // 2

    def forward(self, x: Tensor) -> Tensor:
        return pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.before, self.after))
