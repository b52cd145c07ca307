"""What each baseline computes, against the formula that defines it."""

from collections import Counter
from itertools import combinations, islice

import pytest
import torch
from helpers import flat, frozen, parameters, quadratic

import cocd
from cocd import baselines, reference

START = [0.5, -1.0, 2.0, 0.25, -0.5]
F = quadratic(5)


def leaf():
    return torch.tensor(START, dtype=torch.float64, requires_grad=True)


def observed(optimizer, f=F):
    """One step, with the points at which the loss was evaluated."""
    points = []

    def loss():
        points.append(flat(parameters(optimizer)))
        return f(points[-1])

    returned = optimizer.step(loss)
    return returned, torch.stack(points)


# --- coordinates -------------------------------------------------------------------------


@pytest.mark.parametrize("difference", ["central", "forward", "backward"])
@pytest.mark.parametrize("B", [1, 2, 5])
def test_bccd_is_cocd_without_memory(B, difference):
    options = dict(lr=0.1, eps=0.1, compute_budget=B, weight_decay=0.1, difference=difference)
    x, y = leaf(), leaf()
    ours, twin = baselines.BCCD([x], **options), cocd.CoCD([y], decay=0.0, **options)
    for _ in range(12):
        assert float(ours.step(lambda: F(x))) == float(twin.step(lambda: F(y)))
        assert frozen(x) == frozen(y)
        assert torch.equal(ours.estimate(), twin.estimate())
        assert ours.evaluations == twin.evaluations
    assert ours.memory_budget == B


@pytest.mark.parametrize("difference", ["central", "forward", "backward"])
def test_finite_difference_is_the_reference_with_the_whole_budget(difference):
    x, options = leaf(), dict(lr=0.05, eps=0.1, weight_decay=0.1, difference=difference)
    optimizer = baselines.FiniteDifference([x], **options)
    f = lambda x: float(F(torch.from_numpy(x)))  # noqa: E731
    for state in islice(reference.cocd(f, START, B=5, m=5, gamma=0.0, **options), 8):
        optimizer.step(lambda: F(x))
        torch.testing.assert_close(flat([x]), torch.from_numpy(state.x), rtol=0, atol=1e-12)
        assert optimizer.evaluations == state.evaluations


def test_random_coordinate_moves_the_probed_coordinates_alone():
    x = leaf()
    optimizer = baselines.RandomCoordinate([x], lr=0.1, eps=0.1, compute_budget=2, seed=4)
    for _ in range(5):
        start = flat([x])
        _, points = observed(optimizer)
        probed = (points - start).abs().sum(0).nonzero().flatten()
        assert len(probed) == 2
        A = torch.autograd.functional.jacobian(F, start)
        expected = start.clone()
        expected[probed] -= 0.1 * A[probed]  # central differences of a quadratic are exact
        torch.testing.assert_close(flat([x]), expected, rtol=0, atol=1e-11)


def test_random_coordinates_are_drawn_without_replacement_and_uniformly():
    x = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    optimizer = baselines.RandomCoordinate([x], lr=0.0, eps=1.0, compute_budget=2, seed=0)
    drawn = Counter()
    for _ in range(1500):
        points = []
        optimizer.step(lambda points=points: points.append(x.tolist()) or x.sum())
        moved = [i for i in range(6) if any(point[i] for point in points)]
        assert len(moved) == 2
        drawn[tuple(moved)] += 1
    # 15 pairs, 100 of each expected; chi-squared with 14 degrees: 36 is exceeded once in 1,000.
    assert set(drawn) == set(combinations(range(6), 2))
    assert sum((count - 100) ** 2 / 100 for count in drawn.values()) < 36


def test_all_coordinates_can_be_drawn_at_once():
    x = leaf()
    optimizer = baselines.RandomCoordinate([x], lr=0.05, eps=0.1, compute_budget=5)
    twin = baselines.FiniteDifference([y := leaf()], lr=0.05, eps=0.1)
    optimizer.step(lambda: F(x))
    twin.step(lambda: F(y))
    assert frozen(x) == frozen(y)


# --- directions --------------------------------------------------------------------------


