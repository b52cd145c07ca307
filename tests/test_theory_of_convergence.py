"""The paper's convergence theorem, at every step; and what it needs that it does not say.

Theorem "Linear Convergence of CoCD": for an L-smooth f with the Polyak-Lojasiewicz constant mu,
exact differences, gamma = 1, m = n, B dividing n and the staleness tau = n / B - 1,

    f(x_t) - f* <= (1 - 2 mu C_1 / C_2)^t (f(x_0) - f*)
    C_1 = 1 / alpha - L (1 + n tau) / 2,    C_2 = (1 / alpha + L n tau / 2)^2

as long as C_1 > 0, that is alpha < 2 / (L (1 + n tau)). The proof takes the buffer to hold an
estimate of every coordinate; the algorithm starts from zeros. So the buffer is warmed here by one
sweep of estimates at x_0. On quadratics central differences are exact at any radius.
"""

import numpy as np
import pytest
import torch

import cocd

CASES = [(n, B) for n in (1, 2, 3, 4, 6, 8) for B in range(1, n + 1) if n % B == 0]


def rate(alpha, L, mu, n, B):
    tau = n / B - 1
    C_1 = 1 / alpha - L / 2 * (1 + n * tau)
    C_2 = 1 / alpha**2 + L * n * tau / alpha + (L * n * tau) ** 2 / 4
    assert C_1 > 0
    return 1 - 2 * mu * C_1 / C_2


def quadratic(n, condition, seed):
    """f(x) = x A x / 2 with eigenvalues from 1 to `condition`; the minimum is 0, at 0."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    eigenvalues = np.geomspace(1, condition, n) if n > 1 else np.array([float(condition)])
    A = torch.from_numpy(Q @ np.diag(eigenvalues) @ Q.T)
    x = torch.from_numpy(rng.normal(size=n)).requires_grad_()
    return (lambda: x @ A @ x / 2), x, eigenvalues.max(), eigenvalues.min()


def losses(loss, x, alpha, B, steps, warm):
    """f(x_0), f(x_1), ...; warm: after one sweep of estimates at x_0."""
    optimizer = cocd.CoCD([x], lr=0.0 if warm else alpha, eps=0.5, compute_budget=B, decay=1.0)
    if warm:
        start = x.detach().clone()
        for _ in range(x.numel() // B):
            optimizer.step(loss)
        assert torch.equal(x, start)
        optimizer.param_groups[0]["lr"] = alpha
    for _ in range(steps):
        yield float(optimizer.step(loss))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("condition", [1.0, 5.0, 100.0])
@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.95])  # of the largest rate allowed
@pytest.mark.parametrize(("n", "B"), CASES)
def test_the_bound_holds_at_every_step_from_a_warm_buffer(n, B, fraction, condition, seed):
    loss, x, L, mu = quadratic(n, condition, seed)
    tau = n / B - 1
    alpha = fraction * 2 / (L * (1 + n * tau))
    q = rate(alpha, L, mu, n, B)
    assert -1e-12 <= q < 1
    f_0 = loss().item()
    rounding = 1e-14 * f_0  # of the loss itself; the bound reaches it where it converges fast
    for t, f_t in enumerate(losses(loss, x, alpha, B, steps=60, warm=True)):
        assert f_t <= max(q, 0.0) ** t * f_0 * (1 + 1e-9) + rounding


def test_the_bound_fails_from_a_cold_buffer():
    """f = |x|^2 / 2, n = 2, B = 1, x_0 = e_2: the first step probes e_1, whose slope is 0.

    Nothing moves, so f(x_1) = f(x_0), where the theorem promises a decrease.
    """
    alpha = 0.5  # below 2 / (L (1 + n tau)) = 2 / 3
    q = rate(alpha, L=1.0, mu=1.0, n=2, B=1)
    assert q < 1
    for warm in (False, True):
        x = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
        f_0, f_1 = losses(lambda x=x: x @ x / 2, x, alpha, B=1, steps=2, warm=warm)
        assert f_0 == 0.5
        if warm:
            assert f_1 <= q * f_0
        else:
            assert f_1 == f_0 > q * f_0


def test_the_full_budget_is_gradient_descent_with_its_classical_rate():
    """Corollary: B = n gives tau = 0 and the rate 1 - 2 mu alpha (1 - L alpha / 2)."""
    for alpha in (0.1, 0.25, 0.39):
        expected = 1 - 2 * 1.0 * alpha * (1 - 5.0 * alpha / 2)
        assert rate(alpha, L=5.0, mu=1.0, n=4, B=4) == pytest.approx(expected)


def test_the_estimate_settles():
    """Theorem "Gradient Estimate Convergence": |g_t - g_(t-1)| -> 0."""
    loss, x, L, _ = quadratic(6, 5.0, seed=0)
    optimizer = cocd.CoCD([x], lr=1 / (L * 13), eps=0.5, compute_budget=2)
    changes, last = [], torch.zeros(6, dtype=torch.float64)
    for _ in range(800):
        optimizer.step(loss)
        estimate = optimizer.estimate()
        changes.append(float((estimate - last).norm()))
        last = estimate
    assert changes[-1] < 1e-6 * max(changes)
