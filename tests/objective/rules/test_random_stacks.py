"""Property-based: random stacks of layers that have rules are followed, and rightly."""

import pytest
import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import cocd
from cocd.objective.closure import sequential
from cocd.parts.evaluation import Evaluations

ACTIVATIONS = (
    nn.Tanh, nn.ReLU, nn.GELU, nn.ELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.LeakyReLU, nn.Hardtanh,
    nn.Softsign, nn.PReLU, nn.Identity,
)  # fmt: skip
MODES = ("zeros", "reflect", "replicate", "circular")
LOSSES = {
    "mse": (nn.MSELoss(), lambda y: torch.zeros_like(y)),
    "l1": (nn.L1Loss(), lambda y: torch.full_like(y, 0.3)),
    "cross entropy": (nn.CrossEntropyLoss(label_smoothing=0.1), lambda y: torch.arange(len(y)) % 2),
    "labels": (nn.CrossEntropyLoss(), lambda y: torch.arange(len(y)) % 2),
    "logits": (nn.BCEWithLogitsLoss(reduction="sum"), lambda y: torch.full_like(y, 0.7)),
    "unknown": (lambda y, target: (y - target).abs().pow(1.5).mean(), torch.ones_like),
}


class Around(nn.Module):
    """A stack, and its input beside it: added, multiplied as a gate, or concatenated."""

    def __init__(self, how, inner):
        super().__init__()
        self.how, self.inner = how, inner

    def forward(self, x):
        y = self.inner(x)
        if self.how == "add":
            return x + y
        return torch.cat([y, x], 1) if self.how == "cat" else x * torch.sigmoid(y)


