"""AutoCoCD's own budget and boldness: what a step gained on the batch after it decides."""

import copy
import pickle
from functools import cache
from itertools import pairwise

import pytest
import torch
from cocd_paper import methods, plans
from cocd_paper.plans import paper
from cocd_paper.runner import perform
from cocd_paper.store import Store, read_rows

import cocd

N = 4096
B = N // 32  # at first
SCALE = torch.linspace(1, 3, N, dtype=torch.float64)


def same(x, step):
    """Every batch says the same."""
    return (SCALE * x**2).sum()


def noise(x, step):
    """Every batch has a lowest point of its own, around 0."""
    return (SCALE * (x - lowest(step)) ** 2).sum()


@cache
def lowest(step):
    return torch.randn(N, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


class Training:
    def __init__(self, loss, start=1.0, **settings):
        self.x = torch.full((N,), start, dtype=torch.float64, requires_grad=True)
        self.optimizer = cocd.AutoCoCD([self.x], **settings)
        self.loss, self.steps, self.budgets, self.calls = loss, 0, [], 0

    def closure(self):
        self.calls += 1
        return self.loss(self.x, self.steps)

    def run(self, steps):
        for _ in range(steps):
            self.budgets.append(self.optimizer.compute_budget)
            self.optimizer.step(self.closure)
            self.steps += 1
        return self

    def sweeps(self, sweeps):
        while self.optimizer.schedule.done < sweeps:
            self.run(1)
        return self


def test_the_budget_halves_where_steps_gain_what_was_promised():
    found = Training(same).sweeps(4)
    assert list(dict.fromkeys(found.budgets)) == [B, B // 2] == [128, 64]
    assert found.budgets.index(64) == 17  # a step is judged by the next one, sixteen decide
    assert found.optimizer.boldness > 2  # and then a step takes all of what was found


def test_steps_are_shorter_where_nothing_comes():
    found = Training(noise, start=0.0).sweeps(0.9)
    assert found.optimizer._learned.budget.boldness == 1  # not before all has been measured once
    found.sweeps(4)
    assert set(found.budgets) == {B} and found.optimizer._learned.budget.boldness < 0.9


def test_shorter_steps_stay_nearer_to_where_all_batches_agree():
    bold = Training(noise, start=0.0, compute_budget=B).sweeps(12)
    found = Training(noise, start=0.0).sweeps(12)
    assert found.x.detach().norm() < 0.9 * bold.x.detach().norm()


def test_noise_that_is_small_beside_the_signal_changes_little():
    def loss(x, step):
        return same(x, step) + 1e-3 * noise(x, step)

    found = Training(loss, start=3.0).sweeps(2)
    assert found.optimizer.compute_budget == 64


def test_the_budget_is_settled_after_four_sweeps():
    found = Training(noise, start=0.0).sweeps(4)
    before = copy.deepcopy(found.optimizer._learned.budget)
    counted = found.optimizer.evaluations
    found.run(20)  # of the fifth sweep, which measures curvature: two evaluations a coordinate
    after = found.optimizer._learned.budget
    assert (after.size, after.boldness, after.seen) == (before.size, before.boldness, before.seen)
    assert found.optimizer._learned.last.change is None
    assert found.optimizer.evaluations - counted == 20 * (2 * B + 3)


@pytest.mark.parametrize("loss", [same, noise])
def test_evaluations_are_counted_exactly(loss):
    found = Training(loss).run(40)
    assert found.optimizer.evaluations == found.calls - found.optimizer.checks
    given = Training(loss, compute_budget=B).run(40)
    assert given.optimizer.evaluations == given.calls - given.optimizer.checks


def test_being_judged_costs_one_evaluation_a_step_and_changes_nothing():
    found, given = Training(noise, start=0.0).run(30), Training(noise, 0.0, compute_budget=B)
    given.run(30)  # within the first sweep: no step is shorter yet
    assert torch.equal(found.x, given.x)
    assert found.optimizer.evaluations == given.optimizer.evaluations + 29


@pytest.mark.parametrize("budget", [64, 1])
def test_a_budget_that_is_given_stays(budget):
    found = Training(same, compute_budget=budget).run(100)
    assert set(found.budgets) == {budget} and found.optimizer._learned.budget is None


def test_the_budget_is_at_most_the_memory():
    found = Training(same, memory_budget=100).run(100)
    assert max(found.budgets) == 100


@pytest.mark.parametrize(("n", "budget"), [(1, 1), (40, 5), (2000, 64), (8000, 250), (20_000, 512)])
def test_the_first_budget_follows_from_n(n, budget):
    found = cocd.AutoCoCD([torch.zeros(n, requires_grad=True)])
    assert found.compute_budget == budget


@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("wanted", [16, 512])
def test_a_budget_written_between_two_steps_stays(steps, wanted):
    found = Training(same).run(steps)
    found.optimizer.compute_budget = wanted
    found.run(60)
    assert set(found.budgets[steps:]) == {wanted}


def test_boldness_is_kept_when_the_budget_is_set():
    found = Training(noise, start=0.0).sweeps(5)
    boldness = found.optimizer._learned.budget.boldness
    found.optimizer.compute_budget = 100
    found.run(10)
    assert found.optimizer._learned.budget.boldness == boldness < 1


def test_groups_of_different_lengths_are_judged_by_their_mean():
    x, y = (torch.ones(N // 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = cocd.AutoCoCD([{"params": [x]}, {"params": [y], "lr": 0.5}])
    for _ in range(10):
        optimizer.step(lambda: (x**2).sum() + (y**2).sum())
    assert all(
        abs(kd / d - 1) < 0.1 for kd, d in optimizer._learned.budget.seen
    )  # there is no noise
    for _ in range(10):
        optimizer.step(lambda: (x**2).sum() + (y**2).sum())
    assert optimizer.compute_budget == 64


def test_a_frozen_group_of_another_length_does_not_matter():
    x = torch.ones(N, dtype=torch.float64, requires_grad=True)
    frozen = torch.ones(64, dtype=torch.float64)
    optimizer = cocd.AutoCoCD([{"params": [x]}, {"params": [frozen], "lr": 0.1}])
    for _ in range(20):
        optimizer.step(lambda: (x**2).sum() + (frozen**2).sum())
    assert optimizer.compute_budget == 64 and (frozen == 1).all()


def test_a_tensor_that_was_frozen_since_is_left_alone():
    x, y = (torch.ones(N // 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = cocd.AutoCoCD([x, y])
    optimizer.step(lambda: (x**2).sum() + (y**2).sum())
    y.requires_grad_(False)
    kept, seen = y.clone(), []

    def closure():
        seen.append(torch.equal(y, kept))
        return (x**2).sum() + (y**2).sum()

    optimizer.step(closure)
    assert len(seen) > 10 and all(seen)


def test_a_rate_that_warms_up_is_compared_with_what_was_taken():
    """A tenth of each step is far from standing still: it need not become shorter yet."""

    def loss(x, step):
        return noise(x - 0.3, step)

    whole = Training(loss, start=0.0).sweeps(2.5)
    slow = Training(loss, start=0.0)
    slow.optimizer.param_groups[0]["lr"] = 0.1
    slow.sweeps(2.5)
    assert slow.optimizer._learned.budget.boldness == 1 > whole.optimizer._learned.budget.boldness


def test_weights_of_half_precision_are_not_judged():
    x = torch.full((N,), 100.0, dtype=torch.bfloat16, requires_grad=True)
    optimizer = cocd.AutoCoCD([x])
    assert optimizer.compute_budget == 64 and optimizer._learned.budget is None


def test_losses_too_large_to_be_squared_teach_nothing():
    found = Training(lambda x, step: same(x, step) * (1e200 if step > 3 else 1)).run(20)
    assert len(found.optimizer._learned.budget.seen) <= 4 and found.x.isfinite().all()


def test_a_step_that_fails_leaves_no_trace():
    found = Training(same).run(5)
    before = copy.deepcopy(found.optimizer._learned.budget)
    found.optimizer.compute_budget = 100

    def fails():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        found.optimizer.step(fails)
    found.optimizer.compute_budget = B
    assert found.optimizer._learned.budget == before
    found.run(15)
    assert found.optimizer.compute_budget == 64


@pytest.mark.parametrize("how", [copy.deepcopy, lambda kept: pickle.loads(pickle.dumps(kept))])
def test_a_copy_where_the_budget_is_given(how):
    given = Training(noise, compute_budget=B).run(3)
    other = how(given.optimizer)
    y = other.param_groups[0]["params"][0]
    given.run(1)
    other.step(lambda: noise(y, 3))
    assert torch.equal(given.x, y)


def test_a_length_of_nothing_is_not_judged():
    found = Training(same)
    found.run(3)
    found.optimizer.param_groups[0]["lr"] = 0.0
    found.run(5)
    assert len(found.optimizer._learned.budget.seen) == 3
    assert all(torch.tensor(found.optimizer._learned.budget.seen).isfinite().flatten())


def test_a_loss_that_is_not_finite_where_the_step_began_teaches_nothing():
    found = Training(same).run(1)
    began = torch.ones(N, dtype=torch.float64)

    def closure():
        return torch.tensor(torch.nan) if torch.equal(found.x, began) else same(found.x, 1)

    found.optimizer.step(closure)
    assert found.optimizer._learned.budget.seen == [] and found.x.isfinite().all()


def test_parameters_that_join_keep_what_was_learned():
    found = Training(same).run(10)
    y = torch.ones(N, dtype=torch.float64, requires_grad=True)
    found.optimizer.add_param_group({"params": [y]})
    for _ in range(7):
        assert found.optimizer.compute_budget == B
        found.optimizer.step(lambda: same(found.x, 0) + same(y, 0))
    assert found.optimizer.compute_budget == 64


@pytest.mark.parametrize("how", ["state_dict", "pickle", "deepcopy"])
@pytest.mark.parametrize(("loss", "steps"), [(same, 10), (same, 17), (noise, 40), (noise, 140)])
def test_a_resumed_run_goes_on_as_an_uninterrupted_one(how, loss, steps, tmp_path):
    whole = Training(loss, start=0.1).run(steps)
    other = Training(loss, start=0.1)
    other.steps = steps
    if how == "state_dict":
        with torch.no_grad():
            other.x.copy_(whole.x)
        torch.save(whole.optimizer.state_dict(), tmp_path / "state.pt")
        other.optimizer.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    else:
        kept = whole.optimizer
        kept = copy.deepcopy(kept) if how == "deepcopy" else pickle.loads(pickle.dumps(kept))
        other.optimizer, other.x = kept, kept.param_groups[0]["params"][0]
    whole.run(30), other.run(30)
    assert torch.equal(whole.x, other.x) and whole.budgets[-30:] == other.budgets[-30:]
    assert whole.optimizer._learned.budget == other.optimizer._learned.budget
    assert whole.optimizer.evaluations == other.optimizer.evaluations


def test_a_state_without_a_budget_is_refused():
    saved = Training(same).run(10).optimizer.state_dict()
    del saved["state"]["cocd"]["budget"]
    found = Training(same)
    with pytest.raises(
        ValueError, match="state_dict has no budget: it was not saved by AutoCoCD of"
    ):
        found.optimizer.load_state_dict(saved)
    found.run(3)


# --- in experiments ------------------------------------------------------------------------


class Quiet:
    asked = False

    def __getattr__(self, name):
        return lambda *args: None


def test_epochs_of_a_budget_that_changes_are_of_equal_evaluations(tmp_path, monkeypatch):
    monkeypatch.setitem(methods.WITHOUT, "large blocks", {"least_budget": 8})
    run = paper.make(
        "adaptive", "sarcos", "auto", "AutoCoCD",
        {"compute_budget": methods.OWN, "width": 20, "without": "large blocks"},
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
    assert steps[-1] > steps[0]  # more, since each has fewer


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
        assert set(own) == {"compute_budget", "max_evaluations"} and methods.finds_budget(run)
