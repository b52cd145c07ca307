"""Batches, scores, settings: what a task and a method make of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cocd_paper import data, methods, tasks
from cocd_paper.plans import paper
from cocd_paper.runs import Run, Setting
from cocd_paper.training import Training


def small(method: str = "cocd", task: str = "sarcos", **own: Setting) -> Run:
    made = paper.make("table-main", task, method, method.upper(), own, epochs=2)
    return paper.shrink(made, epochs=2, steps_per_epoch=3)


# --- batches and scores -------------------------------------------------------------------------


def test_every_pass_is_a_new_permutation() -> None:
    x = torch.arange(10.0)[:, None]
    batches = tasks.Batches(x, x, 3, seed=0, dtype=torch.float64)
    passes = [torch.cat([batches.next()[0] for _ in range(3)]).flatten().tolist() for _ in range(3)]
    assert all(len(set(one)) == 9 for one in passes)
    assert passes[0] != passes[1] != passes[2]
    assert batches.next()[0].dtype == torch.float64


def test_batches_go_on_from_any_position() -> None:
    x = torch.arange(10.0)[:, None]
    for taken in range(8):
        batches = tasks.Batches(x, x, 3, seed=1, dtype=torch.float32)
        for _ in range(taken):
            batches.next()
        state = batches.state_dict()
        rest = [batches.next()[1].tolist() for _ in range(5)]
        other = tasks.Batches(x, x, 3, seed=1, dtype=torch.float32)
        other.load_state_dict(state)
        assert [other.next()[1].tolist() for _ in range(5)] == rest


def test_augmented_batches_go_on_from_any_position() -> None:
    x, y = torch.rand(10, 3, 8, 8), torch.arange(10)
    batches = tasks.Batches(x, y, 3, seed=1, dtype=torch.float32, augment="crop and flip")
    batches.next()
    state = batches.state_dict()
    rest = [batches.next()[0] for _ in range(5)]
    other = tasks.Batches(x, y, 3, seed=1, dtype=torch.float32, augment="crop and flip")
    other.load_state_dict(state)
    assert all(torch.equal(other.next()[0], one) for one in rest)


def test_an_augmented_image_is_the_image_shifted_and_perhaps_mirrored() -> None:
    images = torch.rand(64, 3, 8, 8)
    made = data.crop_and_flip(images, torch.Generator().manual_seed(0), margin=2)
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    seen = set()
    for one, image in zip(made, padded, strict=True):
        found = [
            (top, left, mirrored)
            for top in range(5)
            for left in range(5)
            for mirrored in (False, True)
            if torch.equal(
                one.flip(-1) if mirrored else one, image[:, top : top + 8, left : left + 8]
            )
        ]
        assert len(found) == 1
        seen.update(found)
    assert len(seen) > 30  # of 50


def test_a_batch_cannot_be_larger_than_the_data() -> None:
    x = torch.zeros(10, 1)
    with pytest.raises(ValueError, match="batch_size must be from 1 to the 10 training rows"):
        tasks.Batches(x, x, 11, seed=0, dtype=torch.float32)


def test_a_score_in_chunks_is_the_score_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(small("sgd", "mnist"), task="cifar10-resnet")
    task, model = tasks.find(run.task), tasks.network(run)
    rows = data.generated("cifar10", rows=64)
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    whole = tasks.score(task, model, rows.train_x, rows.train_y)
    monkeypatch.setattr(tasks, "CHUNK", 10)
    assert tasks.score(task, model, rows.train_x, rows.train_y) == pytest.approx(whole)
    assert model.training
    assert all(torch.equal(buffers[name], value) for name, value in model.named_buffers())


def test_seeds_give_weights_and_batches_of_their_own() -> None:
    runs = [small(), replace(small(), seed=1)]
    a, b = (tasks.network(run)[0].weight for run in runs)  # type: ignore[index]
    assert not torch.equal(a, b) and torch.equal(a, tasks.network(runs[0])[0].weight)  # type: ignore[index]


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"activation": "sine"}, "activation must be one of tanh"),
        ({"dtype": "float16"}, "dtype must be one of float32"),
        ({"schedule": "linear"}, "schedule must be 'none', 'cosine' or"),
        ({"momentum": 0.9}, "cocd has no setting 'momentum'"),
        ({"augment": "mirror"}, "augment must be one of none, crop and flip"),
    ],
)
def test_unknown_settings_are_refused(own: dict[str, Setting], said: str) -> None:
    run = small(**own)
    with pytest.raises(ValueError, match=said):
        Training(run, tasks.load(run, None))


def test_memory_is_a_share_of_the_coordinates() -> None:
    run = small(memory_budget=0.25)
    assert Training(run, tasks.load(run, None)).optimizer.memory_budget == round(12727 / 4)


@pytest.mark.parametrize("task", list(paper.STEPS))
@pytest.mark.parametrize("method", ["cocd", "bccd", "random", "spsa", "zosgd"])
def test_an_epoch_costs_equal_evaluations(task: str, method: str) -> None:
    run = paper.make("table-main", task, method, "", {})
    made = run.steps_per_epoch * methods.cost(method, run.options)
    expected = paper.STEPS[task] * methods.cost("cocd", paper.COCD[task])
    assert made == pytest.approx(expected, rel=1e-3)
