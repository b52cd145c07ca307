"""MeZO: weights stay exact in every precision, one tensor of memory, and runs replay from a log."""

import copy
import warnings

import pytest
import torch
from helpers import Raising, flat, frozen, parameters
from torch import nn
from torch.nn import functional as F

import cocd
from cocd import baselines


class Model(nn.Module):
    """Tied weights, layers called by others, views, and a parameter without a module."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.cell = nn.GRUCell(8, 8)
        self.hidden = nn.Linear(8, 8, bias=False)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        state = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        weight = self.hidden.weight.T.view(8, 8)  # not through the layer
        return self.head(torch.cat([state @ weight[:, :4], state[:, 4:]], 1) * self.scale.data)


def task(dtype=torch.float32):
    torch.manual_seed(0)
    model = Model().to(dtype)
    tokens, y = torch.randint(11, (5, 4)), torch.randint(11, (5,))
    return model, lambda: F.cross_entropy(model(tokens).float(), y)


def train(model, closure, steps=5, **options):
    optimizer = baselines.MeZO(model.parameters(), **{"lr": 1e-2, "eps": 1e-2, **options})
    losses = [float(optimizer.step(closure)) for _ in range(steps)]
    return optimizer, losses


class Keeping(baselines.ZOSGD):
    """The same directions, with x saved as a whole and perturbed in place."""

    _draw, _places = baselines.MeZO._draw, baselines.MeZO._places


@pytest.mark.parametrize("few", [True, False])
def test_layers_read_what_perturbing_in_place_would_give_them(few, monkeypatch):
    if not few:  # directions are not kept, and drawn in several chunks
        monkeypatch.setattr(baselines.MeZO, "_most_kept", 0)
        monkeypatch.setattr(cocd.optim.baselines.mezo, "_CHUNK", 16)
    model, closure = task()
    twin, twin_closure = task()
    optimizer, losses = train(model, closure, directions=3, seed=4)
    other = Keeping(twin.parameters(), lr=1e-2, eps=1e-2, directions=3, seed=4)
    assert losses == [float(other.step(twin_closure)) for _ in range(5)]
    assert frozen(list(model.parameters())) == frozen(list(twin.parameters()))
    assert optimizer.evaluations == 30


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_step_with_lr_zero_changes_no_weight(dtype):
    model, closure = task(dtype)
    before = frozen(list(model.parameters()))
    train(model, closure, lr=0.0, eps=1.0, weight_decay=0.1)
    assert frozen(list(model.parameters())) == before


def test_weights_do_not_move_while_the_closure_runs():
    model, closure = task()
    pointers = {name: (p.data_ptr(), frozen(p)) for name, p in model.named_parameters()}
    seen = []

    def watching():
        with torch._C.DisableTorchFunction():
            seen.append({n: (p.data_ptr(), frozen(p)) for n, p in model.named_parameters()})
        return closure()

    baselines.MeZO(model.parameters(), lr=0.1, eps=0.1).step(watching)
    assert seen == [pointers, pointers]


def test_what_hides_from_torch_functions_is_perturbed_in_place_and_restored():
    x = torch.ones(4, requires_grad=True)
    plain = torch.ones(4, requires_grad=True)
    view = x.detach()[:]  # made before the step: no function ever gets x
    optimizer = baselines.MeZO([x], lr=0.1, eps=0.1)
    twin = baselines.MeZO([plain], lr=0.1, eps=0.1)
    for _ in range(3):
        loss = optimizer.step(lambda: (view**2).sum())
        assert float(loss) == float(twin.step(lambda: (plain**2).sum()))
    assert torch.equal(x, plain)
    assert (optimizer.evaluations, twin.evaluations) == (7, 6)  # one to find out
    with pytest.raises(RuntimeError):
        optimizer.step(Raising(lambda: (view**2).sum(), 1, _raise))
    assert torch.equal(x, plain)


def _raise():
    raise RuntimeError


def test_parameter_without_effect_costs_one_evaluation_once():
    x, unused = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizer = baselines.MeZO([x, unused], lr=0.1, eps=0.1)
    for _ in range(3):
        optimizer.step(lambda: (x**2).sum())
    assert optimizer.evaluations == 7
    saved = optimizer.state_dict()
    resumed = baselines.MeZO([x, unused], lr=0.1)
    resumed.load_state_dict(saved)
    resumed.step(lambda: (x**2).sum())
    assert resumed.evaluations == 9


def test_scripted_model_is_perturbed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        scripted = torch.jit.trace(copy.deepcopy(model), torch.zeros(1, 3))
    x = torch.randn(6, 3)
    losses = [
        [float(optimizer.step(lambda net=net: net(x).square().mean())) for _ in range(3)]
        for net in (model, scripted)
        for optimizer in [baselines.MeZO(net.parameters(), lr=0.05, eps=0.1)]
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_extra_memory_is_one_and_a_half_tensors_at_most():
    from cocd_paper.peak import peak_tensor_bytes

    layers = [nn.Linear(1200, 1200, bias=False) for _ in range(4)]
    model, x = nn.Sequential(*layers), torch.randn(2, 1200)

    def closure():
        return model(x).square().mean()

    optimizer = baselines.MeZO(model.parameters(), lr=1e-3, eps=1e-3)
    with torch.no_grad():
        forward = peak_tensor_bytes(closure)
    step = peak_tensor_bytes(lambda: optimizer.step(closure))
    assert step - forward <= 1.5 * layers[0].weight.nbytes


def test_three_draws_a_step_and_one_where_the_direction_is_small(monkeypatch):
    drawn = []
    draw = cocd.optim.baselines.mezo._add_noise
    monkeypatch.setattr(
        cocd.optim.baselines.mezo,
        "_add_noise",
        lambda tensor, *rest: [drawn.append(tensor.numel()), draw(tensor, *rest)][1],
    )
    model = nn.Sequential(nn.Linear(9, 7), nn.Linear(7, 1))
    n, x = sum(p.numel() for p in model.parameters()), torch.randn(3, 9)
    for most, draws in ((1 << 20, 1), (0, 3)):
        monkeypatch.setattr(baselines.MeZO, "_most_kept", most)
        drawn.clear()
        baselines.MeZO(model.parameters(), lr=0.1).step(lambda: model(x).sum())
        assert sum(drawn) == draws * n


# --- the log ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("way", ["log", "file"])
def test_replay_gives_the_trained_weights_to_the_bit(way, dtype, tmp_path):
    model, closure = task(dtype)
    start = copy.deepcopy(model)
    optimizer = baselines.MeZO(
        model.parameters(), lr=1e-2, eps=1e-2, directions=2, weight_decay=0.1, log=True
    )
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=4)
    for _ in range(6):
        optimizer.step(closure)
        schedule.step()
    log = optimizer.log
    if way == "file":
        log.save(tmp_path / "run.mezo")
        assert cocd.MeZOLog.load(tmp_path / "run.mezo") == log
        log = tmp_path / "run.mezo"
    cocd.replay(start, log)
    assert frozen(list(start.parameters())) == frozen(list(model.parameters()))


def test_log_takes_sixteen_bytes_a_step(tmp_path):
    x = torch.ones(3, requires_grad=True)
    optimizer = baselines.MeZO([x], lr=0.01, log=True)
    sizes = []
    for steps in (100, 1000):
        for _ in range(steps):
            optimizer.step(lambda: (x**2).sum())
        optimizer.log.save(tmp_path / "log")
        sizes.append((tmp_path / "log").stat().st_size)
    assert sizes[1] - sizes[0] == 16 * 1000 and sizes[0] < 5000


def test_log_survives_saving_and_skipped_pairs():
    model, closure = task()
    start = copy.deepcopy(model)
    optimizer = baselines.MeZO(model.parameters(), lr=1e-2, directions=3, log=True)
    with pytest.warns(cocd.NonFiniteWarning):
        optimizer.step(Raising(closure, 3, lambda: float("nan")))
    resumed = baselines.MeZO(model.parameters(), lr=9.0, directions=3, log=True)
    resumed.load_state_dict(optimizer.state_dict())
    resumed.step(closure)
    assert [len(step) for step in resumed.log.steps] == [2, 3]
    cocd.replay(start, resumed.log)
    assert frozen(list(start.parameters())) == frozen(list(model.parameters()))


def test_replay_follows_groups_and_frozen_parameters():
    model, closure = task()
    for p in model.attention.parameters():
        p.requires_grad_(False)
    start = copy.deepcopy(model)

    def groups(model):
        return [
            {"params": list(model.hidden.parameters()), "lr": 0.05},
            {"params": list(model.attention.parameters())},
            {"params": [model.scale], "eps": 0.1},
        ]

    optimizer = baselines.MeZO(groups(model), lr=1e-2, log=True)
    for _ in range(3):
        optimizer.step(closure)
    with pytest.raises(ValueError, match="params are not those"):
        cocd.replay(start, optimizer.log)
    cocd.replay(groups(start), optimizer.log)
    assert frozen(list(start.parameters())) == frozen(list(model.parameters()))


def test_replay_refuses_other_weights_and_changes_nothing():
    model, closure = task()
    other = copy.deepcopy(model)
    optimizer = baselines.MeZO(model.parameters(), lr=1e-2, log=True)
    optimizer.step(closure)
    with torch.no_grad():
        other.scale[0] += 1e-6
    before = frozen(list(other.parameters()))
    with pytest.raises(ValueError, match="params are not those"):
        cocd.replay(other, optimizer.log)
    assert frozen(list(other.parameters())) == before


def test_replay_warns_where_the_end_differs():
    model, closure = task()
    start = copy.deepcopy(model)
    optimizer = baselines.MeZO(model.parameters(), lr=1e-2, log=True)
    optimizer.step(closure)
    log = optimizer.log._replace(end="0" * 32)
    with pytest.warns(RuntimeWarning, match="bit for bit"):
        cocd.replay(start, log)


def test_log_is_refused_where_there_is_none():
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="log=True"):
        _ = baselines.MeZO([x], lr=0.1).log
    optimizer = baselines.MeZO([x, y], lr=0.1, log=True)
    for _ in range(2):
        optimizer.step(lambda: (x * y).sum())
        y.requires_grad_(False)
    with pytest.raises(
        ValueError, match="other parameters than in earlier steps were trained in step 1"
    ):
        _ = optimizer.log


def test_parameters_that_share_a_direction_do_not_share_their_numbers():
    x, y = torch.zeros(5, requires_grad=True), torch.zeros(5, requires_grad=True)
    seen = []
    optimizer = baselines.MeZO([x, y], lr=0.0, eps=1.0)
    optimizer.step(lambda: [seen.append((flat([x]), flat([y]))), x.sum() + y.sum()][1])
    assert len(parameters(optimizer)) == 2
    assert not torch.equal(*seen[0])
