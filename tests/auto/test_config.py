"""AutoConfig: the constants of AutoCoCD, checked, used and saved."""

from dataclasses import FrozenInstanceError, fields, replace
from math import inf, nan

import pytest
import torch

import cocd


def test_every_constant_is_documented():
    assert cocd.AutoConfig.__doc__ is not None
    for each in fields(cocd.AutoConfig):
        assert f"        {each.name}: " in cocd.AutoConfig.__doc__, each.name


@pytest.mark.parametrize(
    ("constants", "sentence"),
    [
        ({"radius": 0.0}, "radius must be above 0, got 0.0"),
        ({"damping": -1.0}, "damping must be 0 or more, got -1.0"),
        ({"part": nan}, "part must be 0 or more, got nan"),
        ({"measure_every": 2.5}, "measure_every must be an integer, got 2.5"),
        ({"reach": "far"}, "reach must be a number, got 'far'"),
        ({"reach": True}, "reach must be a number, got True"),
    ],
)
def test_bad_constants_are_refused(constants, sentence):
    with pytest.raises(ValueError, match=sentence):
        cocd.AutoConfig(**constants)


def test_a_config_is_frozen():
    with pytest.raises(FrozenInstanceError):
        cocd.AutoConfig().part = 1.0


def test_something_else_is_refused():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="config must be an AutoConfig"):
        cocd.AutoCoCD([x], config={"part": 1})
    with pytest.raises(ValueError, match="config is an option of the optimizer"):
        cocd.AutoCoCD([{"params": [x], "config": cocd.AutoConfig()}])


def trained(config, x, steps=20):
    optimizer = cocd.AutoCoCD([x], compute_budget=2, config=config)
    for _ in range(steps):
        optimizer.step(lambda: (x**2).sum() + x[0] * x[1])
    return optimizer


def test_an_ablation_takes_a_part_out():
    x, y = (torch.full((6,), 2.0, requires_grad=True) for _ in "xy")
    whole = trained(None, x)
    without = trained(replace(cocd.AutoConfig(), measure_every=1), y)
    assert without.config.measure_every == 1 and whole.config == cocd.AutoConfig()
    assert without.evaluations == 20 * (2 * 2 + 3) > whole.evaluations


def test_the_config_is_part_of_state_dict():
    x = torch.full((6,), 2.0, requires_grad=True)
    config = cocd.AutoConfig(part=0.7, part_sweeps=inf)
    saved = trained(config, x).state_dict()
    y = x.detach().clone().requires_grad_()
    again = cocd.AutoCoCD([y])
    again.load_state_dict(saved)
    assert again.config == config


def test_a_state_with_other_constants_is_refused_whole():
    x = torch.full((6,), 2.0, requires_grad=True)
    optimizer = trained(None, x)
    saved = optimizer.state_dict()
    del saved["state"]["cocd"]["config"]["part"]
    before = optimizer.evaluations
    optimizer.evaluations += 1
    with pytest.raises(ValueError, match="another set of constants: part"):
        optimizer.load_state_dict(saved)
    assert optimizer.evaluations == before + 1
