import copy
from dataclasses import replace

import pytest
import torch
from cocd_paper import methods, tasks
from cocd_paper.estimators import StaleGradient
from cocd_paper.plans import deepzero, generate
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


def sparse(label):
    return next(r for r in generate("deepzero") if r.label == label and r.group == "methods")


@pytest.mark.parametrize("label", ["CoCD on the mask, redrawn", "Random coordinates"])
def test_a_sparse_run_on_augmented_images_resumes_to_the_bit(label):
    run = shrink(sparse(label))
    training = Training(run, tasks.load(run, None))
    training.step()
    state = copy.deepcopy(training.state_dict())
    expected = [training.step() for _ in range(3)]
    resumed = Training(run, tasks.load(run, None))
    resumed.load_state_dict(state)
    assert [resumed.step() for _ in range(3)] == expected
    assert resumed.evaluations == training.evaluations


def test_deepzeros_estimator_probes_its_whole_mask_and_nothing_else():
    run = shrink(sparse("Sparse CGE, redrawn (DeepZero)"))
    run = replace(run, settings={**run.options, "compute_budget": deepzero.MASK})
    training = Training(run, tasks.load(run, None))
    before = training.evaluations
    assert before == 2 * run.options["directions"] + 2
    training.step()
    gradient = training.optimizer.estimator
    assert gradient.schedule.size == deepzero.MASK == gradient.compute_budget
    assert training.parameters == deepzero.ALL
    kept = [p for p in training.model.parameters() if p.ndim == 1]
    assert sum(p.numel() for p in kept) == 130
    probed = gradient.estimate().count_nonzero()
    assert 0.5 * deepzero.MASK < probed <= deepzero.MASK


def test_the_methods_make_equal_evaluations():
    for run in generate("deepzero"):
        if run.method == "coherent" and run.options["compute_budget"] != deepzero.ALL:
            made = run.steps_per_epoch * methods.cost("coherent", run.options)
            assert made == pytest.approx(deepzero.EVALUATIONS, rel=0.02), run.label


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"order": "backwards"}, "order must be one of cyclic, spread, random, got 'backwards'"),
        ({"ratios": "guessed"}, "ratios must be 'equal' or 'zo-grasp', got 'guessed'"),
    ],
)
def test_unknown_orders_and_ratios_are_refused(own, said):
    run = shrink(sparse("Sparse CGE, static"))
    run = replace(run, settings={**run.options, **own})
    with pytest.raises(ValueError, match=said):
        Training(run, tasks.load(run, None))


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
