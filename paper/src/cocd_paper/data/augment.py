"""Random changes of images that keep their labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def crop_and_flip(images: Tensor, generator: torch.Generator, margin: int = 4) -> Tensor:
    """Each image shifted by up to `margin` pixels, zeros where it ends; every other one mirrored.

    >>> images = torch.ones(2, 1, 8, 8)
    >>> crop_and_flip(images, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 1, 8, 8])
    """
    count, channels, height, width = images.shape
    shifts = torch.randint(0, 2 * margin + 1, (2, count, 1), generator=generator)
    mirrored = torch.randint(0, 2, (count, 1), generator=generator).bool()
    rows, columns = shifts[0] + torch.arange(height), torch.arange(width)
    columns = shifts[1] + torch.where(mirrored, columns.flip(0), columns)
    which, channel = torch.arange(count)[:, None, None, None], torch.arange(channels)[:, None, None]
    padded = pad(images, (margin,) * 4)
    return padded[which, channel, rows[:, None, :, None], columns[:, None, None, :]]
