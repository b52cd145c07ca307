"""`method="wasp"`: one probe after the other until slopes agree."""

import numpy as np
import pytest
import torch
from blackboxes import bowl

import cocd

WASP = {"method": "wasp", "lr": 0.05, "eps": 1e-3}


def steep(x):
    return float(np.sum(np.arange(1.0, len(x) + 1) * (x - 1) ** 2 + np.sin(x)))


def steep_torch(x):
    return (torch.arange(1.0, len(x) + 1) * (x - 1) ** 2 + torch.sin(x)).sum()


@pytest.mark.parametrize("basis", ["identity", "hadamard", "rotation"])
def test_is_the_torch_optimizer_to_rounding(basis):
    seed = int(np.random.default_rng(3).integers(2**31))
    x = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    optimizer = cocd.baselines.WASP([x], 0.05, eps=1e-3, basis=basis, seed=seed)
    for _ in range(12):
        optimizer.step(lambda: steep_torch(x))
    result = cocd.minimize(steep, np.zeros(6), **WASP, basis=basis, rng=3, maxiter=12)
    search = cocd.AskTell(np.zeros(6), **WASP, basis=basis, rng=3)
    while search.nit < 12:
        search.tell([steep(p) for p in search.ask()])
    assert np.allclose(search._rule.x, x.detach(), rtol=0, atol=1e-9)
    assert search.nfev == optimizer.evaluations == result.nfev - 1  # it looks at where it led
    assert optimizer.evaluations < 12 * 7


def test_a_phase_is_one_probe_and_the_first_of_a_step_has_the_point():
    search = cocd.AskTell(np.zeros(3), **WASP, basis="identity")
    sizes = []
    for _ in range(5):
        points = search.ask()
        sizes.append(len(points))
        search.tell([bowl(p) for p in points])
    assert sizes == [2, 1, 1, 2, 1]  # at first all three are probed


@pytest.mark.parametrize(("n", "lr"), [(1, 0.2), (12, 0.01)])
def test_converges_and_says_so(n, lr):
    result = cocd.minimize(bowl, np.full(n, 2.0), method="wasp", lr=lr, rng=0, maxfev=20_000)
    assert result.success and "vectors of the basis" in result.message
    assert result.fun < 1e-6


@pytest.mark.parametrize("maxfev", range(1, 16))
def test_maxfev_is_kept(maxfev):
    result = cocd.minimize(steep, np.zeros(4), **WASP, maxfev=maxfev)
    assert result.nfev <= maxfev and result.fun <= steep(np.zeros(4))


def test_a_failed_probe_keeps_the_old_slope():
    search = cocd.AskTell(np.zeros(2), **WASP, basis="identity")
    search.tell([bowl(p) for p in search.ask()])
    search.tell([bowl(p) for p in search.ask()])
    before = search._rule._slopes.copy()
    f, _ = map(bowl, search.ask())
    search.tell([f, np.nan])
    assert search._rule.skipped == 1
    assert np.array_equal(search._rule._slopes, before)


def test_a_failure_at_the_point_itself_ends_the_step():
    search = cocd.AskTell(np.ones(2), **WASP, basis="identity")
    while search.nit < 1:
        search.tell([bowl(p) for p in search.ask()])
    assert len(search.ask()) == 2
    search.tell([np.nan, 1.0])
    assert search.nit == 2 and len(search.ask()) == 2


def test_overflow_ends_with_the_best_point():
    def falling(x):
        return float(1e10 * x.sum())

    result = cocd.minimize(falling, np.ones(2), method="wasp", lr=1e300, eps=0.1, maxfev=100)
    assert result.status == 4 and "lr=1e+300 is too large" in result.message
    assert np.isfinite(result.x).all()


def test_bounds_are_refused():
    with pytest.raises(ValueError, match="method='wasp' does not support bounds"):
        cocd.minimize(bowl, np.ones(2), **WASP, bounds=[(0, 1)] * 2)
