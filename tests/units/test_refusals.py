"""Models that unit probes would get wrong: followed exactly, probed as weights, or refused."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cocd


class Model(nn.Module):
    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.body = forward

    def forward(self, x):
        return self.body(self, x)


def data(n=8):
    generator = torch.Generator().manual_seed(1)
    return (torch.randn(n, w, generator=generator, dtype=torch.float64) for w in (4, 3))


def check(model, x, y, loss_fn=F.mse_loss):
    """The gradient is autograd's, and so is the loss."""
    model = model.double()
    loss = loss_fn(model(x), y)
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    expected = torch.autograd.grad(loss, [p for _, p in named])
    gradient = cocd.UnitGradient(cocd.trace(model, loss_fn), difference="central", eps=1e-5)
    found = gradient(gradient.objective(x, y))
    torch.testing.assert_close(found, loss.detach())
    for (name, p), slope in zip(named, expected, strict=True):
        torch.testing.assert_close(p.grad, slope, rtol=1e-6, atol=1e-8, msg=name)
    return gradient


def refuse(model, x, y, match, loss_fn=F.mse_loss):
    """A sentence, and nothing has changed."""
    model = model.double()
    before = copy.deepcopy(model.state_dict())
    places = [p.data_ptr() for p in model.parameters()]
    gradient = cocd.UnitGradient(cocd.trace(model, loss_fn))
    with pytest.raises(ValueError, match=match):
        gradient(gradient.objective(x, y))
    for name, values in model.state_dict().items():
        assert torch.equal(values, before[name]), name
    assert places == [p.data_ptr() for p in model.parameters()]
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("shift", [1, 2, 4])
def test_samples_that_are_coupled_at_any_distance_are_refused(shift):
    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.b(h * h.roll(shift, 0))

    model = Model(forward, a=nn.Linear(4, 6), b=nn.Linear(6, 3))
    refuse(model, *data(), "samples are coupled")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("samples", [2, 7, 16])
def test_two_samples_that_are_coupled_among_many_are_refused(samples, seed):
    one, other = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))[:2]

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.b(h.index_add(0, one[None], h[other][None]))

    model = Model(forward, a=nn.Linear(4, 6), b=nn.Linear(6, 3))
    x, y = torch.randn(samples, 4).double(), torch.randn(samples, 3).double()
    refuse(model, x, y, "samples are coupled")


def frozen(norm, *names):
    for name in names:
        getattr(norm, name).requires_grad_(False)
    return norm


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm1d(6, affine=False),
        frozen(nn.BatchNorm1d(6), "weight", "bias"),
        frozen(nn.BatchNorm1d(6), "weight"),
        frozen(nn.BatchNorm1d(6), "bias"),
    ],
)
def test_statistics_of_a_batch_norm_pull_whatever_of_it_is_trained(norm):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), copy.deepcopy(norm), nn.Tanh(), nn.Linear(6, 3))
    gradient = check(model, *data(16))
    assert "weights" not in gradient.explain()


def test_a_batch_norm_that_is_called_twice_is_refused():
    def forward(self, x):
        return self.b(torch.tanh(self.n(self.a(x))) + self.n(x))

    model = Model(forward, a=nn.Linear(4, 4), n=nn.BatchNorm1d(4), b=nn.Linear(4, 3))
    refuse(model, *data(), "called twice")
    check(model.eval(), *data())


@pytest.mark.parametrize("change", [nn.Dropout(0.5, inplace=True), nn.ReLU(inplace=True)])
def test_what_is_written_in_place_and_read_again_is_refused(change):
    def forward(self, x):
        h = self.a(x)
        return self.b(torch.tanh(self.c(h)) + h)

    model = Model(forward, a=nn.Linear(4, 8), b=nn.Linear(8, 3), c=change)
    refuse(model, *data(), "read again|does not repeat itself")


def test_a_dropout_in_place_is_followed_where_its_input_is_not_read_again():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5, inplace=True), nn.Linear(8, 3))
    model = model.double()
    x, y = data()
    torch.manual_seed(3)
    loss = F.mse_loss(model(x), y)
    gradient = cocd.UnitGradient(cocd.trace(model, F.mse_loss))
    torch.manual_seed(3)
    torch.testing.assert_close(gradient(gradient.objective(x, y)), loss.detach())


@pytest.mark.parametrize("masked", ["no", "causal", "bool", "float"])
def test_dropout_inside_attention_is_that_of_the_model_and_is_shared_by_all_probes(masked):
    def forward(self, x):
        q, k, v = self.project(x.view(len(x), 2, 2)).chunk(3, -1)
        keep = torch.ones(2, 2, dtype=torch.bool).tril()
        mask = {"bool": keep, "float": keep.double().log()}.get(masked)
        seen = F.scaled_dot_product_attention(q, k, v, mask, 0.3, is_causal=masked == "causal")
        return self.head(seen.flatten(1))

    x, y = data()
    model = Model(forward, project=nn.Linear(2, 6), head=nn.Linear(4, 3)).double()
    torch.manual_seed(3)
    loss = F.mse_loss(model(x), y)
    expected = torch.autograd.grad(loss, list(model.parameters()))
    objective = cocd.trace(model, F.mse_loss)
    gradient = cocd.UnitGradient(objective, difference="central", eps=1e-5)
    torch.manual_seed(3)
    torch.testing.assert_close(gradient(objective(x, y)), loss.detach())
    head = dict(zip(dict(model.named_parameters()), expected, strict=True))
    torch.testing.assert_close(model.head.weight.grad, head["head.weight"], rtol=1e-6, atol=1e-8)
    assert model.project.weight.grad.any()


