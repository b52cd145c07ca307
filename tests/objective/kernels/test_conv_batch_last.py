"""The loops that have the samples last: 3x3 convolution, 2x2 max-pooling, activation."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import cocd
from cocd.objective.kernels import conv_batch_last, fusion
from cocd.objective.kernels import dispatch as kernels
from cocd.parts.evaluation import Evaluations

pytestmark = pytest.mark.skipif(not kernels.available(), reason="numba is not installed")
EPS = 0.1


def conv(inputs, outputs, **options):
    return nn.Conv2d(inputs, outputs, 3, **{"padding": 1, **options})


def stack(activation=nn.Tanh, side=9, **options):
    """Two such layers, one without an activation of its own behind it, and a head."""
    first = conv(2, 3, **options)
    with torch.no_grad():
        features = F.max_pool2d(F.max_pool2d(first(torch.zeros(1, 2, side, side)), 2), 2)
    inner = nn.Sequential(conv(3, 5), activation(), nn.MaxPool2d(2))
    size = 5 * features.shape[2] * features.shape[3]
    return nn.Sequential(
        first, activation(), nn.MaxPool2d(2), inner, nn.Flatten(), nn.Linear(size, 4)
    )


def pooled_only():
    return nn.Sequential(conv(2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48, 4))


def averaged():
    """No linear layer right behind the last convolution."""
    return nn.Sequential(
        conv(2, 3), nn.SiLU(), nn.MaxPool2d(2), conv(3, 6), nn.Tanh(), nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4),
    )  # fmt: skip


class Function(nn.Module):
    """The flattening as a function; a second reader of what is behind the first layer."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.pool = conv(2, 3), conv(3, 4), nn.MaxPool2d(2)
        self.head, self.side = nn.Linear(16, 4), nn.Linear(48, 4)

    def forward(self, x):
        x = self.pool(torch.relu(self.a(x)))
        y = self.pool(torch.tanh(self.b(x)))
        return self.head(torch.flatten(y, 1)) + self.side(x.flatten(1))


class Beside(nn.Module):
    """A branch that is computed between the links of a chain, and reads some channels alone."""

    def __init__(self):
        super().__init__()
        self.stem, self.a, self.pool = conv(2, 6), conv(6, 3), nn.MaxPool2d(2)
        self.tail, self.side = nn.Linear(48, 4), nn.Linear(128, 4)

    def forward(self, x):
        z = torch.sigmoid(self.stem(x))
        y = torch.flatten(torch.tanh(self.pool(self.a(z))), 1)
        beside = self.side(torch.flatten(z[:, 1:3], 1))
        return self.tail(y) + beside


