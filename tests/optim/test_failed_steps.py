"""A step that fails leaves no trace, and a perturbed weight comes back bit for bit."""

import contextlib
import signal
import threading
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from helpers import Raising, flat, frozen, parameters, quadratic, world
from torch import nn
from torch.nn import functional as F

import cocd
from cocd import baselines
from cocd.optim import cocd as _optimizer

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


# --- bit for bit -------------------------------------------------------------------------


@pytest.mark.parametrize("difference", ["central", "forward", "backward"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_are_bit_identical_at_lr_zero(dtype, difference):
    generator = torch.Generator().manual_seed(0)
    x = (0.02 * torch.randn(4, 3, generator=generator, dtype=torch.float64)).to(dtype)
    info = torch.finfo(dtype)
    special = [0.0, -0.0, info.tiny, -info.smallest_normal / 2, info.eps, -1 / 3]
    y = torch.tensor(special, dtype=torch.float64).to(dtype)
    tensors = [x.t().requires_grad_(), y.requires_grad_()]
    before = frozen(tensors)
    optimizer = cocd.CoCD(
        tensors, lr=0.0, eps=1.0, compute_budget=5, decay=0.9, difference=difference
    )
    for _ in range(12):
        optimizer.step(lambda: tensors[0].double().sin().sum() - tensors[1].double().sin().sum())
        assert frozen(tensors) == before
    assert bool(optimizer.estimate().count_nonzero() > 12)


def test_a_thousand_bfloat16_steps_leave_every_weight_bit_identical():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).bfloat16()
    x = torch.randn(8, 3, dtype=torch.bfloat16)
    before = frozen(list(model.parameters()))
    optimizer = cocd.CoCD(model.parameters(), lr=0.0, eps=1.0, compute_budget=1)
    for _ in range(1000):
        optimizer.step(lambda: model(x).float().square().mean())
    assert frozen(list(model.parameters())) == before
    assert optimizer.evaluations == 3000


# --- exceptions --------------------------------------------------------------------------


class Noisy(nn.Module):
    """Dropout, batch statistics and two dtypes: all that a failed step could leave behind."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 1).double()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout()

    def forward(self, x):
        return self.last(self.drop(self.norm(self.first(x))).double())


def noisy(make):
    torch.manual_seed(0)
    model, x = Noisy(), torch.randn(8, 3)
    optimizer = make(model.parameters())
    closure = lambda: model(x).square().mean()  # noqa: E731
    optimizer.step(closure)
    return model, optimizer, closure


MAKE = {
    "m=n": lambda p: cocd.CoCD(p, lr=0.1, decay=0.9, compute_budget=3),
    "m<n": lambda p: cocd.CoCD(p, lr=0.1, decay=0.9, compute_budget=3, memory_budget=7),
    "forward": lambda p: cocd.CoCD(p, lr=0.1, compute_budget=6, difference="forward"),
    "random": lambda p: baselines.RandomCoordinate(p, lr=0.1, compute_budget=3),
    "SPSA": lambda p: baselines.SPSA(p, lr=0.1, directions=4),
    "ES": lambda p: baselines.EvolutionStrategy(p, lr=0.1, directions=4, shaping="rank"),
}


def interrupt():
    raise KeyboardInterrupt


def fail():
    raise RuntimeError("no loss today")


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)
    return 0.0


class LateInterrupt(float):
    """A loss that is interrupted while it is read: between two evaluations."""

    def __float__(self):
        signal.raise_signal(signal.SIGINT)
        return 0.0


FAILURES = {
    "exception": (fail, RuntimeError),
    "KeyboardInterrupt": (interrupt, KeyboardInterrupt),
    "Ctrl-C in the closure": (press_ctrl_c, KeyboardInterrupt),
    "Ctrl-C between evaluations": (LateInterrupt, KeyboardInterrupt),
    "no loss": (lambda: None, ValueError),
}


@pytest.mark.parametrize("at", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("method", MAKE)
def test_a_failed_step_leaves_everything_unchanged(method, failure, at):
    how, error = FAILURES[failure]
    model, optimizer, closure = noisy(MAKE[method])
    before, spent = world(optimizer, model), optimizer.evaluations
    with pytest.raises(error):
        optimizer.step(Raising(closure, at, how))
    assert world(optimizer, model) == before
    assert optimizer.evaluations == spent + at
    assert torch.is_grad_enabled()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("method", MAKE)
def test_a_failed_step_does_not_change_the_rest_of_the_run(method):
    model, optimizer, closure = noisy(MAKE[method])
    twin_model, twin, twin_closure = noisy(MAKE[method])
    torch.manual_seed(1)
    with pytest.raises(RuntimeError, match="no loss today"):
        optimizer.step(Raising(closure, 4, fail))
    losses = [float(optimizer.step(closure)) for _ in range(4)]
    torch.manual_seed(1)
    assert [float(twin.step(twin_closure)) for _ in range(4)] == losses
    assert world(optimizer, model) == world(twin, twin_model)


def test_a_failed_first_step_leaves_no_trace():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = cocd.CoCD(model.parameters(), lr=0.1, compute_budget=1)
    before = world(optimizer, model)
    with pytest.raises(RuntimeError):
        optimizer.step(Raising(lambda: model(torch.randn(4, 2)).sum(), 1, fail))
    assert world(optimizer, model) == before


def test_mezo_leaves_weights_alone_after_an_exception():
    x = torch.linspace(-1, 1, 9).requires_grad_()
    before = flat([x])
    optimizer = baselines.MeZO([x], lr=0.1, eps=0.1, directions=2)
    for at in (1, 2, 3, 4):
        with pytest.raises(RuntimeError):
            optimizer.step(Raising(lambda: (x**2).sum(), at, fail))
        assert torch.equal(flat([x]), before)


# --- Ctrl-C at other moments -------------------------------------------------------------


def test_ctrl_c_during_the_update_waits_until_the_step_is_whole(monkeypatch):
    f = quadratic(4)
    optimizers = []
    for _ in range(2):
        parts = [torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        optimizers.append(cocd.CoCD(parts, lr=0.1, compute_budget=4))
    plain, pressed = optimizers
    plain.step(lambda: f(flat(parameters(plain))))

    descend_whole = _optimizer.descend_whole

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        descend_whole(*arguments)

    monkeypatch.setattr(_optimizer, "descend_whole", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pressed.step(lambda: f(flat(parameters(pressed))))
    assert torch.equal(flat(parameters(pressed)), flat(parameters(plain)))
    assert torch.equal(pressed.estimate(), plain.estimate())


def test_handler_of_the_user_is_called_and_may_let_the_step_go_on():
    x, calls = torch.ones(3, dtype=torch.float64, requires_grad=True), []
    previous = signal.signal(signal.SIGINT, lambda *_: calls.append(signal.SIGINT))
    try:
        optimizer = cocd.CoCD([x], lr=0.1, compute_budget=2)
        optimizer.step(Raising(lambda: x.sum(), 2, press_ctrl_c))
        optimizer.step(Raising(lambda: x.sum(), 5, lambda: LateInterrupt(x.sum())))
    finally:
        signal.signal(signal.SIGINT, previous)
    assert calls == [signal.SIGINT] * 2
    assert optimizer.evaluations == 10


def test_ctrl_c_is_not_swallowed_by_another_exception():
    def press_then_return_nothing():
        return Unreadable()

    class Unreadable(float):
        def __float__(self):
            signal.raise_signal(signal.SIGINT)
            raise ValueError("not a number after all")

    x = torch.ones(3, requires_grad=True)
    before = frozen(x)
    with pytest.raises(KeyboardInterrupt):
        cocd.CoCD([x], lr=0.1, compute_budget=1).step(
            Raising(lambda: x.sum(), 2, press_then_return_nothing)
        )
    assert frozen(x) == before


def test_steps_can_be_taken_outside_the_main_thread():
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    optimizer = cocd.CoCD([x], lr=0.5, compute_budget=2)
    thread = threading.Thread(target=optimizer.step, args=(lambda: x.sum(),))
    thread.start()
    thread.join()
    assert x.tolist() == pytest.approx([0.5, 0.5])


# --- a forward that writes its own weights -----------------------------------------------


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.b = nn.Embedding(9, 4, max_norm=0.7), nn.Linear(4, 3)

    def forward(self, tokens):
        return self.b(self.e(tokens).tanh().sum(1))


class Normalised(nn.Module):
    def __init__(self, assign):
        super().__init__()
        self.e, self.b, self.assign = nn.Linear(3, 4), nn.Linear(4, 3), assign

    def forward(self, tokens):
        if self.assign == "data":
            self.e.weight.data = F.normalize(self.e.weight.data)
        elif self.assign == "inside data":  # which leaves no mark on the parameter
            self.e.weight.data /= self.e.weight.data.norm()
        elif self.assign == "numpy":
            weights = self.e.weight.detach().numpy()
            weights /= np.linalg.norm(weights)
        else:
            with torch.no_grad():
                self.e.weight.copy_(torch.renorm(self.e.weight, 2, 0, 0.5))
        return self.b(self.e(tokens.double()).tanh())


_WAYS = ("data", "inside data", "numpy", "in place")


@pytest.mark.parametrize("name", ["SPSA", "MeZO", "ZOSGD"])
def test_a_direction_added_in_place_is_not_taken_for_a_write_of_the_forward(name):
    model = nn.Linear(3, 4)
    closure = cocd.trace(model, nn.functional.mse_loss)(torch.ones(2, 3), torch.ones(2, 4))
    optimizer = getattr(baselines, name)(model.parameters(), lr=0.0, eps=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            optimizer.step(closure)
    assert not any("writes into parameters" in str(w.message) for w in caught)


@pytest.mark.parametrize("how", ["closure", "traced", "directions", "fails"])
@pytest.mark.parametrize("build", [Embedded, *(partial(Normalised, way) for way in _WAYS)])
def test_probes_leave_weights_that_the_forward_writes_as_one_evaluation_does(build, how):
    torch.manual_seed(0)
    model, x = build().double(), torch.arange(18).view(6, 3) % 9
    loss_fn = lambda output, target: (output - target).square().mean()  # noqa: E731
    for _ in range(3):  # until the forward finds its weights as it wants them
        own = loss_fn(model(x), 1.0)
    before = [p.detach().clone() for p in model.parameters()]
    n = sum(p.numel() for p in model.parameters())
    if how == "directions":
        optimizer = baselines.MeZO(model.parameters(), lr=0.0, eps=0.1)
    else:
        optimizer = cocd.CoherentGradient(model.parameters(), eps=0.1, compute_budget=n)
    run = getattr(optimizer, "step", optimizer)
    losses = []

    def closure():
        losses.append(loss_fn(model(x), 1.0))
        if how == "fails" and len(losses) == 5:
            raise KeyError
        return losses[-1]

    traced = cocd.trace(model, loss_fn) if how == "traced" else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with contextlib.suppress(KeyError):
                loss = run(closure if traced is None else traced(x, 1.0))
            if how in ("closure", "traced"):
                torch.testing.assert_close(loss, own.detach(), rtol=1e-14, atol=0)
    told = [w for w in caught if "writes into parameters" in str(w.message)]
    if how != "directions":  # whose weights are substituted where they are read
        assert [w.filename for w in told] == [__file__]
    for p, old in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), old, rtol=1e-14, atol=1e-15)


class Decayed(nn.Module):
    """Its weights shrink at every call, and so does a tensor that is no buffer."""

    def __init__(self):
        super().__init__()
        self.b, self.scale = nn.Linear(3, 4), torch.ones(1, dtype=torch.float64)

    def forward(self, x):
        self.scale.data.mul_(0.9)
        with torch.no_grad():
            self.b.weight.mul_(0.99)
        return self.b(x) * self.scale


@pytest.mark.parametrize("traced", [False, True])
def test_a_forward_that_shrinks_its_weights_does_so_once_a_step(traced):
    torch.manual_seed(0)
    model, x = Decayed().double(), torch.randn(5, 3, dtype=torch.float64)
    weight = model.b.weight.detach().clone()
    loss_fn = lambda output, target: (output - target).square().mean()  # noqa: E731
    optimizer = cocd.CoCD(model.parameters(), lr=0.0, eps=0.1, compute_budget=16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cocd.EngineWarning)
        warnings.simplefilter("ignore", cocd.ClosureWarning)
        for step in range(1, 4):
            loss = cocd.trace(model, loss_fn)(x, 1.0) if traced else lambda: loss_fn(model(x), 1.0)
            optimizer.step(loss)
            torch.testing.assert_close(model.b.weight.detach(), weight * 0.99**step)
            assert float(model.scale) == pytest.approx(0.9**step)
