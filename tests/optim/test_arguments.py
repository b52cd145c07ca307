"""Bad arguments: an error that names the argument and the value, before anything has changed."""

import math

import pytest
import torch
from helpers import world

import cocd
from cocd import baselines


def parameter(n=4):
    return torch.linspace(-1, 1, n, dtype=torch.float64).requires_grad_()


NUMBERS = [
    *(("lr", v) for v in (-0.1, math.inf, -math.inf, math.nan, None, "0.1", True, [0.1])),
    *(("weight_decay", v) for v in (-1e-9, math.inf, math.nan, None)),
    *(("eps", v) for v in (0, 0.0, -0.1, math.inf, math.nan, None, "1")),
    *(("decay", v) for v in (-0.01, 1.01, math.inf, math.nan, None, "1")),
]
OPTIONS = [
    *(("compute_budget", v) for v in (0, -1, 1.5, 2.0, "2", True, 5)),
    *(("memory_budget", v) for v in (0, -1, 2.5, "3", False, 5)),
    *(("difference", v) for v in ("centre", "", None, 1)),
    *(("nonfinite", v) for v in ("ignore", None, True)),
    *(("modules", v) for v in (3, "model", [1])),
]


@pytest.mark.parametrize(("name", "value"), NUMBERS + OPTIONS)
def test_cocd_refuses(name, value):
    with pytest.raises(ValueError) as error:
        cocd.CoCD([parameter()], **{"lr": 0.1, name: value})
    assert name in str(error.value)
    assert repr(value) in str(error.value) or f"{name}={value}" in str(error.value)


@pytest.mark.parametrize(("name", "value"), NUMBERS)
def test_bad_options_of_groups_are_refused_when_added_and_at_the_next_step(name, value):
    x = parameter()
    with pytest.raises(ValueError, match=name):
        cocd.CoCD([{"params": [x], name: value}], lr=0.1, compute_budget=1)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=1)
    optimizer.param_groups[0][name] = value
    weights = x.tolist()
    with pytest.raises(ValueError, match=name):
        optimizer.step(lambda: (x**2).sum())
    assert x.tolist() == weights
    assert (optimizer.evaluations, optimizer.estimate().tolist()) == (0, [0.0] * 4)


def test_numbers_of_other_types_are_accepted():
    import numpy as np

    x = parameter()
    options = dict(lr=torch.tensor(0.1), eps=np.float32(0.5), decay=1, weight_decay=np.int64(0))
    optimizer = cocd.CoCD([x], compute_budget=np.int64(2), memory_budget=np.int32(3), **options)
    optimizer.step(lambda: (x**2).sum())
    assert optimizer.evaluations == 5


def test_compute_budget_above_memory_budget_names_both():
    with pytest.raises(ValueError, match=r"compute_budget=3.*memory_budget=2"):
        cocd.CoCD([parameter()], lr=0.1, compute_budget=3, memory_budget=2)


@pytest.mark.parametrize(
    "params",
    [[], iter(()), [{"params": []}], [torch.zeros(0, requires_grad=True)], [torch.ones(2)]],
    ids=["empty list", "empty generator", "empty group", "empty tensor", "frozen"],
)
@pytest.mark.parametrize("method", [cocd.CoCD, baselines.SPSA, baselines.FiniteDifference])
def test_nothing_to_train_is_refused(method, params):
    with pytest.raises(ValueError, match="param"):
        method(params, lr=0.1)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2, dtype=torch.complex64, requires_grad=True),
        torch.ones(2, dtype=torch.int32),
        torch.ones(2).to_sparse().requires_grad_(),
        torch.ones(2, device="meta", requires_grad=True),
    ],
    ids=["complex", "integer", "sparse", "meta"],
)
def test_tensors_that_cannot_be_probed_are_refused(tensor):
    with pytest.raises(ValueError, match="params: parameter 0"):
        cocd.CoCD([tensor], lr=0.1, compute_budget=1)


METHODS = {
    "CoCD": lambda x: cocd.CoCD([x], lr=0.1, compute_budget=1).step,
    "CoherentGradient": lambda x: cocd.CoherentGradient([x], eps=0.1, compute_budget=1),
    "SPSA": lambda x: baselines.SPSA([x], lr=0.1).step,
    "MeZO": lambda x: baselines.MeZO([x], lr=0.0).step,
}


@pytest.mark.parametrize("closure", [None, 3.0, "loss"])
@pytest.mark.parametrize("method", METHODS)
def test_missing_closure_is_refused(method, closure):
    with pytest.raises(ValueError) as error:
        METHODS[method](parameter())(closure)
    assert "closure" in str(error.value) and repr(closure) in str(error.value)


