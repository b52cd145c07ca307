"""A traced objective stays right when the model changes, and more exact than the closure."""

import re
import warnings

import pytest
import torch
from helpers import flat, frozen
from torch import nn
from torch.nn import functional as F
from zoo import build
from zoo.case import Net

import cocd
from cocd import EngineWarning, baselines
from cocd._engines.objective import _RECHECK
from cocd._evaluate import Evaluations
from cocd._probe import sequential


def gradient(model, closure, **options):
    """Finite differences of all coordinates, and the loss that the step returned."""
    optimizer = baselines.FiniteDifference(model.parameters(), lr=0.0, eps=0.05, **options)
    torch.manual_seed(0)
    loss = optimizer.step(closure)
    return optimizer.estimate(), float(loss)


def assert_right(objective, case, atol=1e-10, **options):
    closure = objective(case.inputs, case.target)
    expected = gradient(case.model, lambda: closure(), **options)
    found = gradient(case.model, closure, **options)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=atol)


def engines(objective):
    return {objective.engine_of(name) for name, _ in objective.model.named_parameters()}


# --- changes that are seen at once -------------------------------------------------------


@pytest.mark.parametrize("name", ["batch_norm_1d", "dropout", "resnet"])
def test_train_and_eval_mode_may_alternate(name):
    case = build(name)
    objective = cocd.trace(case.model, case.loss_fn)
    for mode in (True, False, True):
        case.model.train(mode)
        assert_right(objective, case)
        assert engines(objective) == {"incremental"}


def test_a_layer_may_be_swapped():
    case = build("mlp")
    objective = cocd.trace(case.model, case.loss_fn)
    assert_right(objective, case)
    case.model[1] = nn.Sigmoid()
    case.model[2] = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 5)).double()
    assert_right(objective, case)
    assert objective.engine_of("2.2.weight") == "incremental"


def test_a_parameter_may_be_replaced():
    case = build("mlp")
    objective = cocd.trace(case.model, case.loss_fn)
    assert_right(objective, case)
    for _ in range(3):  # addresses are used again, and with them ids
        case.model[0].weight = nn.Parameter(torch.randn(6, 4, dtype=torch.float64))
        assert_right(objective, case)
    case.model[4] = nn.Linear(5, 2, bias=False, dtype=torch.float64)
    assert_right(objective, case)
    assert engines(objective) == {"incremental"}


def test_hooks_may_come_and_go():
    case = build("mlp")
    objective = cocd.trace(case.model, case.loss_fn)
    assert_right(objective, case)
    handle = case.model[2].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    assert_right(objective, case)
    assert engines(objective) == {"batched"}
    handle.remove()
    assert_right(objective, case)
    assert engines(objective) == {"incremental"}


def test_a_hook_is_refused_where_the_engine_is_forced():
    case = build("mlp")
    objective = cocd.trace(case.model, case.loss_fn, engine="incremental")
    case.model[2].register_forward_hook(lambda module, args, out: out)
    sentence = "engine='incremental' is not possible: forward hooks on 2"
    with pytest.raises(ValueError, match=sentence):
        gradient(case.model, objective(case.inputs, case.target))


def test_batches_and_arguments_may_differ_from_step_to_step():
    case = build("two_inputs")
    objective = cocd.trace(case.model, case.loss_fn)
    left, right = case.inputs
    scale = torch.rand(5, 1, dtype=torch.float64)
    for inputs in (
        (left, right),
        (left, right, scale),
        {"right": right[:3], "left": left[:3]},
        {"left": left, "scale": scale, "right": right},
        (left[:2], right[:2]),
    ):
        rows = len(inputs["left"] if isinstance(inputs, dict) else inputs[0])
        assert_right(objective, case._replace(inputs=inputs, target=case.target[:rows]))
        assert engines(objective) == {"incremental"}


# --- changes that only the values show ---------------------------------------------------


def switchable(forward):
    layers = dict(a=nn.Linear(4, 3), b=nn.Linear(4, 3), c=nn.Linear(5, 3))
    model = Net(forward, **layers).double()
    model.way = "a"
    return build("mlp")._replace(
        model=model,
        loss_fn=F.mse_loss,
        inputs=torch.randn(6, 4, dtype=torch.float64),
        target=torch.randn(6, 3, dtype=torch.float64),
    )


