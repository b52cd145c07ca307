"""A forward pass as torch's overrides see it: recorded once, then replayed with nudges.

Nothing is installed on the model: a `TorchFunctionMode` sees every call of every forward, however
it is written, until the ``with`` block ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ..objective.registry import Args, Function, Kwargs
from . import attention
from .recurrent import UNROLLED
from .rules import RULES, Named, UnitRule

_DROPOUTS: dict[Function, str] = {
    F.dropout: "input p training inplace",
    torch.dropout: "input p training",
    F.dropout1d: "input p training inplace",
    F.dropout2d: "input p training inplace",
    F.dropout3d: "input p training inplace",
    F.alpha_dropout: "input p training inplace",
    F.feature_alpha_dropout: "input p training inplace",
}
POOLS = {F.max_pool1d: 1, F.max_pool2d: 2, F.max_pool3d: 3}  # and their dimensions
_OPENED: dict[Function, Function] = {
    F.multi_head_attention_forward: attention.multi_head,
    F.scaled_dot_product_attention: attention.with_dropout,
    **UNROLLED,
}


# x += y binds x again: a stack of nudged values may not be written into one of plain values.
_REBOUND: dict[Function, Function] = {
    getattr(Tensor, f"__i{name}__"): getattr(Tensor, f"__{name}__")
    for name in ("add", "sub", "mul", "truediv")
}


@dataclass(frozen=True, eq=False)
class Parameter:
    """A trainable parameter, or the part of it that a view shows."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, tensor: Tensor) -> Tensor:
        """The same part of a tensor that lies in memory as the parameter does."""
        return tensor.as_strided(self.shape, self.stride, self.offset)

    @property
    def key(self) -> tuple[object, ...]:
        return (self.name, self.shape, self.stride, self.offset)


@dataclass(eq=False)
class Site:
    """One call whose output depends on parameters by a rule."""

    function: Function
    args: Args
    kwargs: Named
    rule: UnitRule
    arguments: Kwargs
    parameters: dict[str, Parameter]
    output: Tensor
    scale: float  # root mean square of the output
    version: int  # of the input, to notice if it is written to later
    statistics: tuple[Tensor, Tensor] | None = None  # of a batch norm in train mode

    @property
    def input(self) -> Tensor:
        names = ("input", "other", "input1")
        given = [
            self.arguments[n] for n in names if n not in self.parameters and n in self.arguments
        ]
        return next((t for t in given if isinstance(t, Tensor)), self.output)

    def again(self) -> Tensor:
        """The call once more, with its parameters as they are now."""
        if self.statistics is None:
            out: Tensor = self.function(*self.args, **self.kwargs)
            return out
        return self.normalise(self.input)

    def normalise(self, x: Tensor) -> Tensor:
        """A batch norm in train mode, with the statistics of the recorded batch."""
        assert self.statistics is not None
        mean, inverse = self.statistics
        shape = [1, -1] + [1] * (x.dim() - 2)
        out = (x - mean) * inverse
        if (weight := self.arguments.get("weight")) is not None:
            out = out * weight.view(shape)
        if (bias := self.arguments.get("bias")) is not None:
            out = out + bias.view(shape)
        return out

    @property
    def written(self) -> bool:
        return self.input._version != self.version


@dataclass(eq=False)
class TapeCall:
    """Any other call, to see how one tensor becomes the next."""

    function: Function
    args: Args
    kwargs: Named
    output: object
    site: Site | None = None
    noise: Tensor | None = None  # of a dropout
    winners: Tensor | None = None  # of a max-pooling


class _Walk(TorchFunctionMode):
    """What recording and replaying have in common: which calls are opened and which matter."""

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if _hashable(func) and func in _OPENED:
            try:
                with self:
                    return _OPENED[func](*args, **kwargs)
            except NotImplementedError:  # a form that is not opened; its parameters have no rule
                return self.other(func, args, kwargs)
        if _hashable(func) and func in _DROPOUTS:
            named = {**dict(zip(_DROPOUTS[func].split(), args, strict=False)), **kwargs}
            if named.get("training", True) and named.get("p", 0.5) > 0:
                return self.dropout(func, named)
        rule = RULES.get(func) if _hashable(func) else None
        if rule is None:
            return self.other(func, args, kwargs)
        return self.ruled(func, rule, args, kwargs)

    def dropout(self, func: Function, named: Kwargs) -> Tensor:
        raise NotImplementedError

    def other(self, func: Function, args: Args, kwargs: Named) -> object:
        raise NotImplementedError

    def ruled(self, func: Function, rule: UnitRule, args: Args, kwargs: Named) -> object:
        raise NotImplementedError


