"""Saved runs continue as if they had not stopped; states that do not fit are refused whole."""

import copy
import io
import pickle

import pytest
import torch
from helpers import flat, frozen, parameters, quadratic, world

import cocd
from cocd import baselines

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
F = quadratic(7)


def tensors(dtypes):
    """Seven numbers in three tensors, one of them transposed."""
    shapes = [(2,), (2, 2), ()]
    generator = torch.Generator().manual_seed(3)
    made = [
        torch.randn(shape, generator=generator).to(dtype).t() if len(shape) == 2
        else torch.randn(shape, generator=generator).to(dtype)
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]  # fmt: skip
    return [t.requires_grad_() for t in made]


def build(dtypes=(torch.float64,) * 3, memory_budget=None, **options):
    a, b, c = tensors(dtypes)
    groups = [{"params": [a, b], "decay": 0.5}, {"params": [c], "lr": 0.02}]
    options = {"lr": 0.05, "compute_budget": 2, "decay": 0.9, "weight_decay": 0.01, **options}
    return cocd.CoCD(groups, memory_budget=memory_budget, **options)


def advance(optimizer, steps):
    """Losses of so many steps, bit for bit; they depend on the weights and on random numbers."""
    return [
        float(optimizer.step(lambda: F(flat(parameters(optimizer))) + torch.rand(()).double()))
        for _ in range(steps)
    ]


def through_a_file(optimizer, _):
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


WAYS = {
    "state_dict": lambda optimizer, fresh: loaded(fresh, optimizer, optimizer.state_dict()),
    "file": lambda optimizer, fresh: loaded(fresh, optimizer, through_a_file(optimizer, fresh)),
    "pickle": lambda optimizer, _: pickle.loads(pickle.dumps(optimizer)),
    "deepcopy": lambda optimizer, _: copy.deepcopy(optimizer),
}


def loaded(fresh, optimizer, state):
    for new, old in zip(parameters(fresh), parameters(optimizer), strict=True):
        new.data.copy_(old.data)
    fresh.load_state_dict(state)
    return fresh


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("steps", [0, 2, 5])  # before, within and beyond the first sweep
@pytest.mark.parametrize("memory_budget", [None, 7, 3])
@pytest.mark.parametrize("dtypes", [*((d,) * 3 for d in DTYPES), DTYPES[1:]], ids=str)
def test_resumed_run_continues_bit_for_bit(dtypes, memory_budget, steps, way):
    torch.manual_seed(0)
    optimizer = build(dtypes, memory_budget)
    advance(optimizer, steps)
    resumed = WAYS[way](optimizer, build(dtypes, memory_budget, lr=9.0, compute_budget=1))
    random = torch.get_rng_state()
    expected = advance(optimizer, 6)
    torch.set_rng_state(random)
    assert advance(resumed, 6) == expected
    assert frozen(parameters(resumed)) == frozen(parameters(optimizer))
    assert frozen(resumed.state_dict()) == frozen(optimizer.state_dict())
    assert resumed.evaluations == optimizer.evaluations == 5 * (steps + 6)


@pytest.mark.parametrize("memory_budget", [None, 3])
def test_resumed_run_continues_after_parameters_have_joined(memory_budget):
    def grown(steps):
        optimizer = build(memory_budget=memory_budget)
        advance(optimizer, steps)
        extra = torch.ones(2, dtype=torch.float64, requires_grad=True)
        optimizer.add_param_group({"params": [extra]})
        return optimizer

    def go_on(optimizer, steps):
        for _ in range(steps):
            optimizer.step(lambda: (flat(parameters(optimizer)) ** 2).sum())

    optimizer = grown(5)
    go_on(optimizer, 2)
    resumed = loaded(grown(0), optimizer, optimizer.state_dict())
    go_on(optimizer, 9)
    go_on(resumed, 9)
    assert world(resumed) == world(optimizer)


def test_saved_state_does_not_change_and_can_be_loaded_twice():
    optimizer = build(memory_budget=3)
    advance(optimizer, 3)
    saved, start = optimizer.state_dict(), copy.deepcopy(optimizer)
    before = frozen(saved)
    advance(optimizer, 4)
    assert frozen(saved) == before
    first = loaded(build(memory_budget=3), start, saved)
    advance(first, 4)
    assert frozen(saved) == before
    second = loaded(build(memory_budget=3), start, saved)
    assert frozen(second.state_dict()) == before


