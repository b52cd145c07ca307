"""CoCD against the executable reference: trajectory, state and evaluation count."""

from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

import cocd
from cocd import reference


def quadratic(n: int, seed: int = 0):
    """A convex quadratic with cross terms, for NumPy vectors and torch tensors alike."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    A, b = root @ root.T / n + np.eye(n), rng.normal(size=n)
    tA, tb = torch.from_numpy(A), torch.from_numpy(b)
    return (lambda x: float(x @ A @ x / 2 + b @ x)), (lambda x: x @ tA @ x / 2 + tb @ x)


def cases():
    for n in range(1, 8):
        for m in range(1, n + 1):
            for B in range(1, m + 1):
                yield n, m, B


@pytest.mark.parametrize("difference", ["central", "forward", "backward"])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_equals_reference_for_every_small_budget(gamma, difference):
    for n, m, B in cases():
        f, f_torch = quadratic(n)
        x0 = np.linspace(-1, 1, n)
        options = dict(lr=0.03, eps=0.1, weight_decay=0.01, difference=difference)
        expected = reference.cocd(f, x0, B=B, m=m, gamma=gamma, **options)
        # Two tensors, one of them transposed, so that the sweep crosses borders and strides.
        cut = n // 2
        parts = [
            torch.from_numpy(x0[:cut].copy()).requires_grad_(),
            torch.from_numpy(x0[cut:].copy()).reshape(-1, 1).t().requires_grad_(),
        ]
        optimizer = cocd.CoCD(parts, decay=gamma, compute_budget=B, memory_budget=m, **options)
        for state in islice(expected, 3 * n // B + 3):
            loss = optimizer.step(lambda f=f_torch, x=parts: f(torch.cat([p.flatten() for p in x])))
            flat = torch.cat([p.detach().flatten() for p in parts]).numpy()
            np.testing.assert_allclose(flat, state.x, rtol=0, atol=1e-12)
            np.testing.assert_allclose(optimizer.estimate().numpy(), state.g, rtol=0, atol=1e-11)
            assert float(loss) == pytest.approx(state.loss, abs=1e-12)
            assert optimizer.evaluations == state.evaluations


def test_four_layer_network_over_three_sweeps():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(),
        nn.Linear(4, 2),
    ).double()  # fmt: skip
    x, y = torch.randn(16, 3).double(), torch.randn(16, 2).double()
    n = sum(p.numel() for p in model.parameters())
    twin = nn.Sequential(*[layer for layer in model]).double()

    def f(flat: np.ndarray) -> float:
        with torch.no_grad():
            parts = dict(zip([k for k, _ in twin.named_parameters()],
                             torch.from_numpy(flat).split([p.numel() for p in twin.parameters()]),
                             strict=True))  # fmt: skip
            parts = {k: v.view_as(twin.get_parameter(k)) for k, v in parts.items()}
            out = torch.func.functional_call(twin, parts, (x,))
            return float(nn.functional.mse_loss(out, y))

    B = 7
    x0 = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    expected = reference.cocd(f, x0, lr=0.05, eps=0.1, B=B, m=n, gamma=0.9)
    optimizer = cocd.CoCD(model.parameters(), lr=0.05, eps=0.1, compute_budget=B, decay=0.9)
    for state in islice(expected, 3 * n // B + 1):
        optimizer.step(lambda: nn.functional.mse_loss(model(x), y))
        flat = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
        np.testing.assert_allclose(flat, state.x, rtol=0, atol=1e-12)


def test_reference_is_short_enough_to_read_beside_the_paper():
    import inspect

    assert len(inspect.getsource(reference.cocd).splitlines()) < 60