@pytest.mark.parametrize("difference", ["central", "forward"])
@pytest.mark.parametrize("reused", [True, False])
def test_an_attribute_that_changes_the_forward_is_noticed(reused, difference):
    case = switchable(lambda m, x: getattr(m, m.way)(x) * m.factor)
    case.model.factor = 1.0
    objective = cocd.trace(case.model, case.loss_fn)
    closure = objective(case.inputs, case.target)
    options = dict(lr=0.0, eps=0.05, compute_budget=12, difference=difference)
    optimizer = cocd.CoCD([case.model.a.weight], **options)
    optimizer.step(closure)
    case.model.factor = 3.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(_RECHECK):
            closure = closure if reused else objective(case.inputs, case.target)
            last = optimizer.step(closure)
    assert [w.category for w in caught] == [EngineWarning]
    assert re.search("the traced pass gives .* traced again", str(caught[0].message))
    assert float(last) == pytest.approx(closure().item(), rel=1e-12)
    assert objective.engine_of("a.weight") == "incremental"
    assert_right(objective, case, difference=difference)


def test_a_forward_that_was_replaced_is_noticed_at_once():
    case = build("mlp")
    plain = case.model.forward
    case.model.forward = lambda x: plain(x).square()
    objective = cocd.trace(case.model, case.loss_fn)
    with pytest.warns(EngineWarning, match="the traced pass gives .* the model"):
        assert_right(objective, case)
    assert_right(objective, case)


def test_a_traced_pass_that_fails_is_traced_again():
    case = switchable(lambda m, x: getattr(m, m.way)(x))
    objective = cocd.trace(case.model, case.loss_fn)
    assert_right(objective, case)
    case.model.way = "c"
    wider = torch.randn(6, 5, dtype=torch.float64)  # does not fit the old way
    case = case._replace(inputs=wider)
    with pytest.warns(EngineWarning, match="the traced pass fails .* traced again"):
        assert_right(objective, case)
    assert_right(objective, case)
    assert objective.engine_of("c.weight") == "incremental"


def test_a_model_that_fails_says_so_itself():
    case = build("mlp")
    objective = cocd.trace(case.model, case.loss_fn)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        gradient(case.model, objective(case.inputs[:, 1:], case.target))


# --- what tracing must not do ------------------------------------------------------------


def test_tracing_leaves_model_and_generator_alone():
    model = Net(lambda m, x: m.a(x) + torch.tensor([1.0, 2.0]) * torch.rand(2), a=nn.Linear(3, 2))
    before, generator = set(vars(model)), torch.get_rng_state()
    cocd.trace(model, F.mse_loss)
    assert set(vars(model)) == before
    assert torch.equal(torch.get_rng_state(), generator)


def test_constants_of_the_forward_are_kept():
    case = build("mlp")
    shift = lambda m, x: m.body(x) + torch.arange(2.0, dtype=torch.float64)  # noqa: E731
    case = case._replace(model=Net(shift, body=case.model))
    objective = cocd.trace(case.model, case.loss_fn)
    assert_right(objective, case)
    assert engines(objective) == {"incremental"}


def test_random_numbers_that_are_no_constants_are_noticed():
    case = build("mlp")
    noisy = lambda m, x: m.body(x + torch.rand(4, dtype=torch.float64))  # noqa: E731
    case = case._replace(model=Net(noisy, body=case.model))
    objective = cocd.trace(case.model, case.loss_fn)
    with pytest.warns(EngineWarning, match="the traced pass gives"):
        assert_right(objective, case)


# --- rounding ----------------------------------------------------------------------------


