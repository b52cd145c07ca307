"""A forward that writes to trainable parameters is refused, and they are restored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def unwritten(parameters: Mapping[str, Tensor]) -> Iterator[None]:
    """Raise `ValueError` if a forward inside changed a parameter; restore all bit for bit.

    The gradient would belong to other weights than the optimizer's.
    """
    before = {name: (p.data, p._version, p.detach().clone()) for name, p in parameters.items()}
    written = ""
    try:
        yield
    finally:
        for name, (data, version, values) in before.items():
            p = parameters[name]
            replaced = p.data_ptr() != data.data_ptr()
            if replaced or p._version != version or not _same(p.detach(), values):
                written = written or name
                if replaced:
                    p.data = data
                with torch.no_grad():
                    p.copy_(values)
    if written:
        raise ValueError(
            f"the model's forward writes to its parameter {written} (a max_norm, say, or weights "
            "that are normalised in place), so unit probes would move other weights than they "
            "mean to; normalise outside of the forward, or freeze the parameter"
        )


def _same(one: Tensor, two: Tensor) -> bool:
    return torch.equal(one, two) or bool(((one == two) | (one.isnan() & two.isnan())).all())
