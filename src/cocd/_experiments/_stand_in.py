"""Data until cocd.data is there."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Splits(NamedTuple):
    train_x: Tensor
    train_y: Tensor
    held_x: Tensor
    held_y: Tensor
    note: str


def load(name: str, *, data: Path | None, split: str, seed: int) -> Splits:
    base = Path(data or "/nonexistent")
    g = torch.Generator().manual_seed(seed)
    if name == "sarcos":
        from scipy.io import loadmat

        rows = torch.tensor(loadmat(base / "sarcos/sarcos_inv.mat")["sarcos_inv"])
        order = torch.randperm(len(rows), generator=g)
        held, train = order[:4448], order[4448:]
        if split == "validation":
            held, train = train[:4448], train[4448:]
        x, y = rows[:, :21], rows[:, 21:].float()
        mean, std = x[train].mean(0), x[train].std(0)
        x = ((x - mean) / std).float()
        return Splits(x[train], y[train], x[held], y[held], "")

    def idx(file: str) -> Any:
        raw = gzip.open(base / "mnist" / file).read()
        dims = raw[3]
        shape = np.frombuffer(raw, ">i4", dims, 4)
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)

    if name == "mnist":
        x = torch.tensor(idx("train-images-idx3-ubyte.gz"))[:, None].float() / 255
        y = torch.tensor(idx("train-labels-idx1-ubyte.gz")).long()
        hx = torch.tensor(idx("t10k-images-idx3-ubyte.gz"))[:, None].float() / 255
        hy = torch.tensor(idx("t10k-labels-idx1-ubyte.gz")).long()
        if split == "validation":
            order = torch.randperm(len(x), generator=g)
            x, y, hx, hy = x[order[6000:]], y[order[6000:]], x[order[:6000]], y[order[:6000]]
        m, s = x.mean(), x.std()
        return Splits((x - m) / s, y, (hx - m) / s, hy, "")
    raise ValueError(name)


def generated(name: str, seed: int) -> Splits:
    g = torch.Generator().manual_seed(seed)
    if name == "sarcos":
        x = torch.randn(640, 21, generator=g)
        y = 14 * torch.tanh(x @ torch.randn(21, 7, generator=g))
        return Splits(x[:512], y[:512], x[512:], y[512:], "")
    shape = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}[name]
    y = torch.randint(10, (320,), generator=g)
    x = torch.randn(10, *shape, generator=g)[y] + torch.randn(320, *shape, generator=g)
    return Splits(x[:256], y[:256], x[256:], y[256:], "")
