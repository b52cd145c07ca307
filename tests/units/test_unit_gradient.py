"""Slopes by unit probes against autograd's."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cocd


def autograd(model, loss_fn, x, y):
    loss = loss_fn(model(x), y)
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    found = torch.autograd.grad(loss, [p for _, p in named])
    return {name: g for (name, _), g in zip(named, found, strict=True)}


def grads(model):
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def mlp(*, seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 3)
    ).to(dtype)


def batch(n=16, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 5, generator=generator, dtype=dtype)
    y = torch.randn(n, 3, generator=generator, dtype=dtype)
    return x, y, torch.randint(0, 3, (n,), generator=generator)


WEIGHTS = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
LOSSES = {
    "mse": (F.mse_loss, "values"),
    "mse sum": (nn.MSELoss(reduction="sum"), "values"),
    "l1": (nn.L1Loss(), "values"),
    "huber": (nn.HuberLoss(delta=0.3), "values"),
    "smooth l1": (nn.SmoothL1Loss(beta=0.3), "values"),
    "cross-entropy": (F.cross_entropy, "labels"),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.1), "labels"),
    "weighted": (nn.CrossEntropyLoss(weight=WEIGHTS), "labels"),
    "ignoring": (nn.CrossEntropyLoss(ignore_index=1), "labels"),
    "weighted, ignoring": (nn.CrossEntropyLoss(weight=WEIGHTS, ignore_index=0), "labels"),
    "of one's own": (lambda out, y: F.cross_entropy(out, y, weight=WEIGHTS), "labels"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_of_an_mlp_equals_autograds(name):
    loss_fn, kind = LOSSES[name]
    model = mlp()
    x, values, labels = batch()
    y = values if kind == "values" else labels
    objective = cocd.trace(model, loss_fn)
    gradient = cocd.UnitGradient(objective, difference="central", eps=1e-5)
    expected = autograd(model, loss_fn, x, y)
    loss = gradient(objective(x, y))
    torch.testing.assert_close(loss, loss_fn(model(x), y).detach())
    for parameter, slope in grads(model).items():
        error = (slope - expected[parameter]).norm() / expected[parameter].norm()
        assert error < 1e-6, parameter
    assert gradient.units == 7 + 6 + 6 + 3
    assert gradient.evaluations == 1 + 2 * 22


@pytest.mark.parametrize("loss_fn", [F.soft_margin_loss, F.multilabel_soft_margin_loss])
def test_forward_differences_in_float32_come_close(loss_fn):
    model = mlp(dtype=torch.float32)
    x, y, _ = batch(dtype=torch.float32)
    y = (y > 0).float()
    objective = cocd.trace(model, loss_fn)
    gradient = cocd.UnitGradient(objective)
    expected = autograd(model, loss_fn, x, y)
    gradient(objective(x, y))
    assert gradient.evaluations == 1 + 22
    for parameter, slope in grads(model).items():
        error = (slope - expected[parameter]).norm() / expected[parameter].norm()
        assert error < 0.05, parameter


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        self.position = nn.Parameter(torch.randn(1, 4, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 9, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.layer(self.embedding(x) + self.position)).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, bidirectional=True)
        self.gru = nn.GRU(8, 3, batch_first=True)
        self.head = nn.Linear(3, 2)

    def forward(self, x):  # (N, T, 3)
        h = self.lstm(x.transpose(0, 1))[0].transpose(0, 1)
        return self.head(self.gru(h)[0][:, -1])


def images():
    return torch.randn(6, 2, 8, 8), torch.randint(0, 3, (6,)), F.cross_entropy


def tokens():
    return torch.randint(0, 9, (5, 4)), torch.randint(0, 9, (5, 4)), F.cross_entropy


def convolutional():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2), nn.GroupNorm(2, 4), nn.GELU(),
        nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1), nn.PReLU(2),
        nn.Flatten(), nn.Linear(18, 3),
    )  # fmt: skip


def normalised():
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(inplace=True),
        nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3, affine=False), nn.SiLU(),
        nn.Flatten(), nn.Linear(48, 3),
    )  # fmt: skip


CASES = {
    "convolutions": (convolutional, images, {}),
    "convolutions, directions": (convolutional, images, {"directions": 3}),
    "convolutions, several positions": (convolutional, images, {"positions": 3}),
    "batch norm": (normalised, images, {}),
    "batch norm, directions": (normalised, images, {"directions": 3}),
    "attention, tied weights": (Attention, tokens, {"directions": 2}),
    "recurrent": (
        Recurrent, lambda: (torch.randn(5, 4, 3), torch.randn(5, 2), F.mse_loss),
        {"directions": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_mean_over_draws_is_the_gradient(case):
    make, data, options = CASES[case]
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    try:
        model, (x, y, loss_fn) = make(), data()
    finally:
        torch.set_default_dtype(torch.float32)
    objective = cocd.trace(model, loss_fn)
    gradient = cocd.UnitGradient(objective, difference="central", **options)
    expected = autograd(model, loss_fn, x, y)
    draws = []
    for _ in range(60):
        gradient(objective(x, y))
        draws.append(torch.cat([grads(model)[name].flatten() for name in expected]))
    found = torch.stack(draws)
    expected = torch.cat([slope.flatten() for slope in expected.values()])
    noise = found.std(0) / len(found) ** 0.5
    off = (found.mean(0) - expected) / (noise + 1e-6)
    # Independent draws would have 1; slopes of one layer share theirs.
    assert off.square().mean().sqrt() < 1.8
    assert "weights" not in gradient.explain()


def test_scale_and_shift_of_a_norm_have_no_noise():
    torch.manual_seed(0)
    model = normalised().double()
    x, y = torch.randn(6, 2, 8, 8, dtype=torch.float64), torch.randint(0, 3, (6,))
    objective = cocd.trace(model, F.cross_entropy)
    gradient = cocd.UnitGradient(objective, difference="central")
    expected = autograd(model, F.cross_entropy, x, y)
    gradient(objective(x, y))
    for name in ("1.weight", "1.bias"):
        torch.testing.assert_close(grads(model)[name], expected[name], rtol=1e-5, atol=1e-8)


def test_stale_rows_decay_and_fresh_ones_take_their_place():
    model = mlp()
    x, y, _ = batch()
    objective = cocd.trace(model, F.mse_loss)
    gradient = cocd.UnitGradient(objective, compute_budget=9, decay=0.5, difference="central")
    expected = autograd(model, F.mse_loss, x, y)
    gradient(objective(x, y))
    first = grads(model)
    assert gradient.evaluations == 1 + 2 * 9
    torch.testing.assert_close(first["0.weight"], expected["0.weight"], rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(first["2.bias"][:2], expected["2.bias"][:2], rtol=1e-5, atol=1e-8)
    assert not first["2.bias"][2:].any() and not first["5.weight"].any()
    gradient(objective(x, y))
    second = grads(model)
    torch.testing.assert_close(second["0.weight"], first["0.weight"] / 2)
    torch.testing.assert_close(second["2.bias"][2:], expected["2.bias"][2:], rtol=1e-5, atol=1e-8)


def test_frozen_parameters_cost_nothing():
    model = mlp()
    model[0].requires_grad_(False)
    x, y, _ = batch()
    objective = cocd.trace(model, F.mse_loss)
    gradient = cocd.UnitGradient(objective)
    gradient(objective(x, y))
    assert gradient.units == 6 + 6 + 3
    assert model[0].weight.grad is None


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 4)
        self.power = nn.Parameter(torch.tensor([1.5, 2.0, 1.0, 0.5]))
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.first(x).sigmoid() ** self.power)


def test_parameters_without_a_rule_are_probed_as_weights():
    torch.manual_seed(0)
    model = Odd().double()
    x, y, _ = batch()
    objective = cocd.trace(model, F.mse_loss)
    gradient = cocd.UnitGradient(objective, difference="central")
    expected = autograd(model, F.mse_loss, x, y)
    gradient(objective(x, y))
    assert gradient.units == 4 + 3 + 4
    assert "no unit rule for pow" in gradient.explain()
    for name, slope in grads(model).items():
        torch.testing.assert_close(slope, expected[name], rtol=1e-5, atol=1e-7)


class Unseen(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 3)
        self.scale = nn.Parameter(torch.ones(3))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x):
        z = self.first(x).numpy() * self.scale.detach().numpy()  # out of torch's sight
        return torch.from_numpy(z) + 0 * x[:, :3]


def test_parameters_that_are_read_out_of_sight_are_probed_as_weights():
    torch.manual_seed(0)
    model = Unseen().double()
    x, y, _ = batch()
    objective = cocd.trace(model, F.mse_loss)
    gradient = cocd.UnitGradient(objective, difference="central")
    with torch.no_grad():
        expected = 2 * ((model(x) - y) * model.first(x)).mean(0) / 3
    gradient(objective(x, y))
    torch.testing.assert_close(model.scale.grad, expected, rtol=1e-5, atol=1e-8)
    assert "weights" in gradient.explain()
    assert not model.unused.grad.any()


def test_a_run_resumes_to_the_bit():
    x, y, _ = batch(dtype=torch.float32)
    options = {"compute_budget": 5, "decay": 0.9}

    def steps(model, gradient, objective, count):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(count):
            gradient(objective(x, y))
            optimizer.step()

    model = mlp(dtype=torch.float32)
    objective = cocd.trace(model, F.mse_loss)
    gradient = cocd.UnitGradient(objective, **options)
    steps(model, gradient, objective, 3)
    saved = copy.deepcopy(gradient.state_dict())
    other = copy.deepcopy(model)
    steps(model, gradient, objective, 3)
    again = cocd.trace(other, F.mse_loss)
    resumed = cocd.UnitGradient(again, **options)
    resumed.load_state_dict(saved)
    steps(other, resumed, again, 3)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    assert resumed.evaluations == gradient.evaluations


def test_randomness_and_buffers_advance_as_by_one_evaluation():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 3))
    twin = copy.deepcopy(model)
    x, y, _ = batch(dtype=torch.float32)
    objective = cocd.trace(model, F.mse_loss)
    gradient = cocd.UnitGradient(objective)
    torch.manual_seed(7)
    loss = gradient(objective(x, y))
    after = torch.get_rng_state()
    torch.manual_seed(7)
    expected = F.mse_loss(twin(x), y)
    assert torch.equal(after, torch.get_rng_state())
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(model[1].running_mean, twin[1].running_mean)
    assert model[1].num_batches_tracked == 1


def test_nothing_changes_where_a_pass_fails():
    model = Odd().double()
    x, y, _ = batch()
    objective = cocd.trace(model, F.mse_loss)
    gradient = cocd.UnitGradient(objective)
    gradient(objective(x, y))
    before, state = grads(model), copy.deepcopy(gradient.state_dict())
    weights = {n: p.detach().clone() for n, p in model.named_parameters()}
    calls = []

    def fail(*_):
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("out of order")

    handle = model.last.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of order"):
        gradient(objective(x, y))
    handle.remove()
    after = gradient.state_dict()
    assert torch.equal(after["random"], state["random"]) and after["cursor"] == state["cursor"]
    for name, slope in grads(model).items():
        assert torch.equal(slope, before[name])
    for name, p in model.named_parameters():
        assert torch.equal(p, weights[name])


class Coupled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, x):
        z = self.linear(x)
        return z - z.mean(0, keepdim=True)


def test_coupled_samples_are_refused():
    objective = cocd.trace(Coupled(), F.mse_loss)
    x, y, _ = batch(dtype=torch.float32)
    with pytest.raises(ValueError, match="samples are coupled"):
        cocd.UnitGradient(objective)(objective(x, y))


def test_a_loss_that_is_no_mean_over_samples_is_refused():
    model = mlp(dtype=torch.float32)
    x, y, _ = batch(dtype=torch.float32)
    objective = cocd.trace(model, lambda out, y: F.mse_loss(out, y).sqrt())
    with pytest.raises(ValueError, match="not known to be a mean or a sum"):
        cocd.UnitGradient(objective)(objective(x, y))
    with pytest.raises(ValueError, match="neither their mean nor their sum"):
        cocd.UnitGradient(objective, sample_losses=lambda o, t: (o - t).square().sum(1))(
            objective(x, y)
        )


def test_losses_of_samples_can_be_given():
    model = mlp()
    x, y, _ = batch()
    objective = cocd.trace(model, lambda out, y: (out - y).abs().pow(3).mean())
    gradient = cocd.UnitGradient(
        objective, difference="central", sample_losses=lambda out, y: (out - y).abs().pow(3)
    )
    expected = autograd(model, objective.loss_fn, x, y)
    gradient(objective(x, y))
    for name, slope in grads(model).items():
        torch.testing.assert_close(slope, expected[name], rtol=1e-5, atol=1e-8)


class Fragile(nn.Module):
    """Its third unit may not exceed what it is."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 4)
        self.last = nn.Linear(4, 3)
        self.limit = torch.inf

    def forward(self, x):
        z = self.linear(x)
        z = torch.stack([*z.unbind(1)[:3], z[:, 3] / (z[:, 3] <= self.limit)], 1)
        return self.last(z)


