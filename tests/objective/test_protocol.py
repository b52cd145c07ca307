"""What an optimizer may ask of a loss, and what makes an ordinary closure answer."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

import cocd
from cocd.objective import BoundLoss, ForwardedLoss
from cocd.objective.closure import ClosureLoss, bound
from cocd.parts.evaluation import Evaluations


def members(kind: type) -> set[str]:
    return {name for name, each in vars(kind).items() if inspect.isfunction(each)} - {"__init__"}


def test_a_wrapper_forwards_every_member_of_the_protocol() -> None:
    inherited = {"__subclasshook__", "_no_init_or_replace_init"}
    assert members(BoundLoss) - inherited <= members(ForwardedLoss)


def test_a_bound_loss_is_taken_as_it_is_and_a_function_is_adapted() -> None:
    loss = cocd.trace(nn.Linear(2, 1), nn.functional.mse_loss)(torch.ones(1, 2), torch.ones(1, 1))
    assert bound(loss) is loss
    assert isinstance(bound(lambda: 0.0), ClosureLoss)


def test_attributes_of_a_closure_are_not_taken_for_the_protocol() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prepare = nn.Linear(2, 1)
            self.differences = self.release = self.quickly = self.prepare

        def forward(self) -> Any:
            return self.prepare(torch.ones(1, 2)).square().sum()

    torch.manual_seed(0)
    model = Model()
    optimizer = cocd.CoCD(model.parameters(), lr=0.1, compute_budget=3)
    losses = [float(optimizer.step(model)) for _ in range(20)]
    assert losses[-1] < losses[0] / 10


def test_evaluations_are_counted_when_charged_and_not_inside_uncounted() -> None:
    counts: list[int] = []
    aside: list[int] = []
    with Evaluations(lambda: 1.0, None, (), counts.append) as evaluate:
        evaluate()
        evaluate.charge(5)
        with pytest.raises(KeyError), evaluate.uncounted(aside.append):
            evaluate()
            evaluate()
            raise KeyError
    assert (counts, aside) == ([6], [2])
