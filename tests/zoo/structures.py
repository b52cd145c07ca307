"""Perceptrons, and models whose structure is the difficulty."""

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case, Net, classifier, image, labels

_NO_RULE = "without a rule"


def mlp():
    layers = [nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)]
    return Case(nn.Sequential(*layers), nn.MSELoss(), torch.randn(8, 4), torch.randn(8, 2))


def mlp_of_functions():
    def forward(m, x):
        x = x.view(x.size(0), -1)
        x = F.gelu(input=m.a(x))
        x = x.reshape(x.shape[0], 2, x.size(1) // 2).mean(1)
        return F.log_softmax(m.b(torch.sigmoid(2 * x - 1) ** 2), dim=1)

    model = Net(forward, a=nn.Linear(6, 8), b=nn.Linear(4, 3))
    return Case(model, F.nll_loss, torch.randn(5, 2, 3), labels(5, 3))


def batch_norm_1d():
    layers = [nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)]
    return classifier(*layers, x=torch.randn(8, 4))


def layer_norm():
    layers = [nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Unflatten(1, (2, 3))]
    layers += [nn.LayerNorm((2, 3)), nn.Flatten(), nn.Linear(6, 3), nn.Softmax(1)]
    return classifier(*layers, x=torch.randn(5, 4))


def prelu():
    layers = [nn.Conv2d(2, 3, 3), nn.PReLU(3), nn.Flatten(), nn.Linear(12, 4), nn.PReLU()]
    return classifier(*layers, nn.Linear(4, 3), x=image(2, 4))


def dropout():
    def forward(m, x):
        x = m.channels(m.conv(x))
        x = m.units(torch.relu(x)).flatten(1)
        return m.b(F.dropout(m.a(x), 0.4, training=m.training))

    layers = dict(conv=nn.Conv2d(1, 3, 3), channels=nn.Dropout2d(0.3), units=nn.Dropout(0.2))
    model = Net(forward, a=nn.Linear(12, 5), b=nn.Linear(5, 3), **layers)
    return Case(model, nn.CrossEntropyLoss(), image(1, 4, 6), labels(6, 3))


def randomness_without_a_rule():
    def forward(m, x):
        x = m.a(x)
        return m.b(m.noise(x + 0.1 * torch.rand_like(x)))

    model = Net(forward, a=nn.Linear(4, 6), b=nn.Linear(6, 3), noise=nn.AlphaDropout(0.3))
    return Case(model, nn.CrossEntropyLoss(), torch.randn(6, 4), labels(6, 3))


def in_place():
    def forward(m, x):
        x = F.relu(m.a(x), inplace=True)
        y = m.act(m.b(x))
        y += x
        y.mul_(0.5)
        return m.c(y).tanh_()

    layers = dict(a=nn.Linear(4, 5), b=nn.Linear(5, 5), act=nn.ELU(inplace=True))
    model = Net(forward, c=nn.Linear(5, 2), **layers)
    return Case(model, nn.MSELoss(), torch.randn(6, 4), torch.randn(6, 2))


class _Affine(nn.Module):
    """Parameters of its own, used by operators."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.scale = nn.Parameter(torch.ones(3))
        self.shift = nn.Parameter(torch.zeros(1))
        self.register_buffer("mean", torch.tensor([0.1, 0.2, 0.3, 0.4]))

    def forward(self, x):
        return torch.clamp((x - self.mean) @ self.weight.T * self.scale - self.shift, -3, 3)


def bare_parameters():
    model = nn.Sequential(nn.Linear(4, 4), _Affine(), nn.Tanh(), nn.Linear(3, 2))
    return Case(model, nn.MSELoss(), torch.randn(6, 4), torch.randn(6, 2))


def one_layer():
    return Case(nn.Linear(4, 3), nn.CrossEntropyLoss(), torch.randn(6, 4), labels(6, 3))


def parametrised():
    layers = [nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 3)]
    expected = {"0.*": _NO_RULE, "*": "incremental"}
    return classifier(*layers, x=torch.randn(6, 4))._replace(expected=expected)


def tied_weights():
    def forward(m, x):
        code = torch.tanh(m.inner(torch.tanh(m.inner(m.encode(x)))))
        return F.linear(code, m.encode.weight.T, m.bias)

    layers = dict(encode=nn.Linear(4, 3), inner=nn.Linear(3, 3), bias=nn.Parameter(torch.zeros(4)))
    x = torch.randn(6, 4)
    expected = {"*": "incremental"}
    return Case(Net(forward, **layers), nn.MSELoss(), x, x, expected)


class _Two(nn.Module):
    """Two inputs, one of them of another kind, and an option."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Conv1d(2, 4, 3)
        self.out = nn.Bilinear(4, 4, 2)

    def forward(self, left, right, scale=None):
        right = self.right(right).amax(2)
        if scale is not None:
            right = right * scale
        return self.out(torch.tanh(self.left(left)), right)


