"""The built-in rules, one family per file; importing this package registers them."""

from . import (
    attention,
    convolution,
    elementwise,
    embedding,
    features,
    joining,
    linear,
    matmul,
    normalisation,
    pooling,
    reading,
    rows,
    scaled_attention,
    shape,
)

__all__ = [
    "attention",
    "convolution",
    "elementwise",
    "embedding",
    "features",
    "joining",
    "linear",
    "matmul",
    "normalisation",
    "pooling",
    "reading",
    "rows",
    "scaled_attention",
    "shape",
]