def directions_of(seed, count, steps, sample):
    """The directions of a run, from its seed: a seed for each of them, from a generator."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        seeds = torch.randint(2**63 - 1, (count,), generator=generator).tolist()
        yield torch.stack([sample(torch.Generator().manual_seed(s)) for s in seeds])


def signs(generator):
    return torch.randint(2, (5,), generator=generator, dtype=torch.float64) * 2 - 1


def normal(generator):
    return torch.randn(5, generator=generator, dtype=torch.float64)


METHODS = {
    "SPSA": (baselines.SPSA, signs),
    "ZOSGD": (baselines.ZOSGD, normal),
    "MeZO": (baselines.MeZO, normal),
    "EvolutionStrategy": (baselines.EvolutionStrategy, normal),
}


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("name", METHODS)
def test_step_follows_the_formula_with_its_own_directions(name, count):
    method, sample = METHODS[name]
    lr, eps, wd, x = 0.02, 0.1, 0.5, leaf()
    optimizer = method([x], lr=lr, eps=eps, directions=count, weight_decay=wd, seed=7)
    for U in directions_of(7, count, 5, sample):
        start = flat([x])
        returned, points = observed(optimizer)
        close = dict(rtol=0, atol=1e-12)
        torch.testing.assert_close(points[0::2], start + eps * U, **close)
        torch.testing.assert_close(points[1::2], start - eps * U, **close)
        up, down = (torch.stack([F(p) for p in points[side::2]]) for side in (0, 1))
        g = (U * ((up - down) / (2 * eps))[:, None]).mean(0)
        torch.testing.assert_close(flat([x]), (1 - lr * wd) * start - lr * g, **close)
        assert float(returned) == pytest.approx(float((up + down).mean() / 2))


def test_every_group_has_its_own_radius_and_rate():
    a = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    groups = [{"params": [a], "eps": 0.5, "lr": 0.01}, {"params": [b]}]
    optimizer = baselines.SPSA(groups, lr=0.03, eps=0.1)
    _, points = observed(optimizer)
    radius = torch.tensor([0.5] * 2 + [0.1] * 3, dtype=torch.float64)
    rate = torch.tensor([0.01] * 2 + [0.03] * 3, dtype=torch.float64)
    assert torch.equal(points[0].abs(), radius)
    step = rate * points[0] / radius * (F(points[0]) - F(points[1])) / (2 * radius)
    torch.testing.assert_close(flat([a, b]), -step)


def test_mezo_is_zosgd_to_rounding():
    x, y = leaf(), leaf()
    walked = baselines.MeZO([x], lr=0.02, eps=0.1, directions=3, seed=5)
    copied = baselines.ZOSGD([y], lr=0.02, eps=0.1, directions=3, seed=5)
    for _ in range(20):
        walked.step(lambda: F(x))
        copied.step(lambda: F(y))
        torch.testing.assert_close(x, y, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", METHODS)
def test_directions_have_mean_zero_and_unit_variance(name):
    x = torch.zeros(50, dtype=torch.float64, requires_grad=True)
    optimizer = METHODS[name][0]([x], lr=0.0, eps=1.0, directions=100)
    _, points = observed(optimizer, lambda x: x.sum())
    U = points[0::2]
    assert abs(float(U.mean())) < 0.05 and abs(float(U.var()) - 1) < 0.1
    if name == "SPSA":
        assert set(U.flatten().tolist()) == {-1.0, 1.0}


# --- rank shaping ------------------------------------------------------------------------

TRANSFORMS = {
    "exp": lambda loss: torch.exp(loss / 10),
    "cube": lambda loss: (loss - 1) ** 3,
    "scaled": lambda loss: 1e100 * loss + 5,
    "squashed": lambda loss: torch.tanh(loss / 50),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_rank_shaping_is_invariant_to_monotone_transforms(transform):
    x, y = leaf(), leaf()
    options = dict(lr=0.02, eps=0.1, directions=6, shaping="rank", seed=3)
    plain = baselines.EvolutionStrategy([x], **options)
    shaped = baselines.EvolutionStrategy([y], **options)
    for _ in range(5):
        plain.step(lambda: F(x))
        shaped.step(lambda: TRANSFORMS[transform](F(y)))
        assert frozen(x) == frozen(y)
    assert not torch.equal(x, leaf())


def test_rank_shaping_follows_its_formula_and_shares_ranks_of_equal_losses():
    x, lr, eps = leaf(), 0.02, 0.1
    optimizer = baselines.EvolutionStrategy([x], lr, eps=eps, directions=3, shaping="rank", seed=2)
    losses = iter([3.0, 1.0, 2.0, 2.0, 7.0, 1.0])  # up, down, up, down, up, down
    (U,) = directions_of(2, 3, 1, normal)
    optimizer.step(lambda: next(losses))
    # Sorted 1 1 2 2 3 7: ranks 0.5 0.5 2.5 2.5 4 5, of which 0 to 5 becomes -1/2 to 1/2.
    weights = torch.tensor([4 - 0.5, 2.5 - 2.5, 5 - 0.5], dtype=torch.float64) / 5
    step = (U * weights[:, None]).mean(0) / (2 * eps)
    expected = torch.tensor(START, dtype=torch.float64) - lr * step
    torch.testing.assert_close(flat([x]), expected, rtol=0, atol=1e-12)


def test_unknown_shaping_is_refused():
    with pytest.raises(ValueError, match=r"shaping.*'cubic'"):
        baselines.EvolutionStrategy([leaf()], lr=0.1, shaping="cubic")
