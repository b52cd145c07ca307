"""`cores`: a few numbers for each linear layer, between frozen factors of its weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from .parts.validation import check_count


class Core(nn.Module):
    """A linear layer with the weight W + U C V, of which `core` C (r x r) is to be trained.

    U S V is the singular value decomposition of W at the start, cut at rank r; `left` is U S and
    `right` is V. So a change of C by 0.1 changes W by a tenth of its own size in some direction.
    `weight` and `bias` are those of the layer and keep their names in a state_dict.
    """

    left: Tensor
    right: Tensor

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        weight = layer.weight.detach()
        wide = torch.promote_types(weight.dtype, torch.float32)
        u, s, v = torch.linalg.svd(weight.to(wide), full_matrices=False)
        self.register_buffer("left", (u[:, :rank] * s[:rank]).to(weight.dtype))
        self.register_buffer("right", v[:rank].contiguous().to(weight.dtype))
        # In half precision small steps would round to nothing.
        self.core = nn.Parameter(torch.zeros(rank, rank, dtype=wide, device=weight.device))
        self.train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        """What the layer gives, and U C V x."""
        return linear(x, self.weight, self.bias) + self.change(x)

    def change(self, x: Tensor) -> Tensor:
        """U C V x alone: what training adds to the output of the frozen layer."""
        return linear(linear(linear(x, self.right), self.core.to(self.right.dtype)), self.left)

    def merged(self) -> nn.Linear:
        """An ordinary layer with the changed weight, which is written in place."""
        with torch.no_grad():
            if self.core.any():
                wide = torch.promote_types(self.weight.dtype, torch.float32)
                change = self.left.to(wide) @ self.core.to(wide) @ self.right.to(wide)
                self.weight.copy_((self.weight.to(wide) + change).to(self.weight.dtype))
        rows, columns = self.weight.shape
        layer = nn.Linear(columns, rows, bias=self.bias is not None, device="meta")
        layer.weight, layer.bias = self.weight, self.bias
        return layer.train(self.training)


def cores(model: nn.Module, rank: int = 4, layers: str | Iterable[str] = "*") -> list[nn.Parameter]:
    """Give linear layers of `model` r x r cores between frozen factors, as in LoRA-XS.

    A core has r^2 numbers, whatever the size of its layer: few enough for a sweep over coordinates,
    and each has a large effect. The model computes the same as before until the cores are trained.
    `merge_cores` turns them back into ordinary layers.

    Args:
        model: changed in place. Weights shared with another layer are left alone, since merging
            would change that layer, too.
        rank: r.
        layers: patterns of layer names such as ``"*.q_proj"``; all by default.

    Returns:
        The cores, for an optimizer. Other parameters keep their ``requires_grad``.

    >>> import torch, cocd
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 9))
    >>> x, y = torch.randn(8, 20), torch.zeros(8, 9)
    >>> optimizer = cocd.AutoCoCD(cocd.cores(model, rank=2))
    >>> for _ in range(5):
    ...     loss = optimizer.step(lambda: nn.functional.mse_loss(model(x), y))
    >>> cocd.merge_cores(model)
    Sequential(
      (0): Linear(in_features=20, out_features=30, bias=True)
      (1): Tanh()
      (2): Linear(in_features=30, out_features=9, bias=True)
    )
    """
    rank = check_count("rank", rank)
    patterns = [layers] if isinstance(layers, str) else list(layers)
    if any(isinstance(module, Core) for module in model.modules()):
        raise ValueError("model has cores already; call merge_cores(model) before new ones")
    owners = Counter(id(p) for module in model.modules() for p in module._parameters.values())
    chosen = {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear
        and owners[id(module.weight)] == 1
        and any(fnmatchcase(name, pattern) for pattern in patterns)
        and name
    }
    if not chosen:
        raise ValueError(
            f"layers={layers!r} matches no linear layer of model that has a weight of its own; "
            "patterns are compared with the names in model.named_modules()"
        )
    for name, layer in chosen.items():
        if rank > min(layer.weight.shape):
            raise ValueError(
                f"rank={rank} is more than {name} has, whose weight has the shape "
                f"{tuple(layer.weight.shape)}; lower it, or leave that layer out with `layers`"
            )
    made = {id(layer): Core(layer, rank) for layer in chosen.values()}
    _exchange(model, made)
    return [core.core for core in made.values()]


def merge_cores(model: nn.Module) -> nn.Module:
    """Add the cores' changes to the weights and restore ordinary layers.

    Returns:
        `model`, which computes the same as before, to rounding.
    """
    found = [module for module in model.modules() if isinstance(module, Core)]
    if not found:
        raise ValueError("model has no cores; cores(model) makes them")
    _exchange(model, {id(core): core.merged() for core in found})
    return model


def _exchange(model: nn.Module, by: Mapping[int, nn.Module]) -> None:
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if id(child) in by:
                parent._modules[name] = by[id(child)]
