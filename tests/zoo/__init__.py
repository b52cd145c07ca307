"""Small architectures, each with the engine that every one of its parameters must be probed by.

`ZOO` maps names to functions that build a `Case`: a model with its loss, a batch, and the engines.
"""

import torch

from . import images, language, losses, sequences, structures
from .case import Case

ZOO = {
    name: build
    for module in (structures, images, sequences, language, losses)
    for name, build in vars(module).items()
    if getattr(build, "__module__", "") == module.__name__ and not name.startswith("_")
}


def build(name: str, dtype: torch.dtype = torch.float64) -> Case:
    """The entry of that name, the same one every time."""
    torch.manual_seed(0)
    return ZOO[name]().to(dtype)