class Shape(nn.Module):
    """A change of shape alone."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x):
        if self.how == "tokens":  # (N, C, ...) -> (N, positions, C)
            return x.flatten(2).transpose(1, 2)
        if self.how == "swap":
            return x.permute(0, 2, 1).contiguous()
        if self.how == "last":
            return x[:, -1]
        return x.mean(dim=1) if self.how == "over tokens" else x.mean((2, 3))


class Attention(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(features, heads, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def convolution(draw, shape, *, same=False):
    """(layer, shape behind it), of any stride, dilation, groups and padding that fit."""
    C, *space = shape
    kind = nn.Conv2d if len(space) == 2 else nn.Conv1d
    groups = draw(st.sampled_from([g for g in (1, 2, 4) if C % g == 0]))
    out = C if same else groups * draw(st.integers(1, 2 if groups > 1 else 4))
    if same:
        layer = kind(C, out, 3, padding=1, groups=groups, bias=draw(st.booleans()))
    else:
        dilation = draw(st.integers(1, 2))
        size = draw(st.integers(1, max(1, min(3, (min(space) - 1) // dilation + 1))))
        padding = draw(st.integers(0, min(space) - 1)) if min(space) > 1 else 0
        layer = kind(
            C, out, size, stride=draw(st.integers(1, 2)), padding=min(padding, 2),
            dilation=dilation, groups=groups, padding_mode=draw(st.sampled_from(MODES)),
        )  # fmt: skip
    return layer, measure(layer, shape)


def measure(layer, shape):
    layer.eval()
    with torch.no_grad():
        found = tuple(layer(torch.zeros(4, *shape)).shape[1:])
    layer.train()
    return found


def image_layer(draw, shape):
    C, H, W = shape
    kinds = ["convolution", "activation", "batch norm", "dropout", "group norm", "residual", "cat"]
    kinds += ["up"] if H * W <= 9 else []
    kinds += ["pool", "pad", "instance norm"] if min(H, W) > 1 else []
    kind = draw(st.sampled_from(kinds))
    if kind == "convolution":
        return convolution(draw, shape)[0]
    if kind in ("residual", "cat"):
        inner, _ = convolution(draw, shape, same=True)
        how = draw(st.sampled_from(["add", "gate"])) if kind == "residual" else "cat"
        return Around(how, nn.Sequential(inner, draw(st.sampled_from(ACTIVATIONS))()))
    one_of = {
        "activation": [draw(st.sampled_from(ACTIVATIONS))(), nn.PReLU(C)],
        "batch norm": [nn.BatchNorm2d(C), nn.BatchNorm2d(C, affine=False)],
        "group norm": [nn.GroupNorm(1, C), nn.GroupNorm(2 - C % 2, C)],
        "instance norm": [nn.InstanceNorm2d(C, affine=True)],
        "dropout": [nn.Dropout(0.3), nn.Dropout2d(0.3)],
        "pool": [nn.MaxPool2d(2), nn.AvgPool2d(2, 1), nn.AdaptiveAvgPool2d(2), nn.MaxPool2d(2, 1)],
        "pad": [nn.ZeroPad2d((1, 0, 0, 1)), nn.ReflectionPad2d(1)],
        "up": [nn.Upsample(scale_factor=2), nn.ConvTranspose2d(C, 2, 2, stride=2)],
    }
    return draw(st.sampled_from(one_of[kind]))


def signal_layer(draw, shape):
    C, L = shape
    kinds = ["convolution", "activation", "batch norm", *(["pool"] if L > 1 else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "convolution":
        return convolution(draw, shape)[0]
    one_of = {
        "activation": [draw(st.sampled_from(ACTIVATIONS))()],
        "batch norm": [nn.BatchNorm1d(C)],
        "pool": [nn.MaxPool1d(2), nn.AvgPool1d(2, 1), nn.AdaptiveMaxPool1d(2)],
    }
    return draw(st.sampled_from(one_of[kind]))


def token_layer(draw, shape):
    T, D = shape
    heads = draw(st.sampled_from([h for h in (1, 2) if D % h == 0]))
    mixer = nn.Sequential(Shape("swap"), nn.Linear(T, T), nn.Tanh(), Shape("swap"))
    layers = [Attention(D, heads), Around("add", Attention(D, heads)), Around("add", mixer)]
    layers += [nn.Linear(D, draw(st.integers(1, 4))), draw(st.sampled_from(ACTIVATIONS))()]
    return draw(st.sampled_from([*layers, *([nn.LayerNorm(D)] if D > 1 else [])]))


def unit_layer(draw, shape):
    (D,) = shape
    gate = Around("gate", nn.Linear(D, D))
    layers = [nn.Linear(D, draw(st.integers(2, 6))), draw(st.sampled_from(ACTIVATIONS))(), gate]
    layers += [nn.BatchNorm1d(D), nn.Dropout(0.3), Around("cat", nn.Linear(D, 2))]
    return draw(st.sampled_from([*layers, *([nn.LayerNorm(D)] if D > 1 else [])]))


@st.composite
def stacks(draw):
    """A model that ends in at least two units, and a batch for it."""
    torch.manual_seed(draw(st.integers(0, 10**6)))
    start = draw(st.sampled_from(["image", "signal", "tokens", "units"]))
    shape = {"image": (2, 5, 4), "signal": (2, 6), "tokens": (3, 4), "units": (4,)}[start]
    x = torch.randn(4, *shape, dtype=torch.float64)
    layers = []

    def add(layer):
        nonlocal shape
        layers.append(layer)
        shape = measure(layer, shape)

    if start in ("image", "signal"):
        for _ in range(draw(st.integers(1, 4))):
            add((image_layer if start == "image" else signal_layer)(draw, shape))
        ends = ["flatten", *(["tokens"] if shape[0] > 1 else [])]
        end = draw(st.sampled_from([*ends, *(["mean"] if start == "image" else [])]))
        add(nn.Flatten() if end == "flatten" else Shape(end))
    if len(shape) == 2:
        for _ in range(draw(st.integers(1, 3))):
            add(token_layer(draw, shape))
        add(draw(st.sampled_from([nn.Flatten(), Shape("over tokens"), Shape("last")])))
    for _ in range(draw(st.integers(0, 3))):
        add(unit_layer(draw, shape))
    add(nn.Linear(shape[0], draw(st.integers(2, 3))))
    model = nn.Sequential(*layers).double()
    return model.train(draw(st.booleans())), x


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    stack=stacks(),
    loss=st.sampled_from(sorted(LOSSES)),
    difference=st.sampled_from(["central", "forward", "backward"]),
)
def test_random_stacks_are_followed(stack, loss, difference):
    model, x = stack
    loss_fn, make = LOSSES[loss]
    with torch.no_grad():
        target = make(F.linear(model(x), torch.eye(len(model[-1].bias), dtype=x.dtype)))
    objective = cocd.trace(model, loss_fn)
    closure = objective(x, target)
    index = {name: torch.randperm(p.numel())[:3].tolist() for name, p in model.named_parameters()}
    results = []
    for of in (sequential, closure.differences):
        torch.manual_seed(0)
        with Evaluations(closure, None, (), lambda count: None) as evaluate:
            base = evaluate(prepare=True)
            results.append(
                {
                    name: of(evaluate, base, p, index[name], 0.1, difference).first
                    for name, p in model.named_parameters()
                }
            )
    event(f"{len(model)} layers")
    for name, record in objective._records.items():
        assert objective.engine_of(name) == "incremental"
        assert not record.plan.rule.startswith("vmap"), name
    expected, found = results
    # A normalisation divides by what may be rounding alone, at most by 3e-3.
    noise = 1e-12 * max(1, abs(base))
    for name, first in expected.items():
        atol = 1e-9 * first.abs().max().item() + noise
        assert (found[name] - first).abs().max().item() <= atol, name
    assert base == pytest.approx(base)