def exact(case, index, eps):
    """Central differences in float64 between the points that a float32 weight really reaches."""
    model, loss_fn = case.model.requires_grad_(False), case.loss_fn
    found = {}
    wide = case.to(torch.float64)
    for name, p in model.named_parameters():
        narrow, cells = p.detach().float(), p.detach().view(-1)
        ends = [(narrow + sign * eps).view(-1).double() for sign in (1, -1)]
        differences = []
        for i in index[name]:
            saved, losses = cells[i].item(), []
            for end in ends:
                cells[i] = end[i]
                losses.append(float(loss_fn(model(wide.inputs), wide.target)))
            cells[i] = saved
            differences.append(losses[0] - losses[1])
        found[name] = torch.tensor(differences, dtype=torch.float64)
    return found


@pytest.mark.parametrize("name", ["mlp", "lenet", "cross_entropy_sum"])
def test_differences_lose_less_to_rounding_than_the_closures(name):
    case = build(name, torch.float32)
    index = {
        key: torch.randperm(p.numel(), generator=torch.Generator().manual_seed(0))[:12].tolist()
        for key, p in case.model.named_parameters()
    }
    objective = cocd.trace(case.model, case.loss_fn)
    closure = objective(case.inputs, case.target)
    errors = {}
    for eps in (1e-4, 1e-3, 1e-2, 1e-1):
        results = {}
        for kind in ("incremental", "sequential"):
            with Evaluations(closure, None, (), lambda count: None) as evaluate:
                loss = evaluate(prepare=True)
                of = closure.differences if kind == "incremental" else sequential
                results[kind] = {
                    key: of(evaluate, loss, p, index[key], eps, "central").first
                    for key, p in case.model.named_parameters()
                }
        truth = exact(build(name, torch.float32).to(torch.float64), index, eps)
        for kind, found in results.items():
            errors[kind, eps] = max((found[key] - truth[key]).abs().max().item() for key in truth)
    assert engines(objective) == {"incremental"}
    for eps in (1e-4, 1e-3, 1e-2, 1e-1):
        assert errors["incremental", eps] <= errors["sequential", eps], (eps, errors)


def test_a_loss_near_zero_is_no_disagreement():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    x = torch.randn(512, 8)
    with torch.no_grad():
        model[2].weight.mul_(60)
        best = model(x).topk(2).values
        x = x[best[:, 0] - best[:, 1] > 18]  # logits of 50, losses of 1e-7
    objective = cocd.trace(model, F.cross_entropy)
    gradient(model, objective(x, model(x).argmax(1)))
    assert engines(objective) == {"incremental"}


def test_losses_that_are_not_finite_are_the_same_ones():
    case = build("mlp")
    case.model.append(Net(lambda m, y: torch.log(y + 1.05)))
    case.model.append(nn.Flatten())
    with torch.no_grad():
        lowest = case.model[:5](case.inputs).min()
        case.model[4].bias -= 1 + lowest  # the smallest output is 0.05 away from log(0)
    objective = cocd.trace(case.model, case.loss_fn)
    closure = objective(case.inputs, case.target)
    weight = case.model[4].bias
    results = []
    for of in (sequential, closure.differences):
        with Evaluations(closure, None, (), lambda count: None) as evaluate:
            loss = evaluate(prepare=True)
            results.append(of(evaluate, loss, weight, [0, 1], 0.3, "central").first)
    assert results[0].isnan().any() and torch.equal(results[0].isnan(), results[1].isnan())
    assert objective.engine_of("4.bias") == "incremental"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_followed_too(dtype):
    case = build("mlp", dtype)
    objective = cocd.trace(case.model, case.loss_fn)
    closure = objective(case.inputs, case.target)
    before = frozen(list(case.model.parameters()))
    expected, loss = gradient(case.model, lambda: closure())
    found, _ = gradient(case.model, closure)
    assert (found - expected).abs().max() < 16 * torch.finfo(dtype).eps * loss / (2 * 0.05)
    assert engines(objective) == {"incremental"}
    assert frozen(list(case.model.parameters())) == before


def test_parameters_may_have_any_strides():
    case = build("lenet")
    for p in case.model.parameters():
        p.data = p.data.flip(0).transpose(0, -1).contiguous().transpose(0, -1)
    objective = cocd.trace(case.model, case.loss_fn)
    assert not case.model[3].weight.is_contiguous()
    assert_right(objective, case)
    assert engines(objective) == {"incremental"}
    assert flat(case.model.parameters()).isfinite().all()
