"""The rules that come with the package, one family a file; importing this registers them."""

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