def test_step_without_any_argument_is_refused():
    with pytest.raises(ValueError, match=r"closure must be a function.*None"):
        cocd.CoCD([parameter()], lr=0.1, compute_budget=1).step()


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "None"),
        (torch.ones(2), r"shape \(2,\)"),
        (torch.ones(0), r"shape \(0,\)"),
        (torch.ones((), dtype=torch.complex64), "complex64"),
        ("0.5", "str"),
        ([0.5], "list"),
        (1 + 2j, "complex"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_closure_without_a_scalar_loss_is_refused(method, result, said):
    x = parameter()
    step = METHODS[method](x)
    optimizer = getattr(step, "__self__", step)
    before = world(optimizer)
    with pytest.raises(ValueError, match=f"closure must return .*{said}"):
        step(lambda: result)
    assert world(optimizer) == before


@pytest.mark.parametrize(
    "loss", [float, torch.tensor, lambda v: torch.tensor([v]), lambda v: torch.tensor(v).numpy()]
)
def test_every_kind_of_scalar_loss_is_accepted_and_returned(loss):
    x = parameter()
    returned = cocd.CoCD([x], lr=0.1, compute_budget=1).step(lambda: loss(float(x.sum()) + 2.5))
    assert type(returned) is type(loss(0.0))
    assert float(returned) == 2.5


def test_lr_that_overflows_the_dtype_is_refused_before_anything_changes():
    x = torch.ones(3, requires_grad=True)
    optimizer = cocd.CoCD([x], lr=1e39, weight_decay=0.1, compute_budget=3)
    with pytest.raises(ValueError, match="lr=1e\\+39"):
        optimizer.step(lambda: (x**2).sum())
    assert torch.equal(x, torch.ones(3))


@pytest.mark.parametrize("make", [cocd.CoCD, cocd.AutoCoCD])
@pytest.mark.parametrize(("dtype", "eps"), [(torch.float32, 1e39), (torch.float64, 1e300)])
def test_a_radius_that_overflows_is_refused(make, dtype, eps):
    x = torch.ones(4, dtype=dtype, requires_grad=True)
    optimizer = make([x], lr=0.1, eps=eps, compute_budget=2)
    before = world(optimizer)
    with pytest.raises(ValueError, match=r"eps=1e\+(39|300) overflows"):
        optimizer.step(lambda: (x**2).sum())
    assert world(optimizer) == before


def test_a_parameter_that_was_reshaped_is_refused_before_anything_has_changed():
    x = torch.ones(3, 4, requires_grad=True)
    optimizer = cocd.CoCD([x], lr=0.1, compute_budget=2)
    optimizer.step(lambda: (x**2).sum())
    x.data = x.data.view(2, 6)
    before = world(optimizer)
    with pytest.raises(ValueError, match=r"now of shape \(2, 6\)"):
        optimizer.step(lambda: (x**2).sum())
    assert world(optimizer) == before


@pytest.mark.parametrize(("n", "budget"), [(5, 5), (64, 64), (3_000, 64), (20_000, 200)])
def test_the_budget_is_a_hundredth_of_all_coordinates_but_at_least_64_where_there_are(n, budget):
    x = torch.zeros(n, requires_grad=True)
    assert cocd.CoCD([x], 0.1).compute_budget == budget
    assert cocd.CoCD([x], 0.1, memory_budget=4).compute_budget == min(budget, 4)
    assert cocd.CoherentGradient([x]).compute_budget == budget
    assert cocd.baselines.BCCD([x], 0.1).compute_budget == budget


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("epsilon", "'epsilon' is not an option.*did you mean 'eps'"),
        ("momentum", "'momentum' is not an option of a parameter group of CoCD, which has lr, eps"),
    ],
)
def test_unknown_options_of_a_group_are_refused(option, sentence):
    x, y = parameter(), parameter()
    with pytest.raises(ValueError, match=sentence):
        cocd.CoCD([{"params": [x], option: 0.1}], 0.1)
    optimizer = cocd.CoCD([x], 0.1)
    with pytest.raises(ValueError, match=sentence):
        optimizer.add_param_group({"params": [y], option: 0.1})
    assert len(optimizer.param_groups) == 1


def test_what_schedulers_leave_in_a_group_may_be_passed_on():
    x = parameter()
    first = cocd.CoCD([{"params": [x], "name": "head"}], 0.1)
    torch.optim.lr_scheduler.StepLR(first, 1)
    assert "initial_lr" in first.param_groups[0]
    groups = [{k: v for k, v in group.items()} for group in first.param_groups]
    assert cocd.CoCD(groups, 0.1).param_groups[0]["name"] == "head"


def test_common_mistakes_are_named_before_anything_has_changed():
    model = torch.nn.Linear(2, 1)
    objective = cocd.trace(model, torch.nn.functional.mse_loss)
    lazy = torch.nn.LazyLinear(2)
    for message, call in {
        r"params must be parameters, got a Linear; write model.parameters\(\)": lambda: (
            cocd.AutoCoCD(model)
        ),
        r"got the objective itself; call step\(objective\(inputs, target\)\)": lambda: (
            cocd.AutoCoCD(model.parameters()).step(objective)
        ),
        "belongs to a lazy layer": lambda: cocd.AutoCoCD(lazy.parameters()),
        "seed must be a whole number, got 'a'": lambda: baselines.MeZO(
            model.parameters(), lr=0.1, seed="a"
        ),
        "got <the loss of Linear on one batch>": lambda: cocd.UnitGradient(objective)(
            cocd.trace(model, torch.nn.functional.mse_loss)(torch.ones(1, 2), torch.ones(1, 1))
        ),
        "sample_losses must be a function of output and target": lambda: cocd.UnitGradient(
            objective, sample_losses="mean"
        ),
        "seed must be a whole number, got 1.5": lambda: cocd.UnitGradient(objective, seed=1.5),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
