"""How far searches probe: noise, scale and rounding."""

import numpy as np
import pytest
from blackboxes import bowl
from searches import drive

import cocd
from cocd.blackbox.radius import MEASUREMENTS, noise_level, radii, relative_noise


def test_the_radius_follows_dtype_scale_and_bounds():
    fine = np.finfo(float).eps ** (1 / 3)
    assert radii(np.array([0.0, -1e4]), None, 0.0) == pytest.approx([fine, 1e4 * fine])
    search = cocd.AskTell([0.0], method="cocd", lr=0.1, bounds=[(0, 1e-6)], maxfev=40, rng=1)
    seen = drive(search, lambda x: float(x[0]))
    assert np.abs(seen).max() <= 1e-6


@pytest.mark.parametrize("level", [1e-6, 1e-3, 1e-1])
def test_noise_is_measured(level):
    measured = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        t = np.concatenate([np.arange(8) * 1e-7, [0.5, 1.0]])
        measured.append(relative_noise(4 + 3 * t + t**2 + level * rng.standard_normal(10)))
    assert 0.3 * level < 4 * np.median(measured) < 3 * level  # the values reach 4 far


def test_smooth_functions_have_no_noise():
    t = np.arange(8) * 1e-7
    for smooth in (t, np.exp(t), 1 + t**2, np.sin(1 + t)):
        assert noise_level(smooth) < 1e-14
    assert noise_level(np.ones(8)) == 0.0


def test_a_noisy_function_gets_a_wide_radius_and_the_cost_is_counted():
    rng = np.random.default_rng(3)
    noisy = cocd.AskTell(np.ones(20), method="cocd", lr=0.01, compute_budget=4, maxfev=60, rng=0)
    smooth = cocd.AskTell(np.ones(20), method="cocd", lr=0.01, compute_budget=4, maxfev=60, rng=0)
    drive(noisy, lambda x: bowl(x) * (1 + 0.01 * rng.standard_normal()), 1)
    drive(smooth, bowl, 1)
    assert noisy.nfev == smooth.nfev == MEASUREMENTS and noisy.nit == 0
    wide, fine = (np.abs(s.ask()[1:] - 1).max() for s in (noisy, smooth))
    assert 0.05 < wide < 1 and fine < 1e-4
    assert len(drive(noisy)) + MEASUREMENTS == noisy.nfev <= 60
