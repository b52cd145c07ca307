"""Checksums of the ranks' states, and which rank differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from hashlib import blake2b

import torch
from torch import Tensor, nn

from ..optim.base import ZerothOrder

# The compared parts, and the remedy if one differs.
PARTS = {
    "parameters": "seed before the model is built, or load the same checkpoint on all ranks",
    "optimizer's state": "give it the same options on all ranks, or load the same checkpoint",
    "random numbers": "call torch.manual_seed with the same seed on all ranks",
    "module buffers": "give all ranks the same batches, also those outside of steps",
}


def state(optimizer: ZerothOrder, modules: Iterable[nn.Module] | None) -> tuple[int, ...]:
    """A checksum for each of `PARTS`; the buffers are those of `modules`."""
    saved = optimizer.state_dict()
    inner = dict(saved["state"]["cocd"])
    del inner["evaluations"]  # in a failed step each rank counts its own
    parameters = optimizer._parameters()
    devices = {p.device for p in parameters if p.device.type != "cpu"}
    random = [torch.get_rng_state()] + [
        torch.get_device_module(d).get_rng_state(d) for d in sorted(devices, key=str)
    ]
    buffers = [list(module.buffers()) for module in modules or ()]
    return tuple(map(digest, (parameters, [inner, saved["param_groups"]], random, buffers)))


def digest(tree: object) -> int:
    """A 64-bit digest of numbers, strings, tensors, and lists and dictionaries of them.

    >>> digest([1.0, {"a": "b"}]) == digest([1.0, {"a": "b"}])
    True
    >>> digest([torch.zeros(2)]) == digest([torch.tensor([0.0, -0.0])])
    False
    """
    total = blake2b(digest_size=8)
    _add(total, tree)
    return int.from_bytes(total.digest(), "little", signed=True)


def _add(total: blake2b, tree: object) -> None:
    if isinstance(tree, Tensor):
        total.update(f"{tree.dtype}{tuple(tree.shape)}".encode())
        if tree.numel():
            flat = tree.detach().cpu().contiguous().view(-1)
            total.update(flat.view(torch.uint8).numpy().data)
    elif isinstance(tree, dict):
        for key in sorted(tree, key=str):
            total.update(f"{key}:".encode())
            _add(total, tree[key])
    elif isinstance(tree, (list, tuple)):
        total.update(f"[{len(tree)}]".encode())
        for item in tree:
            _add(total, item)
    else:
        # The repr of a user's object in a group may contain its address; compare only its type.
        plain = isinstance(tree, (bool, int, float, str)) or tree is None
        total.update(f"{tree!r};".encode() if plain else type(tree).__name__.encode())


def odd_one(values: Sequence[Hashable]) -> tuple[int, int] | None:
    """The first rank that differs from the majority, and one of the majority; None if all agree.

    >>> odd_one([5, 5, 7]), odd_one([7, 5, 5]), odd_one([5, 7]), odd_one([5, 5])
    ((2, 0), (0, 1), (1, 0), None)
    """
    usual = Counter(values).most_common(1)[0][0]
    odd = next((rank for rank, value in enumerate(values) if value != usual), None)
    return None if odd is None else (odd, list(values).index(usual))
