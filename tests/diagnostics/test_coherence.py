"""The tracker of coherence: right numbers, no trace in the run, records that survive."""

import copy
import io
import json

import numpy as np
import pytest
import torch
from helpers import flat, frozen, world
from known import SPLITS, Waves
from tracked import METHODS, problem, steps

import cocd
from cocd import baselines
from cocd.diagnostics import Coherence

# --- the numbers --------------------------------------------------------------------------------


class Seen:
    """The same records, kept by hand: every pair there ever was."""

    def __init__(self, optimizer, params, tracker):
        self.optimizer, self.params, self.tracker = optimizer, params, tracker
        self.latest, self.pairs, self.norms, self.x, self.first = {}, [], [], None, 0
        self.t = 0
        observers = optimizer._observers
        optimizer._observers = (*observers, self)

    def __call__(self, block, fresh):
        self.t += 1
        x = flat(self.params)
        if self.x is not None:
            self.norms.append(float((x - self.x).norm()))
        self.x = x
        index = [(s.part.tensor, i) for s in block for i in range(s.part.start, s.part.stop)]
        for (tensor, i), value in zip(index, fresh.tolist(), strict=True):
            if (tensor, i) in self.latest:
                old, when = self.latest[tensor, i]
                self.pairs.append((tensor, old, value, self.t - when, self.t))
            else:
                self.first += 1
            self.latest[tensor, i] = (value, self.t)


def check(report, pairs):
    _, stale, fresh, age, _ = (np.array(column) for column in zip(*pairs, strict=True))
    assert report["pairs"] == len(pairs)
    assert report["correlation"] == pytest.approx(np.corrcoef(stale, fresh)[0, 1])
    change = np.linalg.norm(fresh - stale) / np.linalg.norm(stale)
    assert report["relative_change"] == pytest.approx(change)
    assert report["regression"] == pytest.approx(stale @ fresh / (stale @ stale))
    assert report["age_mean"] == pytest.approx(age.mean())
    assert report["age_max"] == age.max()


@pytest.mark.parametrize("name", METHODS)
def test_the_summary_is_that_of_every_pair(name):
    optimizer, closure = problem(name)
    tracker = Coherence(optimizer, window=7, keep=4)
    seen = Seen(optimizer, [p for g in optimizer.param_groups for p in g["params"]], tracker)
    steps(optimizer, closure, 61)

    summary = tracker.summary()
    check(summary, seen.pairs)
    for t, tensor in enumerate("ab"):
        check(summary["by_tensor"][tensor], [pair for pair in seen.pairs if pair[0] == t])
    assert summary["first"] == seen.first == 7
    assert summary["steps"] == tracker.steps == 61
    assert summary["step_norm"] == pytest.approx(np.mean(seen.norms))
    assert summary["step_max"] == pytest.approx(max(seen.norms))

    history = tracker.history()
    assert len(history) <= 4  # eight windows of 7 steps have become two of 28, and the last
    assert [(w["from"], w["to"]) for w in history] == [(1, 28), (29, 56), (57, 61)]
    for window in history:
        check(window, [p for p in seen.pairs if window["from"] <= p[4] <= window["to"]])


