"""AutoCoCD's own budget: larger where coordinates do not interact, and nowhere else."""

import copy
import pickle
from itertools import pairwise

import pytest
import torch

import cocd
from cocd._experiments import methods, plans
from cocd._experiments.plans import paper
from cocd._experiments.runner import perform
from cocd._experiments.store import Store, read_rows

N = 2048
SWEEP = N // 64  # steps at first


def alone(x):
    return (torch.linspace(1, 3, N, dtype=x.dtype) * x**2).sum()


def together(x):
    """All coordinates move the same residual: a block that moves at once overshoots."""
    return x.sum() ** 2 / N + 0.01 * (x**2).sum()


def trained(loss, steps, **settings):
    x = torch.ones(N, dtype=torch.float64, requires_grad=True)
    optimizer = cocd.AutoCoCD([x], **settings)
    budgets = []
    for _ in range(steps):
        budgets.append(optimizer.compute_budget)
        optimizer.step(lambda: loss(x))
    return optimizer, x, budgets


def test_it_doubles_from_sweep_to_sweep_where_coordinates_do_not_interact():
    optimizer, _, budgets = trained(alone, SWEEP * 5 + 20)
    assert budgets[0] == 64 and sorted(set(budgets)) == [64, 128, 256]
    # The first three sweeps settle lengths; then a sweep of 64 and one of 128 at a time.
    assert [budgets.index(B) for B in (128, 256)] == [4 * SWEEP, 4 * SWEEP + SWEEP // 2]
    assert optimizer.compute_budget == N // 8  # and no further


def test_it_stays_where_they_do():
    optimizer, _, budgets = trained(together, SWEEP * 6)
    assert set(budgets) == {64} and optimizer._lengths[0].value < 0.5


def test_it_halves_where_they_begin_to():
    optimizer, x, _ = trained(alone, SWEEP * 4 + SWEEP // 2 + 2)
    assert optimizer.compute_budget == 256
    for _ in range(200):
        optimizer.step(lambda: together(x))
    assert optimizer.compute_budget == 64


@pytest.mark.parametrize("settings", [{"compute_budget": 64}, {"compute_budget": 1}])
def test_a_budget_that_is_given_stays(settings):
    optimizer, _, budgets = trained(alone, SWEEP * 6, **settings)
    assert set(budgets) == {settings["compute_budget"]} and optimizer._room is None


def test_a_short_memory_bounds_it():
    _, _, budgets = trained(alone, SWEEP * 6, memory_budget=100)
    assert max(budgets) == 100


@pytest.mark.parametrize("eps", [0.01, 0.1, 1.0])
def test_it_stays_with_another_radius(eps):
    """A small one bounds every step: that the search takes all of it says nothing then."""
    optimizer, _, budgets = trained(alone, SWEEP * 6, eps=eps)
    assert set(budgets) == {64}
    if eps == 0.01:
        assert optimizer._lengths[0].value > 0.9


@pytest.mark.parametrize("steps", [1, SWEEP * 4 + 5])
@pytest.mark.parametrize("wanted", [16, 512])
def test_a_budget_written_between_two_steps_stays(steps, wanted):
    optimizer, x, _ = trained(alone, steps)
    optimizer.compute_budget = wanted
    for _ in range(SWEEP):
        optimizer.step(lambda: alone(x))
        assert optimizer.compute_budget == wanted


def test_one_step_after_sweeps_without_any_decides_nothing():
    x = torch.ones(N, dtype=torch.float64, requires_grad=True)
    optimizer = cocd.AutoCoCD([x])
    base = x.detach().clone()
    with pytest.warns(cocd.NonFiniteWarning):
        for _ in range(SWEEP * 6):  # every probe fails, the loss itself does not
            optimizer.step(lambda: together(x) if torch.equal(x, base) else torch.tensor(torch.nan))
    for _ in range(SWEEP * 2):
        optimizer.step(lambda: together(x))
        assert optimizer.compute_budget == 64


def test_parameters_that_join_begin_a_sweep_of_their_own():
    optimizer, x, _ = trained(alone, SWEEP * 4 + 5)
    assert optimizer.compute_budget == 128
    y = torch.ones(N, dtype=torch.float64, requires_grad=True)
    optimizer.add_param_group({"params": [y]})
    optimizer.step(lambda: alone(x) + alone(y))
    assert optimizer.compute_budget == 128


def test_it_evaluates_as_many_as_it_says():
    x = torch.ones(N, dtype=torch.float64, requires_grad=True)
    optimizer, calls = cocd.AutoCoCD([x]), 0

    def closure():
        nonlocal calls
        calls += 1
        return alone(x)

    for _ in range(SWEEP * 4 + 8):
        optimizer.step(closure)
    assert optimizer.compute_budget == 128 and optimizer.evaluations == calls


@pytest.mark.parametrize("how", ["state_dict", "pickle", "deepcopy"])
@pytest.mark.parametrize("steps", [50, SWEEP * 4 - 1, SWEEP * 4 + 5])
def test_a_resumed_run_grows_as_an_uninterrupted_one(how, steps):
    whole, x, _ = trained(alone, steps)
    y = x.detach().clone().requires_grad_()
    if how == "state_dict":
        saved = copy.deepcopy(whole.state_dict())
        other = cocd.AutoCoCD([y])
        other.load_state_dict(saved)
    else:
        kept = copy.deepcopy(whole) if how == "deepcopy" else pickle.loads(pickle.dumps(whole))
        other, y = kept, kept.param_groups[0]["params"][0]
    for _ in range(40):
        assert float(whole.step(lambda: alone(x))) == float(other.step(lambda: alone(y)))
        assert whole.compute_budget == other.compute_budget
    assert torch.equal(x, y) and whole.evaluations == other.evaluations


def test_a_state_without_it_leaves_the_budget_alone():
    """As states were before it was there."""
    saved = trained(alone, 10)[0].state_dict()
    del saved["state"]["cocd"]["room"]
    optimizer = cocd.AutoCoCD([torch.ones(N, dtype=torch.float64, requires_grad=True)])
    optimizer.load_state_dict(saved)
    assert optimizer._room is None and optimizer.compute_budget == 64


# --- in experiments ------------------------------------------------------------------------


class Quiet:
    asked = False

    def __getattr__(self, name):
        return lambda *args: None


def test_epochs_of_a_budget_that_grows_are_of_equal_evaluations(tmp_path, monkeypatch):
    monkeypatch.setattr("cocd._room._FREE", 0.0)
    monkeypatch.setattr("cocd._room._CROWDED", 0.0)
    monkeypatch.setattr("cocd._room._FIRST", 0)
    run = paper.make(
        "adaptive", "sarcos", "auto", "AutoCoCD", {"compute_budget": methods.OWN, "width": 20},
        epochs=4, smoke=True,
    )  # fmt: skip
    run = type(run)(**{**run.to_row(), "settings": {**run.options, "max_evaluations": 48_000}})
    store = Store(tmp_path / run.key, run)
    with store.held():
        perform(run, store, data=None, header=run.to_row(), watch=Quiet(), stop=Quiet())
    epochs = [row for row in read_rows(store.rows) if row["row"] == "epoch"]
    assert [row["epoch"] for row in epochs] == [0, 1, 2, 3, 4]
    for row in epochs[1:]:
        assert 0 <= row["evaluations"] - 12_000 * row["epoch"] < 500
    steps = [b["step"] - a["step"] for a, b in pairwise(epochs)]
    assert steps[-1] < 0.7 * steps[0]  # fewer, since each has more


def test_an_epoch_may_be_shorter_than_a_step(tmp_path):
    own = {"compute_budget": methods.OWN, "width": 20}
    run = paper.make("adaptive", "sarcos", "auto", "AutoCoCD", own, epochs=50, smoke=True)
    run = type(run)(**{**run.to_row(), "settings": {**run.options, "max_evaluations": 400}})
    store = Store(tmp_path / run.key, run)
    with store.held():
        assert perform(run, store, data=None, header=run.to_row(), watch=Quiet(), stop=Quiet()) == (
            "done"
        )
    assert [row["epoch"] for row in read_rows(store.rows) if row["row"] == "epoch"] == [*range(51)]


def test_the_plan_has_a_run_with_nothing_set_on_every_task():
    found = [r for r in plans.generate("adaptive") if r.group == "defaults"]
    assert {r.task for r in found} == {"sarcos", "mnist", "cifar10"}
    for run in found:
        common = paper.COMMON[run.task]
        own = {k: v for k, v in run.options.items() if k not in common and k != "dtype"}
        assert set(own) == {"compute_budget", "max_evaluations"} and methods.grows(run)
