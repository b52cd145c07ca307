"""Steps and their records, loggers, and the skorch recipe of the docs."""

import re
from pathlib import Path

import pytest
import torch
from helpers import frozen, parameters
from torch import nn
from torch.nn.functional import mse_loss

import cocd
from cocd import baselines
from cocd.diagnostics import Coherence
from cocd.integrations import Steps
from cocd.integrations.loggers import mlflow, tensorboard, wandb

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "training-tools.md"


def task():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    return model, torch.randn(8, 3), torch.randn(8, 1)


def test_record_says_what_happened_in_a_step():
    model, x, y = task()
    objective = cocd.trace(model, mse_loss)
    optimizer = cocd.CoCD(model.parameters(), lr=0.01, eps=0.1, compute_budget=7)
    records = []
    steps = Steps(
        optimizer, on_step=[records.append], tracker=Coherence(optimizer), objective=objective
    )
    for _ in range(9):
        loss = steps(objective(x, y))
    assert [record["step"] for record in records] == list(range(1, 10))
    last = records[-1]
    assert last["evaluations"] == optimizer.evaluations == 9 * 15
    assert last["loss"] == float(loss) and last["lr"] == 0.01
    assert last["length"] > 0 and -1 <= last["coherence"] <= 1
    assert last["engine"] == "incremental"


def test_estimator_and_optimizer_make_one_step_and_one_state():
    def make(model):
        gradient = cocd.CoherentGradient(model.parameters(), eps=0.1, compute_budget=7)
        return Steps(torch.optim.AdamW(model.parameters(), lr=0.05), gradient)

    (model, x, y), (twin, _, _) = task(), task()
    steps, resumed = make(model), make(twin)
    for _ in range(3):
        steps(lambda: mse_loss(model(x), y))
    twin.load_state_dict(model.state_dict())
    resumed.load_state_dict(steps.state_dict())
    for some, net in ((steps, model), (resumed, twin)):
        some(lambda net=net: mse_loss(net(x), y))
    assert frozen(parameters(resumed.optimizer)) == frozen(parameters(steps.optimizer))
    assert (resumed.steps, resumed.evaluations) == (4, steps.evaluations)


def test_failed_step_is_not_told():
    model, _, _ = task()
    steps = Steps(baselines.MeZO(model.parameters(), lr=0.1), on_step=pytest.fail)
    with pytest.raises(cocd.NonFiniteLoss):
        steps(lambda: float("nan"))
    assert steps.steps == 0


def test_estimator_alone_is_no_optimizer():
    model, _, _ = task()
    gradient = cocd.CoherentGradient(model.parameters(), eps=0.1, compute_budget=1)
    with pytest.raises(ValueError, match="CoherentGradient estimates and does not move"):
        Steps(gradient)


class Logger:
    """A Weights & Biases run, or the module mlflow."""

    def __init__(self):
        self.seen = []

    def log(self, values, step):
        self.seen.append((step, values))

    log_metrics = log


@pytest.mark.parametrize("adapter", [wandb, mlflow])
def test_loggers_get_numbers_under_names_of_their_own(adapter):
    logger = Logger()
    adapter(logger)({"step": 2, "evaluations": 6, "loss": 0.5, "engine": "batched"})
    assert logger.seen == [(2, {"cocd/evaluations": 6, "cocd/loss": 0.5})]


def test_tensorboard_gets_numbers_under_names_of_their_own():
    seen = []

    class Writer:
        def add_scalar(self, *values):
            seen.append(values)

    tensorboard(Writer())({"step": 2, "evaluations": 6, "loss": 0.5, "engine": "batched"})
    assert seen == [("cocd/evaluations", 6, 2), ("cocd/loss", 0.5, 2)]


def blocks(heading):
    part = re.split(r"^## ", GUIDE.read_text(encoding="utf-8"), flags=re.M)
    (section,) = [text for text in part if text.startswith(heading)]
    return re.findall(r"```python\n(.*?)```", section, flags=re.S)


def test_skorch_recipe_of_the_guide_runs():
    pytest.importorskip("skorch")
    names = {}
    for block in blocks("skorch"):
        exec(block, names)
    assert names["net"].score(names["X"], names["y"]) > 0.8


@pytest.mark.parametrize("heading", ["A loop of your own"])
def test_other_recipes_of_the_guide_run(heading):
    for block in blocks(heading):
        exec(block, {})