@pytest.mark.parametrize(("n", "B"), SPLITS)
def test_ages_are_the_lags_of_the_theorem(n, B):
    x = torch.zeros(n, dtype=torch.float64, requires_grad=True)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=B)
    tracker = Coherence(optimizer)
    assert (tracker.ages(), tracker.cold) == ({}, n)
    steps(optimizer, lambda: x.sum(), 3 * n)
    lags = np.arange(n) // B
    assert tracker.ages() == {int(lag): int((lags == lag).sum()) for lag in np.unique(lags)}
    assert tracker.cold == 0
    assert tracker.summary()["age_mean"] == pytest.approx(n / B, rel=0.2)
    assert tracker.summary()["age_max"] == -(-n // B)


@pytest.mark.parametrize(("lr", "expected"), [(0.1, 0.9), (0.5, 0.5), (1.0, 0.0), (1.8, -0.8)])
def test_the_regression_is_the_factor_by_which_slopes_change(lr, expected):
    """f = |x|^2 / 2 and B = n: each step multiplies every slope by 1 - lr."""
    x = torch.tensor([1.0, 3.0, -2.0], dtype=torch.float64, requires_grad=True)
    tracker = Coherence(optimizer := cocd.CoCD([x], lr=lr, compute_budget=3))
    steps(optimizer, lambda: x @ x / 2, 2)
    summary = tracker.summary()
    assert summary["regression"] == pytest.approx(expected, abs=1e-9)
    assert summary["relative_change"] == pytest.approx(lr)
    assert summary["smoothness"] <= 1.0 + 1e-9


def test_a_constant_slope_has_no_correlation_and_no_change():
    x = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    tracker = Coherence(optimizer := cocd.CoCD([x], lr=0.125, eps=0.5, compute_budget=2))
    assert tracker.summary()["regression"] is None
    assert "correlation -" in repr(tracker)
    steps(optimizer, lambda: x.sum(), 8)
    summary = tracker.summary()
    assert (summary["correlation"], summary["relative_change"]) == (None, 0.0)
    assert (summary["regression"], summary["smoothness"]) == (1.0, 0.0)


def test_the_smoothness_of_a_run_bounds_L_eps_from_below():
    f = Waves(6, 5, seed=3)
    x = torch.from_numpy(f.start.copy()).requires_grad_()
    tracker = Coherence(optimizer := cocd.CoCD([x], lr=0.02, eps=0.5, compute_budget=2))
    steps(optimizer, lambda: f(x.detach().numpy()), 100)
    assert 0.05 * f.L_eps(0.5) < tracker.summary()["smoothness"] <= f.L_eps(0.5)


# --- it leaves no trace -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", METHODS)
def test_the_run_stays_the_same_bit_for_bit(name, dtype):
    worlds = []
    for watched in (False, True):
        torch.manual_seed(0)
        optimizer, closure = problem(name, dtype)
        tracker = Coherence(optimizer) if watched else None
        losses = []
        for t in range(20):
            losses.append(float(optimizer.step(closure)))
            if tracker and t % 7 == 3:
                tracker.error(closure)
        worlds.append((losses, world(optimizer), optimizer.evaluations))
    assert worlds[0] == worlds[1]


def test_a_CoherentGradient_can_be_tracked():
    x = torch.tensor([3.0, -2.0], requires_grad=True)
    gradient = cocd.CoherentGradient([x], eps=0.1, compute_budget=1)
    adam = torch.optim.AdamW([x], lr=0.1)
    tracker = Coherence(gradient)
    for _ in range(10):
        gradient(lambda: x @ x / 2)
        assert tracker.error(lambda: x @ x / 2, L=1.0).bound > 0 or tracker.steps == 1
        adam.step()
    assert tracker.summary()["step_norm"] == pytest.approx(0.1 * 2**0.5, rel=0.1)
    assert tracker.summary()["pairs"] == 8


def test_a_detached_tracker_and_a_copied_optimizer_record_nothing():
    optimizer, closure = problem("CoCD")
    first, second = Coherence(optimizer), Coherence(optimizer)
    steps(optimizer, closure, 3)
    assert copy.deepcopy(optimizer)._observers == ()
    first.detach()
    first.detach()
    steps(optimizer, closure, 2)
    assert (first.steps, second.steps) == (3, 5)


def test_reset_begins_anew_and_still_knows_the_last_estimates():
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 6)
    tracker.reset()
    assert tracker.summary()["steps"] == tracker.summary()["pairs"] == 0
    steps(optimizer, closure, 2)
    summary = tracker.summary()
    assert (summary["steps"], summary["pairs"], summary["first"]) == (2, 6, 0)
    assert tracker.history()[0]["from"] == 7


def test_all_reports_can_be_written_as_json():
    optimizer, closure = problem("ring")
    tracker = Coherence(optimizer)
    for count in (0, 1, 20):
        steps(optimizer, closure, count)
        said = [tracker.summary(), tracker.history(), tracker.ages()]
        json.dumps(said, allow_nan=False)
    json.dumps(tracker.error(closure)._asdict(), allow_nan=False)
    assert repr(tracker).startswith("Coherence(CoCD, 21 steps: correlation ")


# --- saving -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tracker_first", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_continues_its_records_bit_for_bit(name, tracker_first):
    optimizer, closure = problem(name)
    tracker = Coherence(optimizer, window=3, keep=4)
    steps(optimizer, closure, 11)
    tracker.error(closure)
    file = io.BytesIO()
    params = [p.detach() for g in optimizer.param_groups for p in g["params"]]
    torch.save([params, optimizer.state_dict(), tracker.state_dict()], file)
    steps(optimizer, closure, 12)

    file.seek(0)
    params, state, records = torch.load(file, weights_only=True)
    resumed, closure = problem(name)
    with torch.no_grad():
        for p, saved in zip(resumed.param_groups[0]["params"], params, strict=True):
            p.copy_(saved)
    again = Coherence(resumed)
    if tracker_first:
        again.load_state_dict(records)
    resumed.load_state_dict(state)
    if not tracker_first:
        again.load_state_dict(records)
    steps(resumed, closure, 12)
    assert frozen(again.state_dict()) == frozen(tracker.state_dict())
    assert again.history() == tracker.history()
    assert again.evaluations == tracker.evaluations > 0


def test_a_saved_state_is_not_changed_by_later_steps():
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 5)
    state = tracker.state_dict()
    before = frozen(state)
    steps(optimizer, closure, 5)
    assert frozen(state) == before
    tracker.load_state_dict(state)
    steps(optimizer, closure, 5)
    assert frozen(state) == before


