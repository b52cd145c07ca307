"""The base of all zeroth-order optimizers here: groups, counting, isolation, saving."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from math import sqrt
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import (
    ParamsT,
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
)

from ..errors import NonFiniteLoss, NonFiniteWarning
from ..objective.protocol import Closure
from ..objective.traced import Objective
from ..parts.closure_checks import LOOK_AFTER, check_depends, check_ranks, check_repeats
from ..parts.evaluation import Evaluations
from ..parts.layout import check_overlap, check_tensor
from ..parts.types import Group, Modules, State
from ..parts.validation import NONFINITE, check_choice, check_group, check_modules, unique
from ..parts.warn import warn

R = TypeVar("R")

_VERSION = 2  # of the saved state
# What a group may have beside the options of the method: torch's own, and those of schedulers.
_GROUP_KEYS = ("params", "param_names", "name", "initial_lr", "max_lr", "min_lr")
_KEY = "cocd"  # where it stands in a state_dict's "state"


class ZerothOrder(Optimizer):
    """A torch optimizer whose closure returns the loss and nothing else.

    `step` returns the batch's loss at x_t, before the update, as the closure returns losses: a
    tensor (detached) or a number. Methods that evaluate f(x_t) return it. Direction methods
    evaluate pairs f(x_t + eps u), f(x_t - eps u) instead and return the mean of these, which is
    f(x_t) to second order in eps and costs no evaluation. Records of trainers call it `loss`.

    `evaluations` counts the calls of the objective, failed steps included. `checks` counts those
    that check the closure once. `skipped` counts estimates that were not stored because a loss was
    not finite.
    """

    _whole: tuple[str, ...] = (
        "nonfinite",
        "modules",
    )  # options of the optimizer, which no group may have
    _kept: tuple[str, ...] = (
        "evaluations",
        "checks",
        "skipped",
        "nonfinite",
        "modules",
        "_warned",
    )  # pickled and copied

    def __init__(self, params: ParamsT, defaults: Group, nonfinite: str, modules: Modules) -> None:
        self.evaluations = 0
        self.checks = 0
        self.skipped = 0
        self.nonfinite = check_choice("nonfinite", nonfinite, NONFINITE)
        self.modules = check_modules(modules)
        self._warned = False
        check_group(defaults)
        if isinstance(params, nn.Module):
            raise ValueError(
                f"params must be parameters, got a {type(params).__name__}; write "
                "model.parameters()"
            )
        super().__init__(_named_once(params), defaults)

    @staticmethod
    def profile_hook_step(func: Callable[..., R]) -> Callable[..., R]:
        """What torch wraps around `step`, passed by where there is no hook and no profiler.

        It opens a region of the profiler at every step, which costs more than the update does. So
        an observer of execution traces alone does not see the steps, only what they do.
        """
        wrapped = Optimizer.profile_hook_step(func)

        @functools.wraps(func)
        def step(self: ZerothOrder, *args: object, **kwargs: object) -> R:
            heard = (
                self._optimizer_step_pre_hooks
                or self._optimizer_step_post_hooks
                or _global_optimizer_pre_hooks
                or _global_optimizer_post_hooks
                or torch._C._autograd._profiler_enabled()
            )
            return (wrapped if heard else func)(self, *args, **kwargs)

        return step

    @property
    def _name(self) -> str:
        return type(self).__name__

    # --- parameters ---------------------------------------------------------------------------

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with options of their own; they join at the end."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, got {type(param_group).__name__}")
        if "params" not in param_group:
            raise ValueError("params: a parameter group needs the key 'params'")
        group = {**param_group, "params": unique(param_group["params"])}
        for name in self._whole:
            if name in group:
                raise ValueError(f"{name} is an option of the optimizer, not of a parameter group")
        self._refuse_unknown(group)
        check_group({**self.defaults, **group})
        super().add_param_group(group)
        try:
            named = list(self._named())
            for name, tensor in named:
                check_tensor(tensor, name)
            check_overlap(named)
            self._joined()
        except BaseException:
            self.param_groups.pop()
            raise

    def _refuse_unknown(self, group: Group) -> None:
        for name in group:
            if name not in self.defaults and name not in _GROUP_KEYS:
                close = get_close_matches(name, self.defaults, 1)
                meant = f"; did you mean {close[0]!r}?" if close else ""
                raise ValueError(
                    f"{name!r} is not an option of a parameter group of {self._name}, which has "
                    f"{', '.join(self.defaults)}{meant}"
                )

    def _joined(self) -> None:
        """Parameters have been added."""

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        position = 0
        for group in self.param_groups:
            names = group.get("param_names", [None] * len(group["params"]))
            for name, tensor in zip(names, group["params"], strict=True):
                yield (name or f"parameter {position}"), tensor
                position += 1

    def _parameters(self) -> list[Tensor]:
        return [tensor for group in self.param_groups for tensor in group["params"]]

    def _trainable(self) -> list[Tensor]:
        return [p for p in self._parameters() if p.requires_grad and p.numel()]

    def _groups_by_tensor(self) -> dict[int, Group]:
        """Options are read at every step, so that schedulers and hand-written changes count."""
        for group in self.param_groups:
            check_group(group)
            wide = all(tensor.dtype == torch.float64 for tensor in group["params"])
            if not wide and float(group.get("lr", 0)) > torch.finfo(torch.float32).max:
                raise ValueError(f"lr={group['lr']!r} overflows in the parameters' dtype")
            # Second differences are divided by its square, in double precision.
            largest = sqrt(sys.float_info.max) if wide else torch.finfo(torch.float32).max
            if float(group.get("eps", 0)) > largest:
                raise ValueError(
                    f"eps={group['eps']!r} overflows in the parameters' dtype; a radius is of the "
                    "size by which a weight may change, such as 0.1"
                )
        return {id(tensor): group for group in self.param_groups for tensor in group["params"]}

    # --- evaluations --------------------------------------------------------------------------

    def next_evaluations(self) -> int:
        """The number of evaluations of the next step."""
        raise NotImplementedError

    def _evaluating(
        self, closure: Closure | None, report: Callable[[int], None] | None = None
    ) -> Evaluations:
        if isinstance(closure, Objective):
            raise ValueError(
                "closure must be the loss on one batch, got the objective itself; call "
                "step(objective(inputs, target))"
            )
        if not callable(closure):
            raise ValueError(
                f"closure must be a function that returns the loss, got {closure!r}; call "
                "step(lambda: loss_fn(model(x), y))"
            )
        devices = {tensor.device for tensor in self._parameters() if not tensor.is_cpu}
        return Evaluations(closure, self.modules, devices, report or self._count)

    def _count(self, calls: int) -> None:
        self.evaluations += calls

    def _look_at_closure(self, evaluate: Evaluations, loss: float | None, changed: bool) -> None:
        """Check the closure once, after some evaluations, before a move.

        `loss` is that at x_t, if it has been evaluated; `changed`: some probe differed from others.
        """
        if not self.evaluations:
            check_ranks(evaluate)
        evaluate.look_for_writes()
        if self.checks or self.evaluations < LOOK_AFTER:
            return
        options = self._groups_by_tensor()
        with evaluate.uncounted(self._count_checks):
            loss = evaluate.again() if loss is None else loss
            check_repeats(evaluate, loss)
            if not changed:
                check_depends(
                    evaluate, loss, self._trainable(), lambda t: float(options[id(t)]["eps"])
                )

    def _count_checks(self, calls: int) -> None:
        self.checks += calls

    def _report_nonfinite(self, count: int, what: str) -> None:
        """`count` estimates are unusable: raise, or count them and warn once."""
        if not count:
            return
        if self.nonfinite == "raise":
            raise NonFiniteLoss(f"{count} {what}; nothing has changed")
        if not self._warned:  # which may raise: before anything is counted
            warn(
                f"{count} {what}: older estimates stay. Warns once; later ones are only "
                "counted in `skipped`. A smaller eps or lr may help; nonfinite='raise' stops",
                NonFiniteWarning,
            )
            self._warned = True
        self.skipped += count

    # --- saving -------------------------------------------------------------------------------

    def _snapshot(self) -> State:
        """Everything a resumed run needs, copied: numbers, strings, lists and tensors."""
        return {
            "version": _VERSION,
            "method": self._name,
            "shapes": [list(p.shape) for p in self._parameters()],
            "evaluations": self.evaluations,
            "checks": self.checks,
            "skipped": self.skipped,
            "warned": self._warned,
        }

    def _check_snapshot(self, saved: State) -> None:
        """Refuse a state that does not fit, before anything has changed."""
        if saved.get("version") != _VERSION:
            raise ValueError(
                f"state_dict has version {saved.get('version')!r}, this release reads {_VERSION}"
            )
        if saved["method"] != self._name:
            raise ValueError(
                f"state_dict was saved by {saved['method']} and cannot continue in {self._name}"
            )
        shapes = [list(p.shape) for p in self._parameters()]
        if saved["shapes"] != shapes:
            there, here = _total(saved["shapes"]), _total(shapes)
            raise ValueError(
                f"state_dict belongs to parameters of shapes {saved['shapes']} ({there} numbers), "
                f"this optimizer has {shapes} ({here} numbers)"
            )

    def _restore(self, saved: State) -> None:
        self.evaluations = int(saved["evaluations"])
        self.checks = int(saved["checks"])
        self.skipped = int(saved["skipped"])
        self._warned = bool(saved["warned"])

    def state_dict(self) -> State:
        """Everything a resumed run needs; later steps do not change it."""
        self.state[_KEY] = self._snapshot()  # type: ignore[index]
        try:
            packed = super().state_dict()
        finally:
            del self.state[_KEY]  # type: ignore[arg-type]
        for group in packed["param_groups"]:
            for name, value in group.items():
                group[name] = value.clone() if isinstance(value, Tensor) else value
        return packed

    def load_state_dict(self, state_dict: State) -> None:
        """Resume a saved run; a state that does not fit is refused and changes nothing."""
        saved = state_dict.get("state", {}).get(_KEY)
        if saved is None:
            raise ValueError("state_dict has no state of a cocd optimizer; was another one saved?")
        self._check_snapshot(saved)
        for group in state_dict["param_groups"]:
            check_group(group)
        super().load_state_dict(state_dict)
        self.state.pop(_KEY, None)  # type: ignore[call-overload]
        self._restore(saved)

    def __getstate__(self) -> State:
        """For pickle and copy: torch keeps its own part only."""
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in self._kept}}


def _named_once(params: Any) -> ParamsT:
    """A list of what may be a generator, which can be read once only."""
    if isinstance(params, (Tensor, dict)):
        return params
    return list(params)


def _total(shapes: list[list[int]]) -> int:
    return sum(int(torch.Size(shape).numel()) for shape in shapes)
