"""The tracker of coherence: right numbers, no trace in the run, records that survive."""

import copy
import io
import json

import numpy as np
import pytest
import torch
from helpers import Raising, flat, frozen, quadratic, world
from known import SPLITS, Waves

import cocd
from cocd import baselines, theory
from cocd.diagnostics import Coherence

F = quadratic(7)
METHODS = {
    "CoCD": lambda p, **o: cocd.CoCD(p, 0.01, compute_budget=3, **o),
    "decay": lambda p, **o: cocd.CoCD(p, 0.01, compute_budget=3, decay=0.5, **o),
    "ring": lambda p, **o: cocd.CoCD(p, 0.01, compute_budget=2, memory_budget=5, decay=0.9, **o),
    "weights": lambda p, **o: cocd.CoCD(p, 0.01, compute_budget=4, weight_decay=0.1, **o),
    "BCCD": lambda p, **o: baselines.BCCD(p, 0.01, compute_budget=3, **o),
    "Auto": lambda p, **o: cocd.AutoCoCD(p, compute_budget=3, **o),
    "Random": lambda p, **o: baselines.RandomCoordinate(p, 0.01, compute_budget=3, **o),
    "all": lambda p, **o: baselines.FiniteDifference(p, 0.01, **o),
}


def tensors(dtype=torch.float64):
    start = torch.linspace(-1, 2, 7, dtype=torch.float64).to(dtype)
    return [start[:3].clone().requires_grad_(), start[3:].view(2, 2).clone().requires_grad_()]


def problem(name, dtype=torch.float64, **options):
    params = tensors(dtype)
    optimizer = METHODS[name](list(zip("ab", params, strict=True)), **options)
    return optimizer, lambda: F(torch.cat([p.flatten() for p in params]).double())


def steps(optimizer, closure, count):
    for _ in range(count):
        optimizer.step(closure)


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


def test_an_estimator_for_other_optimizers_is_watched_too():
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


def test_detached_it_sees_nothing_more_and_a_copy_of_the_optimizer_has_no_tracker():
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


def test_everything_it_says_is_json():
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


# --- the measured error and its bound -----------------------------------------------------------


@pytest.mark.parametrize(("n", "B"), SPLITS)
def test_the_bound_stands_beside_the_measured_error_and_holds(n, B):
    f = Waves(n, 6, seed=n + B)
    x = torch.from_numpy(f.start.copy()).requires_grad_()
    lr = 0.5 * theory.largest_learning_rate(f.L, n, B)
    tracker = Coherence(optimizer := cocd.CoCD([x], lr=lr, eps=0.5, compute_budget=B))

    def closure():
        return f(x.detach().numpy())

    sweep, largest = -(-n // B), 0.0
    for t in range(4 * sweep):
        optimizer.step(closure)
        error = tracker.error(closure, L=f.L_eps(0.5))
        assert error.evaluations == 2 * n + 1
        if t < sweep - 1:
            (caveat,) = error.caveats
            assert caveat.startswith(f"{tracker.cold} coordinates have not been estimated")
            continue
        assert error.caveats == ()
        assert error.measured <= error.euclidean_bound * (1 + 1e-9) + 1e-12
        assert error.euclidean_bound <= error.bound * (1 + 1e-12)
        largest = max(largest, error.measured)
    assert (largest > 1e-5) == (n > B)
    assert tracker.evaluations == 4 * sweep * (2 * n + 1)
    assert optimizer.evaluations == 4 * sweep * (2 * B + 1)


def test_the_error_is_that_of_the_estimate_at_the_point_it_was_made():
    """B = n: at x_t the estimate is the gradient, at x_(t+1) it is not."""
    optimizer, closure = problem("all")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 3)
    error = tracker.error(closure)
    assert error.measured == 0
    assert error.relative == 0
    assert error.gradient == pytest.approx(float(optimizer.estimate().norm()))


def test_conditions_that_are_not_met_are_named():
    optimizer, closure = problem("ring")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 9)
    assert tracker.error(closure).caveats == (
        "decay is 0.9, the theorem needs 1",
        "memory_budget is 5, the theorem needs all 7",
        "L is estimated from below",
    )
    optimizer, closure = problem("Random")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 40)
    caveats = tracker.error(closure, L=1.0).caveats
    assert any("may repeat a coordinate" in caveat for caveat in caveats)
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 9)
    optimizer.compute_budget = 5
    assert tracker.error(closure, L=1.0).caveats == (
        "estimates are older than n / B steps: the budget changed, probes failed, or parameters "
        "were frozen for a time",
    )