def test_slopes_of_a_unit_whose_probe_is_not_finite_stay_as_they_were():
    torch.manual_seed(0)
    model = Fragile().double()
    x, y, _ = batch()
    objective = cocd.trace(model, F.mse_loss)
    gradient = cocd.UnitGradient(objective)
    gradient(objective(x, y))
    before = grads(model)
    model.limit = model.linear(x)[:, 3].detach().max().item()
    with pytest.warns(cocd.NonFiniteWarning, match="older slopes stay"):
        for _ in range(4):  # until the largest is moved upwards
            gradient(objective(x, y))
    assert gradient.skipped
    assert all(slope.isfinite().all() for slope in grads(model).values())
    torch.testing.assert_close(
        grads(model)["linear.weight"][3], before["linear.weight"][3], rtol=1e-2, atol=1e-4
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [("directions", 0), ("compute_budget", 1.5), ("decay", 2), ("eps", 0), ("difference", "both")],
)
def test_arguments_are_checked(option, value):
    objective = cocd.trace(mlp(), F.mse_loss)
    with pytest.raises(ValueError, match=option):
        cocd.UnitGradient(objective, **{option: value})


def test_a_rule_of_ones_own():
    @cocd.rules.unit(torch.addcmul, arguments="input tensor1 tensor2", parameters={"tensor2": -1})
    def addcmul(call, slopes):
        return {"tensor2": (slopes * call["tensor1"]).flatten(0, -2).sum(0)}

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.randn(5, dtype=torch.float64))

        def forward(self, x):
            return torch.addcmul(x, x, self.scale).tanh()

    model = Scaled()
    x = batch()[0]
    objective = cocd.trace(model, F.mse_loss)
    gradient = cocd.UnitGradient(objective, difference="central")
    expected = autograd(model, F.mse_loss, x, x.flip(0))
    gradient(objective(x, x.flip(0)))
    assert gradient.units == 5
    torch.testing.assert_close(model.scale.grad, expected["scale"], rtol=1e-6, atol=1e-9)


def test_a_wrong_rule_is_found_out():
    @cocd.rules.unit(torch.addcdiv, arguments="input tensor1 tensor2", parameters={"tensor1": -1})
    def addcdiv(call, slopes):
        return {"tensor1": slopes.flatten(0, -2).sum(0)}

    class Divided(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.randn(5, dtype=torch.float64))

        def forward(self, x):
            return torch.addcdiv(x, self.scale, 1 + x.square())

    model = Divided()
    x = batch()[0]
    objective = cocd.trace(model, F.mse_loss)
    gradient = cocd.UnitGradient(objective, difference="central")
    expected = autograd(model, F.mse_loss, x, x.flip(0))
    with pytest.warns(cocd.EngineWarning, match="slopes disagree"):
        gradient(objective(x, x.flip(0)))
    torch.testing.assert_close(model.scale.grad, expected["scale"], rtol=1e-5, atol=1e-8)