def _hashable(func: object) -> bool:
    try:
        hash(func)
    except TypeError:
        return False
    return True


def normalises_batch(func: Function, named: Named) -> bool:
    """Whether this is a batch norm with batch statistics."""
    return func is F.batch_norm and bool(named.get("training"))


class Tape(_Walk):
    """The unperturbed pass: sites in order, the calls between them, parameters without a rule."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._names = {id(p): name for name, p in parameters.items()}
        self.sites: list[Site] = []
        self.calls: list[TapeCall] = []
        self.output: object = None  # of the model
        self.noise: list[Tensor] = []
        self._overwritten: dict[int, Tensor] = {}  # storages that a dropout in place writes to
        self.seen: set[str] = set()
        self.without_rule: dict[str, str] = {}  # parameter -> the call that has none

    def parameter(self, value: object) -> Parameter | None:
        """The trainable parameter that this is, or that it is a view of."""
        if not isinstance(value, Tensor):
            return None
        whole = value if value._base is None else value._base
        name = self._names.get(id(whole))
        if name is None or value.dtype != whole.dtype:
            return None
        offset = int(value.storage_offset()) - int(whole.storage_offset())
        return Parameter(name, tuple(value.shape), value.stride(), offset)

    def dropout(self, func: Function, named: Kwargs) -> Tensor:
        x = named.pop("input")
        inplace = named.pop("inplace", False)
        named["training"] = True
        self._refuse_overwritten(x)
        # What it multiplies with; the alpha forms also add something.
        if func in (F.alpha_dropout, F.feature_alpha_dropout):
            state = torch.get_rng_state()
            shift = func(torch.zeros_like(x), **named)
            torch.set_rng_state(state)
            mask = func(torch.ones_like(x), **named) - shift
            self.noise += [mask, shift]
            out: Tensor = x * mask + shift
        else:
            mask = func(torch.ones_like(x), **named)
            self.noise.append(mask)
            out = x * mask
        self.calls.append(TapeCall(func, (x,), {}, out, noise=mask))
        if inplace:  # x stays as it was, for the patches; so nobody may read it again
            self._overwritten[x.untyped_storage().data_ptr()] = x
        return out

    def _refuse_overwritten(self, *values: object) -> None:
        if self._overwritten and any(
            isinstance(t, Tensor) and t.untyped_storage().data_ptr() in self._overwritten
            for t in _flat(values)
        ):
            raise ValueError(
                "the input of a dropout with inplace=True is read again after it, which unit "
                "probes do not follow; use inplace=False and the dropout's output"
            )

    def finish(self, output: object) -> None:
        """Finish the recording with this output."""
        self._refuse_overwritten(*tree_leaves(output))
        self.output = output

    def other(self, func: Function, args: Args, kwargs: Named) -> object:
        self._refuse_overwritten(args, tuple(kwargs.values()))
        if func in POOLS and not kwargs.get("return_indices") and len(args) < 7:
            out, winners = func(*args, **{**kwargs, "return_indices": True})
            self.calls.append(TapeCall(func, args, kwargs, out, winners=winners))
            return out
        out = func(*args, **kwargs)
        self._note(func, args, kwargs, out)
        return out

    def _note(self, func: Function, args: Args, kwargs: Named, out: object) -> None:
        if not any(isinstance(t, Tensor) for t in _flat(out)):
            return  # a size, a flag
        self.calls.append(TapeCall(func, args, kwargs, out))
        for value in _flat((args, tuple(kwargs.values()))):
            found = self.parameter(value)
            if found is not None:
                self.seen.add(found.name)
                if not all(o is value or self.parameter(o) for o in _flat(out)):
                    name = getattr(func, "__name__", str(func))
                    self.without_rule.setdefault(found.name, f"no unit rule for {name}")

    def ruled(self, func: Function, rule: UnitRule, args: Args, kwargs: Named) -> object:
        named = rule.bind(args, kwargs)
        parameters = {n: p for n in rule.parameters if (p := self.parameter(named.get(n)))}
        batch = normalises_batch(func, named)
        if not parameters and not batch:
            return self.other(func, args, kwargs)
        self._refuse_overwritten(args, tuple(kwargs.values()))
        statistics = _statistics(named["input"], named.get("eps", 1e-5)) if batch else None
        out = func(*args, **kwargs)
        self.seen |= {p.name for p in parameters.values()}
        scale = (
            float(out.detach().square().mean(dtype=torch.float32).sqrt()) if out.numel() else 0.0
        )
        site = Site(func, args, kwargs, rule, named, parameters, out, scale, 0, statistics)
        site.version = site.input._version
        self.sites.append(site)
        self.calls.append(TapeCall(func, args, kwargs, out, site))
        return out


def _statistics(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and one over the deviation of every channel, shaped to be broadcast over x."""
    var, mean = torch.var_mean(x, [i for i in range(x.dim()) if i != 1], correction=0, keepdim=True)
    return mean, (var + eps).rsqrt()


