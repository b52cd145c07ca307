import pytest
import torch

pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")

from benchmarks import policies


def test_an_episode_repeats_to_the_bit():
    weights = torch.full(policies.SHAPE, 0.1)
    assert policies.episode(weights, 0) == policies.episode(weights, 0)
    assert policies.episode(weights, 0) != policies.episode(weights, 1)


def test_every_method_spends_the_episodes():
    rows = {row["method"]: row for row in policies.policies(episodes=20, rates=(0.1,))}
    assert list(rows) == list(policies.METHODS)
    assert all(20 <= row["episodes"] < 20 + 17 for row in rows.values())


def test_finite_differences_learn_to_swim():
    build = policies.METHODS["finite differences"]
    weights, _, _ = policies.learn(build, 0.003, 51)
    assert policies.episode(weights, 0) > policies.episode(torch.zeros(policies.SHAPE), 0)
