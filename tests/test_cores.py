"""Cores: exact while they are zero, trained alone, merged back, saved, and refused twice."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from helpers import frozen
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import cocd


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.query = nn.Linear(6, 8)
        self.value = nn.Linear(8, 6, bias=False)
        self.again = self.value  # one layer in two places
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Any:
        x = self.embedding(tokens)
        x = x + self.value(torch.tanh(self.query(x)))
        return self.head(self.again(torch.tanh(self.query(x))))


def net(dtype: torch.dtype = torch.float32) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    return Net().to(dtype), torch.randint(7, (5, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_zero_cores_change_nothing_and_merge_to_the_same_bits(dtype: torch.dtype) -> None:
    model, tokens = net(dtype)
    before, start = model(tokens), frozen(model.state_dict())
    cocd.cores(model, rank=3)
    assert torch.equal(model(tokens), before)
    assert cocd.merge_cores(model) is model
    assert frozen(model.state_dict()) == start
    assert type(model.query) is nn.Linear and model.again is model.value


def test_cores_are_r_by_r_and_tied_weights_are_left_alone() -> None:
    model, _ = net()
    found = cocd.cores(model, rank=2)
    assert [tuple(core.shape) for core in found] == [(2, 2), (2, 2)]
    assert type(model.head) is nn.Linear and model.again is model.value
    assert [name for name, _ in model.named_parameters() if name.endswith("core")] == [
        "query.core",
        "value.core",
    ]


def test_unit_change_of_a_core_changes_the_weight_by_a_singular_direction() -> None:
    model, _ = net(torch.float64)
    weight = model.query.weight.detach().clone()
    u, s, v = torch.linalg.svd(weight, full_matrices=False)
    (core,) = cocd.cores(model, rank=2, layers="query")
    with torch.no_grad():
        core[1, 0] = 0.5
    cocd.merge_cores(model)
    change = model.query.weight - weight
    torch.testing.assert_close(change, 0.5 * s[1] * torch.outer(u[:, 1], v[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_moves_cores_alone_and_merging_keeps_the_function(dtype: torch.dtype) -> None:
    model, tokens = net(dtype)
    fixed = frozen(model.state_dict())
    y = torch.randn(5, 3, 7)
    optimizer = cocd.AutoCoCD(cocd.cores(model, rank=3))
    losses = [float(optimizer.step(lambda: mse_loss(model(tokens).float(), y))) for _ in range(8)]
    assert losses[-1] < 0.95 * losses[0]
    state = frozen(model.state_dict())
    assert {name: state[name] for name in fixed} == fixed
    trained = model(tokens)
    cocd.merge_cores(model)
    close: dict[str, Any] = dict(rtol=0, atol=1e-6 if dtype is torch.float32 else 0.03)
    torch.testing.assert_close(model(tokens), trained, **close)


def test_state_dict_loads_into_another_model_with_cores() -> None:
    model, tokens = net()
    for core in cocd.cores(model, rank=3):
        nn.init.normal_(core)
    torch.manual_seed(1)
    other = Net()
    cocd.cores(other, rank=3)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(tokens), model(tokens))
    assert torch.equal(copy.deepcopy(model)(tokens), model(tokens))


@pytest.mark.parametrize("patterns", ["quer*", ["query", "nothing"]])
def test_layers_are_chosen_by_name(patterns: list[str] | str) -> None:
    model, _ = net()
    cocd.cores(model, rank=2, layers=patterns)
    assert type(model.value) is nn.Linear and type(model.query) is not nn.Linear


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rank": 0}, "rank must be a whole number"),
        ({"rank": 7}, "rank=7 is more than query has"),
        ({"layers": "head"}, "layers='head' matches no linear layer"),
        ({"layers": "attention.*"}, "matches no linear layer"),
    ],
)
def test_what_cannot_work_is_refused_and_changes_nothing(
    options: dict[str, Any], said: str
) -> None:
    model, _ = net()
    start = frozen(model.state_dict())
    with pytest.raises(ValueError, match=said):
        cocd.cores(model, **options)
    assert frozen(model.state_dict()) == start


def test_cores_are_refused_twice_and_merging_without_any() -> None:
    model, _ = net()
    with pytest.raises(ValueError, match="model has no cores"):
        cocd.merge_cores(model)
    cocd.cores(model)
    with pytest.raises(ValueError, match="has cores already"):
        cocd.cores(model)