def _flat(value: object) -> list[object]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]


class Diverged(ValueError):
    """The forward did not make the calls that it made when it was recorded."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the model's forward does not repeat itself ({what}); unit probes need one that makes "
            "the same calls for the same batch; use cocd.CoCD or cocd.AutoCoCD for this model"
        )


@dataclass
class Nudges:
    """The values added to the outputs of sites, by position in the recording."""

    added: dict[int, Tensor]
    pulls: dict[int, Tensor] = field(default_factory=dict)  # see `Replay.pulled`


class Replay(_Walk):
    """The same pass with nudged outputs.

    Masks are those of the recording, and so are the statistics of batch norms: what their change
    does to the loss is in `pulled`, a linear term.
    """

    def __init__(self, recording: Tape, nudges: Nudges) -> None:
        super().__init__()
        self._recording = recording
        self._nudges = nudges
        self._site = self._noise = 0
        self.pulled: Tensor | float = 0.0  # per sample

    def dropout(self, func: Function, named: Kwargs) -> Tensor:
        mask = self._next_noise()
        if func in (F.alpha_dropout, F.feature_alpha_dropout):
            shifted: Tensor = named["input"] * mask + self._next_noise()
            return shifted
        dropped: Tensor = named["input"] * mask
        return dropped

    def _next_noise(self) -> Tensor:
        self._noise += 1
        if self._noise > len(self._recording.noise):
            raise Diverged("more dropouts than when it was recorded")
        return self._recording.noise[self._noise - 1]

    def other(self, func: Function, args: Args, kwargs: Named) -> object:
        if kwargs.get("inplace"):  # what is kept of the recording must not be written to
            kwargs = {**kwargs, "inplace": False}
        return (
            _REBOUND.get(func, func)(*args, **kwargs) if _hashable(func) else func(*args, **kwargs)
        )

    def ruled(self, func: Function, rule: UnitRule, args: Args, kwargs: Named) -> object:
        named = rule.bind(args, kwargs)
        batch = normalises_batch(func, named)
        recording = self._recording
        if not batch and not any(recording.parameter(named.get(n)) for n in rule.parameters):
            return self.other(func, args, kwargs)
        position = self._site
        self._site += 1
        if position >= len(recording.sites) or recording.sites[position].rule is not rule:
            raise Diverged("other layers than when it was recorded")
        site = recording.sites[position]
        out = self._normalise(site, position, named) if batch else func(*args, **kwargs)
        nudge = self._nudges.added.get(position)
        if nudge is not None:
            if nudge.shape != out.shape:
                raise Diverged("a layer's output has another shape than when it was recorded")
            out = out + nudge
        return out

    def _normalise(self, site: Site, position: int, named: Named) -> Tensor:
        x = named["input"]
        pull = self._nudges.pulls.get(position)
        if pull is not None:
            moved = (x - site.arguments["input"]) * pull
            self.pulled = self.pulled + moved.flatten(1).sum(1, dtype=torch.float64)
        return site.normalise(x)

    def finish(self) -> None:
        """Check that all recorded calls were made."""
        if self._site != len(self._recording.sites) or self._noise != len(self._recording.noise):
            raise Diverged("fewer calls than when it was recorded")


def modules_of(*candidates: object) -> list[nn.Module]:
    """Those that are modules, whose buffers an evaluation may change."""
    return [c for c in candidates if isinstance(c, nn.Module)]
