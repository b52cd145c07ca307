"""The rules that come with the package, one family a file; importing this registers them."""

from . import attention, convolution, elementwise, embedding, linear, normalisation, pooling, shape

__all__ = [
    "attention",
    "convolution",
    "elementwise",
    "embedding",
    "linear",
    "normalisation",
    "pooling",
    "shape",
]