def test_another_state_of_the_optimizer_is_noticed():
    """Estimates of one run are not compared with those of another."""
    optimizer, closure = problem("CoCD")
    steps(optimizer, closure, 4)
    early = optimizer.state_dict()
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 6)
    pairs = tracker.summary()["pairs"]
    optimizer.load_state_dict(early)
    steps(optimizer, closure, 2)  # two of a sweep's three steps: nothing there to compare with
    assert tracker.summary()["pairs"] == pairs
    steps(optimizer, closure, 1)
    assert tracker.summary()["pairs"] == pairs + 2
    assert tracker.cold == 0


@pytest.mark.parametrize("bad", [None, {}, {"version": 1}, {"version": 2}, [1]])
def test_a_state_that_is_none_is_refused_whole(bad):
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 5)
    before = frozen(tracker.state_dict())
    with pytest.raises(ValueError, match="state must be what"):
        tracker.load_state_dict(bad)
    assert frozen(tracker.state_dict()) == before


def test_a_state_of_other_parameters_is_refused():
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 5)
    x = torch.zeros(7, dtype=torch.float64, requires_grad=True)
    for other in (x, torch.zeros(3, requires_grad=True)):
        with pytest.raises(ValueError, match=r"7 coordinates in shapes \[\(3,\), \(2, 2\)\]"):
            Coherence(cocd.CoCD([other], lr=0.1, compute_budget=1)).load_state_dict(
                tracker.state_dict()
            )


# --- what may happen in a run -------------------------------------------------------------------


def test_parameters_that_join_or_are_frozen_are_followed():
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 5)
    late = torch.ones(2, dtype=torch.float64, requires_grad=True)
    optimizer.add_param_group({"params": [("a", late)]})
    both = lambda: closure() + late @ late  # noqa: E731
    assert Coherence(optimizer).cold == 9
    tracker.load_state_dict(tracker.state_dict())
    assert tracker.error(both).gradient > 0
    steps(optimizer, both, 12)
    assert tracker.cold == 0
    assert list(tracker.summary()["by_tensor"]) == ["a", "b", "a (2)"]
    pairs = tracker.summary()["by_tensor"]["a"]["pairs"]
    optimizer.param_groups[0]["params"][0].requires_grad_(False)
    steps(optimizer, both, 6)
    assert tracker.summary()["by_tensor"]["a"]["pairs"] == pairs
    left_out = "3 coordinates are frozen or could not be probed: left out"
    assert left_out in tracker.error(both).caveats


def test_estimates_that_are_not_remembered_are_not_compared():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def closure():
        return x @ x / 2 + (float("nan") if x[1] > 2.05 else 0.0)

    optimizer = cocd.CoCD([x], lr=0.0, eps=0.1, compute_budget=3)
    tracker = Coherence(optimizer)
    with pytest.warns(cocd.NonFiniteWarning):
        steps(optimizer, closure, 3)
    assert (tracker.summary()["pairs"], tracker.summary()["first"], tracker.cold) == (4, 2, 1)


def test_numbers_near_overflow_do_not_disturb_the_run():
    """Slopes whose squares overflow, and steps that overflow in the parameters' dtype."""
    x = torch.tensor([3e38, -3e38], requires_grad=True)
    wide = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    optimizer = cocd.CoCD([x, wide], lr=0.0, eps=1e37, compute_budget=2)
    tracker = Coherence(optimizer)
    scale = 1.0

    def closure():
        return (x.double() * 1e-38).sum() + scale * (wide * 1e-38).sum()

    for _ in range(6):
        optimizer.step(closure)
        scale *= -1e50
        with torch.no_grad():
            x.neg_()
    assert tracker.summary()["pairs"] == 6 * 2 - 4
    assert tracker.summary()["step_max"] is None  # it is not a finite number
    json.dumps([tracker.summary(), tracker.history()], allow_nan=False)
    with pytest.raises(ValueError, match="delta must be finite"):
        tracker.error(closure, L=1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: baselines.SPSA(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: p[0],
    ],
)
def test_what_has_no_coordinates_is_refused(make):
    with pytest.raises(ValueError, match="optimizer must be a coordinate method"):
        Coherence(make([torch.zeros(2, requires_grad=True)]))


def test_bad_arguments_are_refused_before_anything_is_spent():
    optimizer, closure = problem("CoCD")
    for options in ({"window": 0}, {"window": 1.5}, {"keep": 0}, {"keep": 3}):
        with pytest.raises(ValueError, match=next(iter(options))):
            Coherence(optimizer, **options)
    assert optimizer._observers == ()
    tracker = Coherence(optimizer)
    with pytest.raises(ValueError, match="make a step first"):
        tracker.error(closure)
    steps(optimizer, closure, 4)
    for L in (-1.0, float("nan"), "a"):
        with pytest.raises(ValueError, match="L must"):
            tracker.error(closure, L=L)
    with pytest.raises(ValueError, match="closure must be a function"):
        tracker.error(None)
    assert tracker.evaluations == 0