@pytest.mark.parametrize("option, first, then", [("decay", 0.5, 1.0), ("eps", 2.0, 0.1)])
def test_options_that_were_changed_are_named_until_no_estimate_is_left_from_before(
    option, first, then
):
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    optimizer.param_groups[0][option] = first
    steps(optimizer, closure, 9)
    optimizer.param_groups[0][option] = then
    said = "decay or eps has been changed since the oldest estimate in use was made"
    steps(optimizer, closure, 1)
    assert said in tracker.error(closure, L=1.0).caveats
    state = tracker.state_dict()
    tracker.load_state_dict(state)
    assert said in tracker.error(closure, L=1.0).caveats
    steps(optimizer, closure, 3)  # 7 coordinates, 3 a step
    assert tracker.error(closure, L=1.0).caveats == ()


def test_a_state_from_before_options_were_noticed_is_taken():
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 5)
    state = tracker.state_dict()
    del state["eps"], state["altered"]
    tracker.load_state_dict(state)
    steps(optimizer, closure, 4)
    assert tracker.error(closure, L=1.0).caveats == ()


def test_what_makes_its_estimates_in_several_ways_says_so_and_bounds_nothing():
    optimizer, closure = problem("Auto")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 40)
    assert not tracker.summary()["smoothness"]
    assert tracker.summary()["pairs"] == 40 * 3 - 7
    error = tracker.error(closure, L=1.0)
    assert error.caveats[0] == "estimates are made with several radii, the theorem needs one"
    assert error.evaluations == 15


def test_a_detached_tracker_measures_no_error():
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 9)
    tracker.detach()
    with pytest.raises(ValueError, match="has been detached"):
        tracker.error(closure)
    assert tracker.evaluations == 0


def test_after_a_divergence_and_a_return_the_bound_is_that_of_the_run():
    optimizer, closure = problem("CoCD")
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 9)
    x = [p.detach().clone() for p in optimizer.param_groups[0]["params"]]
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.param_groups[0]["lr"] = 1.0
    while not tracker.summary()["step_max"] > 1e15:  # more than all later steps can add to
        steps(optimizer, closure, 1)
    with torch.no_grad():
        for p, old in zip(optimizer.param_groups[0]["params"], x, strict=True):
            p.copy_(old)
    optimizer.load_state_dict(saved)
    steps(optimizer, closure, 9)
    error = tracker.error(closure, L=30.0)  # more than the trace of the quadratic
    assert error.caveats == () and 0 < error.measured <= error.bound < 1e3


def test_what_is_frozen_counts_neither_as_a_step_nor_as_a_decay():
    optimizer, closure = problem("CoCD")
    a = optimizer.param_groups[0]["params"][0]
    tracker = Coherence(optimizer)
    steps(optimizer, closure, 9)
    a.requires_grad_(False)
    steps(optimizer, closure, 40)
    error = tracker.error(closure, L=1.0)
    assert error.delta <= tracker.summary()["step_max"]
    assert error.caveats == ("3 coordinates are frozen or could not be probed: left out",)
    group = {"params": [("c", torch.zeros(2))], "decay": 0.5}
    optimizer.add_param_group(group)
    steps(optimizer, closure, 9)
    assert not any("decay" in said for said in tracker.error(closure, L=1.0).caveats)


def test_a_measurement_leaves_random_numbers_buffers_and_parameters_alone():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1)
    )
    x = torch.randn(8, 3)
    optimizer = cocd.CoCD(model.named_parameters(), lr=0.01, compute_budget=5)
    tracker = Coherence(optimizer)
    loss = lambda: model(x).square().mean()  # noqa: E731
    steps(optimizer, loss, 3)
    before = world(optimizer, model)
    tracker.error(loss)
    assert world(optimizer, model) == before

    def stop():
        raise KeyboardInterrupt

    spent, counted = tracker.evaluations, optimizer.evaluations
    with pytest.raises(KeyboardInterrupt):
        tracker.error(Raising(loss, 20, stop))
    assert world(optimizer, model) == before
    assert tracker.evaluations == spent + 20
    assert optimizer.evaluations == counted


def test_a_traced_objective_is_measured_with_its_engine():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    x, y = torch.randn(8, 3), torch.zeros(8, 1)
    objective = cocd.trace(model, torch.nn.functional.mse_loss)
    optimizer = cocd.CoCD(model.named_parameters(), lr=0.01, compute_budget=5)
    tracker = Coherence(optimizer)
    steps(optimizer, objective(x, y), 9)
    plain = tracker.error(lambda: torch.nn.functional.mse_loss(model(x), y))
    traced = tracker.error(objective(x, y))
    assert traced.measured == pytest.approx(plain.measured, rel=1e-3)
    assert list(tracker.summary()["by_tensor"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]


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
