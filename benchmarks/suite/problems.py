"""The problems: a model, a loss, data, a batch size and a number of evaluations each.

Data are the same for every seed; a seed draws the first weights and the batches. `held_out`
problems were not looked at while `AutoCoCD`'s defaults were chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional as F

from .networks import Attention, Decay, Factors, Mixture, Next, Point, Rows, mlp

Loss = Callable[[Tensor, Tensor], Tensor]
Made = tuple[nn.Module, Loss, Tensor, Tensor]


@dataclass(frozen=True)
class Problem:
    """A problem; `make` draws the first weights from torch's generator."""

    name: str
    batch: int  # rows; 0 for all
    evaluations: int
    held_out: bool
    rough: bool  # small changes of the weights often change nothing
    make: Callable[[], Made]


PROBLEMS: dict[str, Problem] = {}


def problem(
    name: str,
    batch: int = 0,
    evaluations: int = 5_000,
    held_out: bool = False,
    rough: bool = False,
) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Register a problem."""

    def register(make: Callable[[], Made]) -> Callable[[], Made]:
        PROBLEMS[name] = Problem(name, batch, evaluations, held_out, rough, make)
        return make

    return register


# --- data ------------------------------------------------------------------------------------


@cache
def table(name: str, scaled: str = "x") -> tuple[Tensor, Tensor]:
    """A data set of scikit-learn; `scaled` names what has mean 0 and variance 1: x, y, both."""
    found = getattr(datasets, f"load_{name}")()
    return _tensors(found.data, found.target, scaled)


@cache
def friedman(which: int, scaled: str = "xy") -> tuple[Tensor, Tensor]:
    make = getattr(datasets, f"make_friedman{which}")
    x, y = make(2_000, noise=0.1, random_state=0)
    return _tensors(x, y, scaled)


def _tensors(x: np.ndarray, y: np.ndarray, scaled: str) -> tuple[Tensor, Tensor]:
    if "x" in scaled:
        x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-9)
    if "y" in scaled:
        y = (y - y.mean(0)) / y.std(0)
    shuffled = np.random.default_rng(0).permutation(len(x))
    x, y = x[shuffled], y[shuffled]
    targets = torch.tensor(y) if y.dtype.kind == "i" else torch.tensor(y, dtype=torch.float32)
    return torch.tensor(x, dtype=torch.float32), targets


@cache
def digits() -> tuple[Tensor, Tensor]:
    x, y = table("digits", "")
    return x / 16, y


# --- losses ----------------------------------------------------------------------------------


def squares(out: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(out.view(y.shape), y)


def value(out: Tensor, y: Tensor) -> Tensor:
    return out.mean()


def errors(out: Tensor, y: Tensor) -> Tensor:
    """The share of rows that are classified wrongly."""
    return (out.argmax(1) != y).float().mean()


def pinball(out: Tensor, y: Tensor) -> Tensor:
    off = y - out.view(y.shape)
    return torch.maximum(0.9 * off, -0.1 * off).mean()


def on_point(f: Callable[[Tensor], Tensor], start: Tensor) -> Made:
    return Point(start), lambda out, y: f(out[0]), torch.zeros(2, 1), torch.zeros(2)


# --- functions of a vector --------------------------------------------------------------------


@problem("far (1 weight)", evaluations=3_000)
def far() -> Made:
    return on_point(lambda x: (x - 150).square().sum(), torch.zeros(1))


@problem("Rosenbrock (10)", evaluations=6_000, held_out=True)
def rosenbrock() -> Made:
    def f(x: Tensor) -> Tensor:
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    return on_point(f, torch.tensor([-1.2, 1.0] * 5))


@problem("quadratic, condition 1e4 (100)")
def quadratic() -> Made:
    weights = torch.logspace(0, 4, 100)
    return on_point(lambda x: (weights * x**2).sum(), torch.ones(100))


@problem("far and wide (30)", held_out=True)
def wide() -> Made:
    lowest = torch.logspace(-2, 3, 30)
    return on_point(lambda x: ((x - lowest) / lowest).square().mean(), torch.zeros(30))


@problem("exponential decay, raw (3)", evaluations=4_000, held_out=True)
def decay() -> Made:
    t = torch.linspace(0, 40, 200)
    noise = torch.randn(200, generator=torch.Generator().manual_seed(0))
    return Decay(), squares, t, 250 * torch.exp(-0.08 * t) + 40 + noise


# --- linear models ----------------------------------------------------------------------------


@problem("linear, raw targets (mean 150)", batch=64, evaluations=10_000)
def linear_raw() -> Made:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1_000, 10, generator=generator)
    y = x @ torch.randn(10, generator=generator) * 20 + 150
    return nn.Linear(10, 1), squares, x, y


@problem("diabetes, linear, raw targets")
def diabetes_raw() -> Made:
    return nn.Linear(10, 1), squares, *table("diabetes", "x")


@problem("diabetes, linear, all raw", batch=64, held_out=True)
def diabetes_all_raw() -> Made:
    return nn.Linear(10, 1), squares, *table("diabetes", "")


@problem("diabetes, linear, scaled", batch=64)
def diabetes_scaled() -> Made:
    return nn.Linear(10, 1), squares, *table("diabetes", "xy")


@problem("diabetes, quantile 0.9", batch=64)
def diabetes_quantile() -> Made:
    return nn.Linear(10, 1), pinball, *table("diabetes", "xy")


@problem("diabetes, Huber, raw targets", batch=32, held_out=True)
def diabetes_huber() -> Made:
    def huber(out: Tensor, y: Tensor) -> Tensor:
        return F.huber_loss(out.view(y.shape), y)

    return nn.Linear(10, 1), huber, *table("diabetes", "x")


@problem("breast cancer, logistic, scaled")
def cancer_scaled() -> Made:
    return nn.Linear(30, 2), F.cross_entropy, *table("breast_cancer")


@problem("breast cancer, logistic, raw", batch=64)
def cancer_raw() -> Made:
    return nn.Linear(30, 2), F.cross_entropy, *table("breast_cancer", "")


@problem("breast cancer, 0/1 loss", rough=True)
def cancer_errors() -> Made:
    return nn.Linear(30, 2), errors, *table("breast_cancer")


@problem("digits, logistic", batch=64)
def digits_linear() -> Made:
    return nn.Linear(64, 10), F.cross_entropy, *digits()


@problem("digits, hinge", batch=128, held_out=True)
def digits_hinge() -> Made:
    return nn.Linear(64, 10), F.multi_margin_loss, *digits()


@problem("linnerud, linear, raw", held_out=True)
def linnerud() -> Made:
    return nn.Linear(3, 3), squares, *table("linnerud", "")


@problem("counts, Poisson", batch=32)
def counts() -> Made:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 8))
    y = rng.poisson(np.exp(1 + x @ rng.normal(size=8) / 3)).astype(np.float64)

    def deviance(out: Tensor, y: Tensor) -> Tensor:
        out = out.view(y.shape)
        return 2 * (out.exp() - y * out + torch.xlogy(y, y) - y).mean()

    return nn.Linear(8, 1), deviance, *_tensors(x, y, "")


# --- networks on tables -------------------------------------------------------------------------


@problem("diabetes, MLP, raw targets", batch=64, evaluations=20_000)
def diabetes_mlp() -> Made:
    return mlp(10, 32, 1, activation=nn.Tanh), squares, *table("diabetes", "x")


@problem("wine, MLP, raw")
def wine_raw() -> Made:
    return mlp(13, 16, 3), F.cross_entropy, *table("wine", "")


@problem("wine, MLP, scaled", batch=16, held_out=True)
def wine_scaled() -> Made:
    return mlp(13, 16, 3, activation=nn.SiLU), F.cross_entropy, *table("wine")


@problem("iris, MLP, raw, sigmoid", batch=8)
def iris_raw() -> Made:
    return mlp(4, 10, 3, activation=nn.Sigmoid), F.cross_entropy, *table("iris", "")


@problem("iris, softmax, scaled", batch=16, held_out=True)
def iris_linear() -> Made:
    return nn.Linear(4, 3), F.cross_entropy, *table("iris")


@problem("Friedman 1, MLP", batch=32, evaluations=20_000)
def friedman1() -> Made:
    return mlp(10, 32, 32, 1, activation=nn.Tanh), squares, *friedman(1)


@problem("Friedman 2, MLP, all raw", batch=64, evaluations=20_000, held_out=True)
def friedman2() -> Made:
    return mlp(4, 32, 1), squares, *friedman(2, "")


@problem("moons, MLP", batch=32)
def moons() -> Made:
    x, y = datasets.make_moons(1_000, noise=0.2, random_state=0)
    return mlp(2, 24, 24, 2, activation=nn.GELU), F.cross_entropy, *_tensors(x, y, "x")


@problem("mixture of normals, density", batch=64)
def mixture() -> Made:
    x, y = datasets.make_blobs(1_500, 2, centers=4, random_state=3)

    def likelihood(out: Tensor, y: Tensor) -> Tensor:
        return -out.mean()

    return Mixture(4, 2), likelihood, *_tensors(x, y, "")


# --- networks on digits --------------------------------------------------------------------------

ON_DIGITS = partial(problem, batch=64, evaluations=20_000)


@ON_DIGITS("digits, MLP, ReLU")
def digits_relu() -> Made:
    return mlp(64, 32, 10), F.cross_entropy, *digits()


@problem("digits, MLP, batch 8", batch=8, evaluations=20_000)
def digits_small_batch() -> Made:
    return mlp(64, 32, 10, activation=nn.Tanh), F.cross_entropy, *digits()


@problem("digits, MLP, all rows", evaluations=20_000, held_out=True)
def digits_all_rows() -> Made:
    return mlp(64, 32, 10, activation=nn.ELU), F.cross_entropy, *digits()


@ON_DIGITS("digits, deep sigmoid")
def digits_sigmoid() -> Made:
    return mlp(64, 24, 24, 24, 10, activation=nn.Sigmoid), F.cross_entropy, *digits()


@ON_DIGITS("digits, deep tanh", held_out=True)
def digits_tanh() -> Made:
    return mlp(64, 24, 24, 24, 24, 24, 10, activation=nn.Tanh), F.cross_entropy, *digits()


@ON_DIGITS("digits, deep ReLU, LayerNorm")
def digits_layernorm() -> Made:
    return mlp(64, 24, 24, 24, 10, norm="layer"), F.cross_entropy, *digits()


@ON_DIGITS("digits, MLP, BatchNorm", held_out=True)
def digits_batchnorm() -> Made:
    return mlp(64, 32, 10, norm="batch"), F.cross_entropy, *digits()


@ON_DIGITS("digits, pixels to 16, MLP")
def digits_pixels() -> Made:
    x, y = digits()
    return mlp(64, 32, 10), F.cross_entropy, 16 * x, y


@ON_DIGITS("digits, 0/1 loss", rough=True)
def digits_errors() -> Made:
    return mlp(64, 16, 10), errors, *digits()


@ON_DIGITS("digits, CNN")
def digits_cnn() -> Made:
    layers = nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), *layers), F.cross_entropy, *digits()


@ON_DIGITS("digits, CNN, GroupNorm, GELU", held_out=True)
def digits_groupnorm() -> Made:
    layers = nn.Conv2d(1, 8, 3, 2), nn.GroupNorm(2, 8), nn.GELU(), nn.Flatten(), nn.Linear(72, 10)
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), *layers), F.cross_entropy, *digits()


@problem("digits, GRU", batch=64, evaluations=8_000)
def digits_gru() -> Made:
    return Rows(16), F.cross_entropy, *digits()


@problem("digits, transformer", batch=64, evaluations=8_000)
def digits_transformer() -> Made:
    return Attention(12), F.cross_entropy, *digits()


@ON_DIGITS("digits, autoencoder", held_out=True)
def digits_autoencoder() -> Made:
    x, _ = digits()
    return mlp(64, 12, 64, activation=nn.Tanh), squares, x, x


@problem("digits, wide MLP (50,826)", batch=64, evaluations=40_000)
def digits_wide() -> Made:
    return mlp(64, 256, 128, 10), F.cross_entropy, *digits()


# --- tables of pairs and chains -------------------------------------------------------------------


@cache
def ratings() -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(60, 3)), rng.normal(size=(40, 3))
    pairs = np.stack([rng.integers(0, 60, 3_000), rng.integers(0, 40, 3_000)], 1)
    y = (u[pairs[:, 0]] * v[pairs[:, 1]]).sum(1) + 0.1 * rng.normal(size=3_000)
    return torch.tensor(pairs), torch.tensor(y, dtype=torch.float32)


@problem("matrix factorisation, batch 64", batch=64, evaluations=20_000)
def factors_small() -> Made:
    return Factors(60, 40, 4), squares, *ratings()


@problem("matrix factorisation, batch 1,024", batch=1_024, evaluations=20_000, held_out=True)
def factors_large() -> Made:
    return Factors(60, 40, 4), squares, *ratings()


@problem("chain of symbols, embedding", batch=64, evaluations=20_000)
def chain() -> Made:
    rng = np.random.default_rng(0)
    odds = rng.dirichlet(np.full(12, 0.2), size=(12, 12))
    symbols = [0, 1]
    for _ in range(3_000):
        symbols.append(int(rng.choice(12, p=odds[symbols[-2], symbols[-1]])))
    line = torch.tensor(symbols)
    context = torch.stack([line[:-3], line[1:-2], line[2:-1]], 1)
    return Next(12, 6), F.cross_entropy, context, line[3:]
