"""A traced objective stays right when the model is not what it was when it was traced."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from zoo import build
from zoo.case import Net

import cocd
from cocd import EngineWarning, baselines


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
    assert engines(objective) == {"incremental"}
    handle.remove()
    assert_right(objective, case)
    assert engines(objective) == {"incremental"}


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


# --- changes of what the forward reads ---------------------------------------------------


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
    closure = closure if reused else objective(case.inputs, case.target)
    assert float(optimizer.step(closure)) == closure().item()
    assert objective.engine_of("a.weight") == "incremental"
    assert_right(objective, case, difference=difference)


def test_a_forward_that_was_replaced_is_noticed_at_once():
    case = build("mlp")
    plain = case.model.forward
    objective = cocd.trace(case.model, case.loss_fn)
    assert_right(objective, case)
    case.model.forward = lambda x: plain(x).square()
    assert_right(objective, case)
    assert engines(objective) == {"incremental"}


def test_another_way_through_the_model_is_traced_again():
    case = switchable(lambda m, x: getattr(m, m.way)(x))
    objective = cocd.trace(case.model, case.loss_fn)
    assert_right(objective, case)
    case.model.way = "c"
    wider = torch.randn(6, 5, dtype=torch.float64)  # does not fit the old way
    case = case._replace(inputs=wider)
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


def test_random_numbers_are_the_same_for_all_probes_of_a_step():
    case = build("mlp")
    noisy = lambda m, x: m.body(x + torch.rand(4, dtype=torch.float64))  # noqa: E731
    case = case._replace(model=Net(noisy, body=case.model))
    objective = cocd.trace(case.model, case.loss_fn)
    assert_right(objective, case)
    assert engines(objective) == {"incremental"}


def test_writes_through_another_name_are_noticed():
    def forward(m, x):
        hidden = m.a(x)
        hidden.view(-1).relu_()  # the view is another name of `hidden`
        return m.b(hidden)

    model = Net(forward, a=nn.Linear(4, 5), b=nn.Linear(5, 2)).double()
    case = build("mlp")._replace(model=model)
    objective = cocd.trace(model, case.loss_fn)
    with pytest.warns(EngineWarning, match="written to by another name"):
        assert_right(objective, case)


def test_writes_into_a_slice_are_refused():
    def forward(m, x):
        hidden = m.a(x)
        hidden[:, :1].fill_(0)
        return m.b(hidden)

    model = Net(forward, a=nn.Linear(4, 5), b=nn.Linear(5, 2)).double()
    case = build("mlp")._replace(model=model)
    objective = cocd.trace(model, F.mse_loss, engine="incremental")
    with pytest.raises(ValueError, match="written to by another name"):
        assert_right(objective, case)
    objective = cocd.trace(model, case.loss_fn)
    with pytest.warns(EngineWarning, match="written to by another name"):
        assert_right(objective, case)
    assert engines(objective) == {"batched"}


def test_items_may_be_assigned():
    def forward(m, x):
        out = torch.zeros(len(x), 5, dtype=x.dtype)
        out[:, :3] = m.a(x)
        hidden = m.b(out)
        hidden[:, 0] = hidden[:, 1] * 2
        return hidden

    model = Net(forward, a=nn.Linear(4, 3), b=nn.Linear(5, 2)).double()
    case = build("mlp")._replace(model=model)
    objective = cocd.trace(model, case.loss_fn)
    assert_right(objective, case)
    assert engines(objective) == {"incremental"}


def test_parameters_may_have_any_strides():
    case = build("lenet")
    for p in case.model.parameters():
        p.data = p.data.flip(0).transpose(0, -1).contiguous().transpose(0, -1)
    objective = cocd.trace(case.model, case.loss_fn)
    assert not case.model[3].weight.is_contiguous()
    assert_right(objective, case)
    assert engines(objective) == {"incremental"}


@torch.no_grad()
def test_the_traced_pass_alone_gives_the_same_loss_and_leaves_the_same_traces():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.MaxPool2d(2), nn.Dropout(),
        nn.Flatten(), nn.Linear(27, 4),
    )  # fmt: skip
    closure = cocd.trace(model, F.cross_entropy)(torch.randn(5, 1, 8, 8), torch.arange(5) % 4)
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = []

    def rewind():
        model.load_state_dict(before)
        torch.set_rng_state(random)

    for evaluate in (closure, closure.quickly):
        rewind()
        closure.prepare(rewind)
        rewind()
        found.append((evaluate(), copy.deepcopy(model.state_dict()), torch.get_rng_state()))
    (loss, state, after), (same, too, later) = found
    torch.testing.assert_close(loss, same)
    torch.testing.assert_close(state, too)
    assert torch.equal(after, later) and not torch.equal(after, random)
