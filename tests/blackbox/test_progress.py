"""Saved searches: continued to the bit, refused where they do not fit."""

import numpy as np
import pytest
from blackboxes import bowl
from searches import PLAIN, drive, same

import cocd


@pytest.mark.parametrize("eps", [0.1, None])
@pytest.mark.parametrize("batches", [0, 1, 2, 5])
@pytest.mark.parametrize("some", [0, 2])
def test_resuming_gives_the_same_run(eps, batches, some):
    options = {**PLAIN, "eps": eps, "memory_budget": 3, "maxfev": 60}
    whole = cocd.AskTell(np.ones(5), **options, rng=7)
    drive(whole)
    first = cocd.AskTell(np.ones(5), **options, rng=7)
    drive(first, steps=batches)
    if some:
        points = first.ask()
        first.tell([bowl(points[1]), bowl(points[3])], index=[1, 3])
    state = first.state_dict()
    first.ask()
    first.tell([9.0] * len(first.pending), index=first.pending)  # a saved state is a copy
    second = cocd.AskTell(np.ones(5), **options, rng=8)
    second.load_state_dict(state)
    if some:
        assert 1 not in second.pending
        points = second.ask()
        second.tell([bowl(points[row]) for row in second.pending], index=second.pending)
    drive(second)
    assert same(second.state_dict(), whole.state_dict())


def test_a_finished_search_goes_on_with_higher_limits():
    short = cocd.AskTell(np.ones(3), **PLAIN, maxiter=2)
    drive(short)
    longer = cocd.AskTell(np.ones(3), **PLAIN, maxiter=6)
    longer.load_state_dict(short.state_dict())
    assert not longer.done
    drive(longer)
    straight = cocd.AskTell(np.ones(3), **PLAIN, maxiter=6)
    drive(straight)
    assert np.array_equal(longer._rule.x, straight._rule.x) and longer.nit == 6
    again = cocd.AskTell(np.ones(3), **PLAIN, maxiter=2)
    again.load_state_dict(short.state_dict())
    assert again.done and same(again.state_dict(), short.state_dict())


@pytest.mark.parametrize(
    "other",
    [{"lr": 0.3}, {"eps": 0.2}, {"decay": 1.0}, {"compute_budget": 1}, {"memory_budget": 2}],
)
def test_states_of_other_problems_are_refused(other):
    state = cocd.AskTell(np.ones(3), **PLAIN).state_dict()
    search = cocd.AskTell(np.ones(3), **{**PLAIN, **other})
    before = search.state_dict()
    with pytest.raises(ValueError, match=f"another problem.*{next(iter(other))}"):
        search.load_state_dict(state)
    assert same(search.state_dict(), before)


def test_damaged_states_are_refused():
    search = cocd.AskTell(np.ones(3), **PLAIN)
    state = search.state_dict()
    for wrong, word in [
        ({}, "not that of"),
        (None, "not that of"),
        ({**state, "version": 9}, "version 9"),
        ({**state, "settings": {**state["settings"], "method": "auto"}}, "method='auto'"),
        ({**state, "rule": {**state["rule"], "x": np.zeros(5)}}, "damaged"),
        ({**state, "rule": {}}, "damaged"),
        ({**state, "phase": {**state["phase"], "values": np.zeros(2)}}, "damaged"),
        ({k: v for k, v in state.items() if k != "counts"}, "damaged"),
    ]:
        with pytest.raises(ValueError, match=word):
            search.load_state_dict(wrong)
        assert same(search.state_dict(), state)
