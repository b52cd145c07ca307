"""`MeZO`: Gaussian directions, without a copy of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from ...parts.evaluation import Evaluations
from ...parts.layout import Kind, views
from ...parts.types import State
from .direction_method import DirectionMethod, Options, Pair
from .mezo_log import MeZOLog, Recorder, fingerprint
from .substitution import Substitution

if TYPE_CHECKING:
    from typing_extensions import Unpack

_CHUNK = 1 << 18  # numbers drawn at a time, a multiple of the 16 that torch draws together
_MIX = 0x9E3779B97F4A7C15  # odd: the seeds of a direction's tensors differ


class MeZO(DirectionMethod):
    """Gaussian directions (Malladi et al.) in the memory of one tensor beside the forward pass.

    A direction is never stored: it is drawn again for f(x + eps u), for f(x - eps u) and for the
    move. Probes do not touch the weights: layers read x + eps u from a copy of the tensor they are
    about to use. So weights stay exact, also in half precision.

    Args:
        params: as for any torch optimizer.
        lr: the learning rate; 1e-6 is usual for a whole language model, 1e-3 for LoRA.
        eps: the radius.
        directions: number of directions averaged per step, at two evaluations each.
        weight_decay: decoupled, as in AdamW.
        nonfinite: ``"skip"`` ignores pairs with non-finite losses, ``"raise"`` raises.
        modules: as for `CoCD`.
        seed: decides the directions.
        log: keep what `cocd.replay` needs to repeat the run without an evaluation, 16 bytes per
            direction; see `log`.

    >>> import torch, cocd
    >>> x = torch.ones(3, requires_grad=True)
    >>> optimizer = cocd.baselines.MeZO([x], lr=0.05, directions=8, seed=0)
    >>> for _ in range(100):
    ...     loss = optimizer.step(lambda: (x**2).sum())
    >>> bool(x.norm() < 1e-3)
    True
    """

    _whole = (*DirectionMethod._whole, "log")
    _kept = (*DirectionMethod._kept, "_met", "_hidden", "_recorder")
    _most_kept = 1 << 20  # numbers: what is kept from the probes to the move is 4 MB at most

    def __init__(
        self, params: ParamsT, lr: float, *, log: bool = False, **options: Unpack[Options]
    ) -> None:
        self._met: set[int] = set()  # parameters, by position, of which we know how they are read
        self._hidden: set[int] = set()  # those that must be changed in place
        self._recorder: Recorder | None = None
        super().__init__(params, lr, **options)
        if log:
            self._recorder = Recorder(fingerprint(self._parameters()))

    @property
    def log(self) -> MeZOLog:
        """The run so far as seeds and differences of losses: save it, or `cocd.replay` it."""
        if self._recorder is None:
            raise ValueError("log: this MeZO keeps no log; create it with MeZO(..., log=True)")
        return self._recorder.log(self._parameters())

    # --- probe ----------------------------------------------------------------------------------

    def _one_by_one(
        self, evaluate: Evaluations, seeds: list[int], numbers: list[int]
    ) -> list[float]:
        return [self._loss(evaluate, seeds[k // 2], -1.0 if k % 2 else 1.0) for k in numbers]

    def _at_once(
        self, evaluate: Evaluations, seeds: list[int], numbers: list[int], size: int
    ) -> dict[int, float]:
        few = self._drawn is not None
        return super()._at_once(evaluate, seeds, numbers, size) if few else {}

    def _loss(self, evaluate: Evaluations, seed: int, sign: float) -> float:
        """f(x + sign eps u); what no torch function has read so far is tried in place, too."""
        options = self._groups_by_tensor()
        trainable = self._places()
        places = {id(tensor): place for place, tensor in trainable.items()}
        kept = {} if self._drawn is None else {id(t): u for t, u in self._direction(seed)}

        def shift(target: Tensor, tensor: Tensor) -> Tensor:
            by = sign * float(options[id(tensor)]["eps"])
            if kept:
                return target.add_(kept[id(tensor)], alpha=by)
            return _add_noise(target, _seed_of(seed, places[id(tensor)]), by)

        def probe(hidden: set[int]) -> tuple[float, set[int]]:
            inside = [tensor for place, tensor in trainable.items() if place in hidden]
            outside = [tensor for place, tensor in trainable.items() if place not in hidden]
            substitution = Substitution(outside, lambda p: shift(p.detach().clone(), p))
            with _in_place(inside, shift), substitution:
                loss = evaluate.moved(list(trainable.values()))
                return loss, {places[key] for key in substitution.seen}

        loss, seen = probe(self._hidden)
        new = trainable.keys() - seen - self._met - self._hidden
        if new and isfinite(loss):
            other, _ = probe(self._hidden | new)
            self._hidden |= new if other != loss else set()
            self._met |= new
            loss = other
        self._met |= seen
        return loss

    # --- directions -----------------------------------------------------------------------------

    def _places(self) -> dict[int, Tensor]:
        """What is trained, by its position among all parameters."""
        everything = enumerate(self._parameters())
        return {place: p for place, p in everything if p.requires_grad and p.numel()}

    def _draw(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        for place, tensor in self._places().items():
            u = torch.zeros(tensor.shape, dtype=Kind.of(tensor).dtype, device=tensor.device)
            yield tensor, _add_noise(u, _seed_of(seed, place), 1.0)

    def _walk(self, seed: int, by: dict[int, float]) -> None:
        if self._drawn is not None:
            super()._walk(seed, by)
            return
        for place, tensor in self._places().items():
            if by[id(tensor)]:
                _add_noise(tensor, _seed_of(seed, place), by[id(tensor)])

    def _move(self, pairs: list[Pair]) -> None:
        super()._move(pairs)
        if self._recorder is not None:
            self._recorder.add(self._places(), self.param_groups, pairs)

    # --- saving ---------------------------------------------------------------------------------

    def _snapshot(self) -> State:
        log = None if self._recorder is None else self._recorder.state()
        return {
            **super()._snapshot(),
            "met": sorted(self._met),
            "hidden": sorted(self._hidden),
            "log": log,
        }

    def _restore(self, saved: State) -> None:
        super()._restore(saved)
        self._met, self._hidden = set(saved["met"]), set(saved["hidden"])
        self._recorder = None if saved["log"] is None else Recorder(**saved["log"])


def _seed_of(seed: int, place: int) -> int:
    """A tensor's own seed in a direction, so that it can be drawn without those before it."""
    return (seed + place * _MIX) % 2**63


def _add_noise(tensor: Tensor, seed: int, by: float) -> Tensor:
    """Add `by` times a tensor of Gaussians to `tensor`, a chunk at a time."""
    # Drawn on the CPU, so that a run does not depend on where the parameters live.
    generator = torch.Generator().manual_seed(seed)
    buffer = torch.empty(min(_CHUNK, tensor.numel()), dtype=Kind.of(tensor).dtype)
    for start in range(0, tensor.numel(), _CHUNK):
        stop = min(start + _CHUNK, tensor.numel())
        u = buffer[: stop - start].normal_(generator=generator).to(tensor.device)
        for view, first, last in views(tensor, start, stop):
            view.add_(u[first - start : last - start].view(view.shape), alpha=by)
    return tensor


@contextmanager
def _in_place(tensors: list[Tensor], shift: Callable[[Tensor, Tensor], Tensor]) -> Iterator[None]:
    saved = [tensor.detach().clone() for tensor in tensors]
    try:
        for tensor in tensors:
            shift(tensor, tensor)
        yield
    finally:
        for tensor, old in zip(tensors, saved, strict=True):
            tensor.copy_(old)