@pytest.mark.parametrize(
    ("directions", "what"), [(None, "at most 3, .*units"), (2, "at most 1, .*layers")]
)
def test_a_compute_budget_above_what_there_is_is_refused(directions, what):
    objective = cocd.trace(nn.Linear(4, 3).double(), F.mse_loss)
    gradient = cocd.UnitGradient(objective, directions=directions, compute_budget=4)
    with pytest.raises(ValueError, match=f"compute_budget must be {what}, got 4"):
        gradient(objective(*data()))
    assert all(p.grad is None for p in objective.model.parameters())


def test_a_penalty_that_is_added_in_place_is_noticed():
    model = nn.Linear(4, 3)

    def loss_fn(out, y):
        loss = F.mse_loss(out, y)
        loss += 1e-6 * model.weight.square().sum()
        return loss

    refuse(model, *data(), "not known to be a mean or a sum", loss_fn)


def test_losses_of_samples_that_miss_a_small_penalty_are_refused():
    model = nn.Linear(4, 3).double()
    x, y = data()

    def loss_fn(out, y):
        return F.mse_loss(out, y) + 1e-5 * model.weight.square().sum()

    gradient = cocd.UnitGradient(
        cocd.trace(model, loss_fn), sample_losses=lambda out, y: (out - y).square().mean(1)
    )
    with pytest.raises(ValueError, match="neither their mean nor their sum"):
        gradient(gradient.objective(x, y))


def copied(self, x):
    with torch.no_grad():
        self.a.weight.copy_(F.normalize(self.a.weight))
    return self.a(x)


def replaced(self, x):
    self.a.weight.data = F.normalize(self.a.weight.data)
    return self.a(x)


def written_through_data(self, x):
    self.a.weight.data.mul_(0.5)
    return self.a(x)


@pytest.mark.parametrize("forward", [copied, replaced, written_through_data])
def test_a_forward_that_writes_to_its_parameters_is_refused(forward):
    refuse(Model(forward, a=nn.Linear(4, 3)), *data(), "writes to its parameter a.weight")


def test_an_embedding_with_a_largest_norm_is_refused():
    def forward(self, x):
        return self.b(self.e(x).sum(1))

    model = Model(forward, e=nn.Embedding(9, 4, max_norm=0.7), b=nn.Linear(4, 3))
    tokens = torch.arange(16).view(8, 2) % 9
    refuse(model, tokens, list(data())[1], "writes to its parameter e.weight")


def test_a_complex_parameter_is_refused():
    def forward(self, x):
        return self.b((x.to(torch.complex128) @ self.w).abs())

    w = nn.Parameter(torch.randn(4, 4, dtype=torch.complex128))
    model = Model(forward, w=w, b=nn.Linear(4, 3, dtype=torch.float64))
    x, y = data()
    gradient = cocd.UnitGradient(cocd.trace(model, F.mse_loss))
    with pytest.raises(ValueError, match="parameter w is complex"):
        gradient(gradient.objective(x, y))


@pytest.mark.parametrize(
    ("forward", "shape"),
    [
        (lambda self, x: self.b(x) * self.w, ()),
        (lambda self, x: self.b(x) + self.w, ()),
        (lambda self, x: self.b(torch.tanh(x + self.w.expand(len(x), -1))), (1, 4)),
        (lambda self, x: self.b(x * self.w), (8, 1)),
        (lambda self, x: self.b(x * self.w), (1,)),
    ],
)
def test_parameters_of_unusual_shapes_get_their_slopes(forward, shape):
    torch.manual_seed(0)
    model = Model(forward, w=nn.Parameter(torch.randn(shape)), b=nn.Linear(4, 3))
    check(model, *data())


def test_a_pass_of_a_weight_probe_does_not_replace_the_recording():
    # Forward differences divide what the statistics of another point would add by a tiny step.
    torch.manual_seed(0)
    model = Model(
        lambda self, x: self.b(torch.tanh(self.n(self.a(x * self.w)))),
        a=nn.Linear(4, 6), n=nn.BatchNorm1d(6, eps=1.0), b=nn.Linear(6, 3),
        w=nn.Parameter(torch.tensor(0.7)),
    ).double()  # fmt: skip
    x, y = data(16)
    expected = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
    gradient = cocd.UnitGradient(cocd.trace(model, F.mse_loss), eps=1e-6)
    gradient(gradient.objective(x, y))
    for p, slope in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, slope, rtol=1e-3, atol=1e-5)


def test_one_slope_for_all_units_gets_its_slope():
    torch.manual_seed(0)
    check(nn.Sequential(nn.Linear(4, 6), nn.PReLU(), nn.Linear(6, 3)), *data())