def pooled_to_one():
    """The linear layer behind the convolution begins a chain of its own."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.MaxPool2d((2,)), nn.Tanh(), nn.Flatten(), nn.Linear(4, 40),
        nn.Tanh(), nn.Linear(40, 4),
    )  # fmt: skip


MODELS = {
    "beside": (Beside, 8),
    "pooled to one": (pooled_to_one, 4),
    "tanh": (stack, 9),
    "relu": (lambda: stack(nn.ReLU), 9),
    "silu": (lambda: stack(nn.SiLU), 9),
    "gelu": (lambda: stack(nn.GELU), 9),
    "no padding": (lambda: stack(padding=0, side=10), 10),
    "same": (lambda: stack(padding="same", side=8), 8),
    "valid": (lambda: stack(padding="valid", side=11), 11),
    "wide padding": (lambda: stack(padding=(2, 1), side=8), 8),
    "no bias": (lambda: stack(bias=False), 9),
    "pooled only": (pooled_only, 8),
    "averaged": (averaged, 8),
    "functions": (Function, 8),
}


def truth(model, x, y, loss_fn, name, index):
    """In float64, at the weights that float32 really has."""
    wide = copy.deepcopy(model).double()
    weight = wide.get_parameter(name)
    flat, narrow = weight.detach().view(-1), model.get_parameter(name).detach().view(-1)
    found = []

    def loss():
        with torch.no_grad():
            return float(loss_fn(wide(x.double()), y if y.dtype == torch.long else y.double()))

    middle = loss()
    for i in index:
        old = float(flat[i])
        values = []
        for end in (narrow[i] + EPS, narrow[i] - EPS):
            flat[i] = end.double()
            values.append(loss() - middle)
        flat[i] = old
        found.append([values[0] - values[1], values[0] + values[1]])
    return torch.tensor(found, dtype=torch.float64).T


TOLERANCES = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-7},
    torch.float64: {"rtol": 1e-12, "atol": 1e-14},
}


def assert_exact(model, x, y, loss_fn=F.cross_entropy, count=12):
    objective = cocd.trace(model, loss_fn, engine="incremental")
    closure = objective(x, y)
    for name, p in model.named_parameters():
        index = torch.randperm(p.numel())[:count].tolist()
        with Evaluations(closure, None, (), lambda _: None) as evaluate:
            loss = evaluate(prepare=True)
            found = closure.differences(evaluate, loss, p, index, EPS, "central")
        first, second = truth(model, x, y, loss_fn, name, index)
        for got, expected in ((found.first, first), (found.second, second)):
            torch.testing.assert_close(got, expected, **TOLERANCES[x.dtype])


@pytest.fixture
def used(monkeypatch):
    """Which of the two ways into the loops were taken."""
    taken = set()
    for name in ("enter", "flow"):
        original = getattr(conv_batch_last, name)

        def counted(*args, name=name, original=original):
            result = original(*args)
            if result is not None:
                taken.add(name)
            return result

        monkeypatch.setattr(fusion.conv_batch_last, name, counted)
    return taken


@pytest.mark.parametrize(
    ("samples", "dtype"), [(16, torch.float32), (37, torch.float64), (130, torch.float32)]
)
@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_against_float64(name, samples, dtype, used):
    torch.manual_seed(0)
    make, side = MODELS[name]
    model = make().to(dtype)
    x, y = torch.randn(samples, 2, side, side, dtype=dtype), torch.randint(4, (samples,))
    assert_exact(model, x, y)
    if name in ("silu", "gelu"):  # not monotone, so they cannot go behind the pooling
        assert not used
    else:
        alone = name in ("pooled only", "pooled to one")
        assert used == ({"enter"} if alone else {"enter", "flow"})


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_small_batch_takes_the_other_loops(used, dtype):
    torch.manual_seed(0)
    x, y = torch.randn(15, 2, 9, 9, dtype=dtype), torch.randint(4, (15,))
    assert_exact(stack().to(dtype), x, y)
    assert not used


def test_probes_of_several_channels_go_together(used):
    """A block that ends in another channel than it begins in."""
    torch.manual_seed(0)
    model, x, y = stack(), torch.randn(20, 2, 9, 9), torch.randint(4, (20,))
    assert_exact(model, x, y, count=100)
    assert used == {"enter", "flow"}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_cross_entropy_near_and_far(scale, dtype):
    torch.manual_seed(0)
    base, d = torch.randn(33, 7, dtype=dtype) * 3, torch.randn(5, 33, 7, dtype=dtype) * scale
    labels = torch.randint(7, (33,))
    wide = [F.cross_entropy(base.double() + e.double(), labels, reduction="sum") for e in d]
    expected = torch.stack(wide) - F.cross_entropy(base.double(), labels, reduction="sum")
    near = 3e-6 if dtype is torch.float32 else 1e-13
    torch.testing.assert_close(
        kernels.cross_entropy(d, base, labels), expected, rtol=near, atol=near * max(1, scale)
    )


def test_cross_entropy_of_what_is_not_finite():
    base, labels = torch.zeros(16, 3), torch.zeros(16, dtype=torch.long)
    d = torch.zeros(3, 16, 3)
    d[1, 4, 2], d[2, 4, 1] = torch.nan, torch.inf
    found = kernels.cross_entropy(d, base, labels)
    assert found[0] == 0
    assert not found[1:].isfinite().any()


def test_threads_do_not_change_the_numbers():
    torch.manual_seed(0)
    model, x, y = stack(), torch.randn(64, 2, 9, 9), torch.randint(4, (64,))
    objective, before = cocd.trace(model, F.cross_entropy), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            estimate = cocd.CoherentGradient(model.parameters(), eps=EPS, compute_budget=100)
            for _ in range(3):
                estimate(objective(x, y))
            found.append(estimate.estimate())
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-7)


def test_the_memory_limit_holds():
    torch.manual_seed(0)
    model = nn.Sequential(conv(1, 32), nn.MaxPool2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(2048, 3))
    x, y = torch.randn(64, 1, 16, 16), torch.randint(3, (64,))
    objective = cocd.trace(model, F.cross_entropy, memory_limit=1 << 20)
    estimate = cocd.CoherentGradient([model[0].weight], eps=EPS, compute_budget=288)
    estimate(objective(x, y))
    assert objective._scratch.bytes < 3 << 20
