"""Problems by class: smooth, noisy, nonsmooth, bounded, multimodal; 10 to 300 coordinates.

Each problem has a true function, which measures, and what the methods see: the same, or the same
with noise. Those marked `held` take no part in any choice of a constant.
"""

from __future__ import annotations

from .cases.bounded import boxed_chain, boxed_wood, entropy, nonnegative
from .cases.instance import Case
from .cases.multimodal import (
    ackley,
    alpine,
    cluster,
    griewank,
    levy,
    rastrigin,
    rippled,
    salomon,
    schaffer,
    styblinski,
)
from .cases.noise import additive, computed, relative
from .cases.nonsmooth import (
    chained_cb3,
    chained_lq,
    crescent,
    largest_deviation,
    least_deviations,
    soft_threshold,
)
from .cases.smooth import (
    boundary_value,
    broyden_banded,
    cosine_chain,
    edensch,
    engval,
    inverse_problem,
    logistic,
    powell_singular,
    rotated_quartic,
    tridia,
    units,
    variably_dimensioned,
    wood,
)

# What counts as solved, of the distance between f(x0) and the optimum.
TARGETS = {
    "smooth": (1e-3, 1e-6),
    "noisy": (1e-3, 1e-6),
    "nonsmooth": (1e-3, 1e-6),
    "bounded": (1e-3, 1e-6),
    "multimodal": (1e-1, 1e-3),
}

CASES = (
    Case("variably dimensioned", "smooth", 40, variably_dimensioned),
    Case("Powell singular", "smooth", 100, powell_singular),
    Case("Wood", "smooth", 40, wood, held=True),
    Case("boundary value", "smooth", 60, boundary_value),
    Case("logistic", "smooth", 100, logistic, held=True),
    Case("engval", "smooth", 100, engval),
    Case("units", "smooth", 20, units),
    Case("rotated quartic", "smooth", 40, rotated_quartic),
    Case("edensch", "smooth", 300, edensch),
    Case("tridia", "smooth", 200, tridia, held=True),
    Case("inverse problem", "smooth", 50, inverse_problem, held=True),
    Case("Broyden banded", "smooth", 100, broyden_banded),
    Case("cosine chain", "smooth", 100, cosine_chain),
    Case("rotated quartic, 1 %", "noisy", 20, rotated_quartic, noise=relative(0.01)),
    Case("engval, 1e-3", "noisy", 40, engval, noise=additive(1e-3)),
    Case("Wood, 1 %", "noisy", 40, wood, noise=relative(0.01), held=True),
    Case("inverse problem, 1e-4", "noisy", 60, inverse_problem, noise=additive(1e-4)),
    Case("logistic, 1e-3", "noisy", 100, logistic, noise=additive(1e-3), held=True),
    Case("Powell singular, 1 %", "noisy", 12, powell_singular, noise=relative(0.01)),
    Case("tridia, 1e-3", "noisy", 10, tridia, noise=additive(1e-3), held=True),
    Case("edensch, heavy tails", "noisy", 40, edensch, noise=additive(1e-4, 2.0)),
    Case("boundary value, computed", "noisy", 40, boundary_value, noise=computed(1e-4)),
    Case("least deviations", "nonsmooth", 40, least_deviations),
    Case("largest deviation", "nonsmooth", 20, largest_deviation),
    Case("chained LQ", "nonsmooth", 100, chained_lq),
    Case("chained CB3", "nonsmooth", 40, chained_cb3, held=True),
    Case("crescent", "nonsmooth", 60, crescent, held=True),
    Case("soft threshold", "nonsmooth", 100, soft_threshold),
    Case("nonnegative", "bounded", 40, nonnegative),
    Case("boxed chain", "bounded", 50, boxed_chain, held=True),
    Case("boxed Wood", "bounded", 20, boxed_wood),
    Case("entropy", "bounded", 100, entropy),
    Case("Ackley", "multimodal", 40, ackley),
    Case("Levy", "multimodal", 40, levy, held=True),
    Case("Griewank", "multimodal", 20, griewank),
    Case("Rastrigin", "multimodal", 20, rastrigin),
    Case("Styblinski-Tang", "multimodal", 20, styblinski, held=True),
    Case("Salomon", "multimodal", 10, salomon, held=True),
    Case("Schaffer", "multimodal", 20, schaffer),
    Case("rippled ellipsoid", "multimodal", 100, rippled),
    Case("Alpine", "multimodal", 40, alpine, held=True),
    Case("Lennard-Jones", "multimodal", 21, cluster),
)
