import copy

import pytest
import torch
from cocd_paper import methods, tasks
from cocd_paper.estimators import StaleGradient
from cocd_paper.plans import generate
from cocd_paper.plans.paper import shrink
from cocd_paper.training import Training


def small(method, stepper):
    wanted = {"stepper": stepper, "decay": 1.0}
    runs = generate("reuse", tasks=["sarcos"])
    return shrink(
        next(r for r in runs if r.method == method and wanted.items() <= r.options.items())
    )


@pytest.mark.parametrize("method", ["coherent", "stale"])
@pytest.mark.parametrize("stepper", ["sgd", "adamw", "muon"])
def test_a_run_with_an_estimator_resumes_to_the_bit(method, stepper):
    run = small(method, stepper)
    training = Training(run, tasks.load(run, None))
    for _ in range(2):
        training.step()
    state = copy.deepcopy(training.state_dict())
    expected = [training.step() for _ in range(3)]
    resumed = Training(run, tasks.load(run, None))
    resumed.load_state_dict(state)
    assert [resumed.step() for _ in range(3)] == expected
    assert resumed.evaluations == training.evaluations


def test_stale_true_gradients_are_fresh_in_one_block_a_call_and_decay_elsewhere():
    p = torch.nn.Parameter(torch.zeros(4))
    estimator = StaleGradient([p], compute_budget=2, decay=0.5)
    slopes = torch.arange(1.0, 5.0)
    estimator(lambda: slopes @ p)
    assert p.grad.tolist() == [1.0, 2.0, 0.0, 0.0]
    estimator(lambda: slopes @ p)
    assert p.grad.tolist() == [0.5, 1.0, 3.0, 4.0]


def test_one_sided_estimates_cost_half():
    assert methods.cost("coherent", {"compute_budget": 64, "difference": "forward"}) == 65
    assert methods.cost("stale", {"compute_budget": 64}) == 1
