"""Llama checkpoints in the format of llama2.c: seven int32, then float32 weights."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Shape(NamedTuple):
    """The header. A positive vocabulary says that the classifier shares the embedding."""

    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    length: int


def read(path: Path) -> tuple[Shape, dict[str, Tensor]]:
    """The shape of the model, and its weights under the names that `llama.Llama` gives them."""
    content = np.fromfile(path, dtype="<i4", count=7)
    if len(content) < 7 or (content < 1).any():
        raise ValueError(f"{path} is no llama2.c checkpoint with a shared classifier")
    shape = Shape(*content.tolist())
    dim, hidden, layers, vocabulary = shape.dim, shape.hidden, shape.layers, shape.vocabulary
    kv = dim // shape.heads * shape.kv_heads
    sizes = {
        "embedding.weight": (vocabulary, dim),
        "blocks.{}.attention_norm.weight": (layers, dim),
        "blocks.{}.query.weight": (layers, dim, dim),
        "blocks.{}.key.weight": (layers, kv, dim),
        "blocks.{}.value.weight": (layers, kv, dim),
        "blocks.{}.output.weight": (layers, dim, dim),
        "blocks.{}.feed_norm.weight": (layers, dim),
        "blocks.{}.gate.weight": (layers, hidden, dim),
        "blocks.{}.down.weight": (layers, dim, hidden),
        "blocks.{}.up.weight": (layers, hidden, dim),
        "norm.weight": (dim,),
    }
    numbers = torch.from_numpy(np.fromfile(path, dtype="<f4", offset=28))
    needed = sum(int(np.prod(size)) for size in sizes.values())
    if len(numbers) < needed:  # tables of sines and cosines follow, which are computed here
        raise ValueError(f"{path} ends early: {len(numbers)} weights where {needed} are needed")
    found, start = {}, 0
    for name, size in sizes.items():
        part = numbers[start : start + int(np.prod(size))].view(size)
        start += part.numel()
        if "{}" in name:
            found.update({name.format(i): part[i].clone() for i in range(layers)})
        else:
            found[name] = part.clone()
    return shape, found