def test_copied_optimizer_and_model_stay_together_and_apart_from_the_first():
    model = torch.nn.Linear(2, 1)
    optimizer = cocd.CoCD(model.parameters(), lr=0.1, modules=model, compute_budget=1)
    twin_model, twin = copy.deepcopy((model, optimizer))
    before = frozen(list(model.parameters()))
    twin.step(lambda: (twin_model(torch.ones(1, 2)) ** 2).sum())
    assert frozen(list(model.parameters())) == before
    assert twin.modules[0] is twin_model
    assert parameters(twin)[0] is twin_model.weight
    assert (optimizer.evaluations, twin.evaluations) == (0, 3)


def other_shapes():
    return cocd.CoCD([torch.ones(7, requires_grad=True)], lr=0.1, compute_budget=1)


def other_grouping():
    return cocd.CoCD(tensors((torch.float64,) * 3), lr=0.1, memory_budget=3, compute_budget=1)


MISFITS = {
    "another m": (lambda: build(memory_budget=4), "memory_budget=3.*memory_budget=4"),
    "all of it": (build, "memory_budget=3.*memory_budget=7"),
    "another n": (
        lambda: cocd.CoCD(
            [torch.ones(9, requires_grad=True)], lr=0.1, memory_budget=3, compute_budget=1
        ),
        r"7 numbers.*9 numbers",
    ),
    "other shapes": (other_shapes, r"shapes"),
    "other groups": (other_grouping, "parameter groups"),
    "another method": (
        lambda: baselines.BCCD(tensors((torch.float64,) * 3), lr=0.1, compute_budget=3),
        "saved by CoCD.*BCCD",
    ),
    "an estimator": (
        lambda: cocd.CoherentGradient(
            tensors((torch.float64,) * 3), eps=0.1, compute_budget=1, memory_budget=3
        ),
        "saved by CoCD.*CoherentGradient",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_state_that_does_not_fit_is_refused_with_nothing_changed(name):
    make, sentence = MISFITS[name]
    saved = build(memory_budget=3)
    advance(saved, 2)
    other = make()
    before = world(other)
    with pytest.raises(ValueError, match=sentence):
        other.load_state_dict(saved.state_dict())
    assert world(other) == before
    assert other.evaluations == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state["state"].clear(),
        lambda state: state["state"]["cocd"].update(version=99),
        lambda state: state["param_groups"][0].update(eps=-1.0),
        lambda state: state["param_groups"].pop(),
        lambda state: state["state"]["cocd"]["memory"]["buffers"].pop(),
    ],
    ids=["no state", "version", "bad option", "fewer groups", "fewer buffers"],
)
def test_spoilt_state_is_refused_with_nothing_changed(spoil):
    optimizer = build()
    advance(optimizer, 2)
    state, before = optimizer.state_dict(), world(optimizer)
    spoil(state)
    with pytest.raises(ValueError):
        optimizer.load_state_dict(state)
    assert world(optimizer) == before


def test_state_of_a_torch_optimizer_is_refused():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="state_dict has no state of a cocd optimizer"):
        cocd.CoCD([x], lr=0.1, compute_budget=1).load_state_dict(
            torch.optim.SGD([x], lr=0.1).state_dict()
        )


def test_all_of_n_is_the_same_memory_by_number_and_by_name():
    saved = build()
    advance(saved, 2)
    other = build(memory_budget=7)
    other.load_state_dict(saved.state_dict())
    assert torch.equal(other.estimate(), saved.estimate())


def test_state_of_other_dtypes_is_refused():
    wide = cocd.CoCD(
        [torch.ones(4, dtype=torch.float64, requires_grad=True)], lr=0.1, compute_budget=1
    )
    narrow = cocd.CoCD([torch.ones(4, requires_grad=True)], lr=0.1, compute_budget=1)
    with pytest.raises(ValueError, match=r"float64.*float32"):
        narrow.load_state_dict(wide.state_dict())
