"""One small network under every loss."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case, labels


def _units(loss_fn, target, *last):
    body = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3), *last)
    return Case(body, loss_fn, torch.randn(6, 4), target)


def _pixels(loss_fn, target):
    body = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Tanh(), nn.Conv2d(3, 3, 2))
    return Case(body, loss_fn, torch.randn(4, 1, 4, 4), target)


def _grid():
    return labels(16, 3).view(4, 2, 2)


def mse_sum():
    return _units(nn.MSELoss(reduction="sum"), torch.randn(6, 3))


def l1():
    return _units(nn.L1Loss(), torch.randn(6, 3))


def l1_sum():
    return _units(partial(F.l1_loss, reduction="sum"), torch.randn(6, 3))


def huber():
    return _units(nn.HuberLoss(delta=0.3), torch.randn(6, 3))


def smooth_l1():
    return _units(partial(F.smooth_l1_loss, beta=0.5), torch.randn(6, 3))


def cross_entropy_sum():
    return _units(nn.CrossEntropyLoss(reduction="sum"), labels(6, 3))


def cross_entropy_smoothed():
    return _units(nn.CrossEntropyLoss(label_smoothing=0.1), labels(6, 3))


def cross_entropy_weighted():
    return _units(nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5])), labels(6, 3))


def cross_entropy_ignoring():
    loss = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5]), ignore_index=1, label_smoothing=0.2)
    return _units(loss, labels(6, 3))


def cross_entropy_of_probabilities():
    return _units(F.cross_entropy, torch.rand(6, 3).softmax(1))


def cross_entropy_of_pixels():
    return _pixels(nn.CrossEntropyLoss(), _grid())


def cross_entropy_of_pixels_ignoring():
    return _pixels(nn.CrossEntropyLoss(ignore_index=2), _grid())


def nll():
    return _units(nn.NLLLoss(), labels(6, 3), nn.LogSoftmax(1))


def nll_of_pixels():
    loss = nn.NLLLoss(torch.tensor([1.0, 2.0, 0.5]), ignore_index=0)
    case = _pixels(loss, _grid())
    case.model.append(nn.LogSoftmax(1))
    return case


def bce():
    return _units(nn.BCELoss(), torch.rand(6, 3), nn.Sigmoid())


def bce_weighted():
    return _units(nn.BCELoss(weight=torch.rand(6, 1)), torch.rand(6, 3), nn.Sigmoid())


def bce_with_logits():
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 3.0, 0.5]), reduction="sum")
    return _units(loss, torch.rand(6, 3))


def bce_of_one_unit():
    return _units(F.binary_cross_entropy_with_logits, torch.rand(6), nn.Linear(3, 1), nn.Flatten(0))


def unknown_loss():
    return _units(lambda y, target: ((y - target) ** 4).mean().sqrt(), torch.randn(6, 3))


def unknown_loss_over_the_batch():
    return _units(lambda y, target: torch.pdist(y).mean() - torch.cov(y.T).trace(), None)


def loss_with_parameters():
    class Margin(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(3))

        def forward(self, y, target):
            return (F.relu(1 - y * target) * self.weight).mean()

    return _units(Margin(), torch.randn(6, 3).sign())
