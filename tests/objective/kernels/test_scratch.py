"""Memory that is handed out again: never twice at a time, and as large as was asked for."""

from __future__ import annotations

import torch

from cocd.objective.kernels.scratch import _MOST_VIEWS, Scratch


def test_what_is_handed_out_does_not_overlap_until_the_reset() -> None:
    scratch = Scratch()
    first, second = scratch.take((3, 4), torch.float32), scratch.take((3, 4), torch.float32)
    first.fill_(1)
    second.fill_(2)
    assert bool((first == 1).all())
    scratch.reset()
    assert scratch.take((3, 4), torch.float32).data_ptr() == first.data_ptr()


def test_a_pool_that_grows_takes_its_views_along() -> None:
    scratch = Scratch()
    small = scratch.take((2,), torch.float32)
    scratch.reset()
    large = scratch.take((1000,), torch.float32)
    scratch.reset()
    again = scratch.take((2,), torch.float32)
    assert again.data_ptr() == large.data_ptr() != small.data_ptr()
    assert scratch.bytes == 4000  # the small one is not held


def test_dtypes_and_shapes_have_places_of_their_own() -> None:
    scratch = Scratch()
    assert scratch.take((2, 3), torch.float32).shape == (2, 3)
    assert scratch.take((2, 3), torch.float64).dtype == torch.float64
    scratch.reset()
    assert scratch.take((6,), torch.float32).shape == (6,)


def test_views_do_not_pile_up() -> None:
    scratch, most = Scratch(), 0
    for size in range(3 * _MOST_VIEWS, 0, -1):  # the pool is large enough from the start
        scratch.reset()
        assert scratch.take((1, size), torch.float32).shape == (1, size)
        most = max(most, len(scratch._views))
    assert _MOST_VIEWS <= most <= _MOST_VIEWS + 1