_BILINEAR = {"out.*": _NO_RULE, "*": "incremental"}


def two_inputs():
    inputs = (torch.randn(5, 3), torch.randn(5, 2, 6))
    return Case(_Two(), nn.MSELoss(), inputs, torch.randn(5, 2), _BILINEAR)


def named_inputs():
    inputs = {"right": torch.randn(5, 2, 6), "left": torch.randn(5, 3), "scale": torch.rand(5, 1)}
    return Case(_Two(), nn.MSELoss(), inputs, torch.randn(5, 2), _BILINEAR)


def two_outputs():
    def forward(m, x):
        x = torch.relu(m.body(x))
        return m.value(x), m.policy(x)

    def loss(outputs, target):
        return F.mse_loss(outputs[0], target[0]) + F.cross_entropy(outputs[1], target[1])

    layers = dict(body=nn.Linear(4, 5), value=nn.Linear(5, 1), policy=nn.Linear(5, 3))
    target = (torch.randn(6, 1), labels(6, 3))
    return Case(Net(forward, **layers), loss, torch.randn(6, 4), target)


def named_outputs():
    def forward(m, x):
        low, high = torch.split(m.body(x), [2, 3], dim=1)
        return {"low": low, "high": (m.head(high), high), "x": x}

    def loss(outputs, target):
        gap = outputs["low"] - target["low"]
        return gap.abs().mean() + outputs["high"][0].pow(2).mean() + outputs["high"][1].var()

    model = Net(forward, body=nn.Linear(4, 5), head=nn.Linear(3, 2))
    return Case(model, loss, torch.randn(6, 4), {"low": torch.randn(6, 2)})


def control_flow():
    def forward(m, x):
        x = torch.tanh(m.a(x))
        return m.b(x) if x.sum() > 0 else m.c(x)

    model = Net(forward, a=nn.Linear(4, 5), b=nn.Linear(5, 2), c=nn.Linear(5, 2))
    return Case(model, nn.MSELoss(), torch.randn(6, 4), torch.randn(6, 2))


def control_flow_on_shapes():
    def forward(m, x):
        steps = len(x.shape)
        for _ in range(steps):
            x = torch.tanh(m.a(x))
        return m.b(m.drop(m.norm(x)))

    layers = dict(a=nn.Linear(4, 4), norm=nn.BatchNorm1d(4), drop=nn.Dropout(0.3))
    model = Net(forward, b=nn.Linear(4, 2), **layers)
    return Case(model, nn.MSELoss(), torch.randn(6, 4), torch.randn(6, 2))


def one_sample_without_a_batch():
    layers = [nn.Conv2d(2, 3, 2, padding=1), nn.ReLU(), nn.MaxPool2d(2, 1), nn.AvgPool2d(2, 1)]
    layers += [nn.Conv2d(3, 2, 1), nn.Tanh(), nn.Flatten(0), nn.Linear(8, 3), nn.LayerNorm(3)]
    expected = {"0.*": _NO_RULE, "4.*": _NO_RULE, "*": "incremental"}
    x, target = torch.randn(2, 3, 3), torch.tensor(1)
    return Case(nn.Sequential(*layers), nn.CrossEntropyLoss(), x, target, expected)


def hooked():
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    model[1].register_forward_hook(lambda module, args, out: out * 2)
    return Case(model, nn.MSELoss(), torch.randn(6, 4), torch.randn(6, 2))
