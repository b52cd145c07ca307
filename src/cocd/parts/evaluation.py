"""One step's evaluations of the objective, each from the same state.

Every evaluation of a step sees the same random numbers and the same module buffers, and the whole
step advances both as its first evaluation did: from outside, 2B + 1 evaluations look like one, and
a failed step looks like none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from math import nan
from numbers import Real
from types import TracebackType

import torch
from torch import Tensor, nn

from ..objective.closure import bound
from ..objective.protocol import Closure, LossValue
from .buffers import Buffers, watching
from .interrupts import Interrupts
from .random_state import RandomState

_NO_GRAPH = "does not require grad"  # what torch says of backward() under no_grad
_REAL = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Evaluations(AbstractContextManager["Evaluations"]):
    """Calls the closure, counts the calls and undoes their side effects.

    ``evaluate()`` returns the loss as a float. Only the side effects of the first call remain after
    the step. `bound` is the closure in a form that can evaluate many losses at once.
    """

    def __init__(
        self,
        closure: Closure,
        modules: Iterable[nn.Module] | None,
        devices: Iterable[torch.device],
        report: Callable[[int], None],
    ) -> None:
        self.closure = closure
        self.bound = bound(closure)
        self._report = report  # gets the number of calls at the end, even of a failed step
        self.count = 0
        self.first: LossValue = nan  # what the closure returned the first time, for the caller
        self.interrupts = Interrupts()
        self._random = RandomState(devices)
        self._buffers = Buffers()
        self._modules = modules
        self._grad_mode = torch.no_grad()
        self._autocast_cache = torch.is_autocast_cache_enabled()
        self.inside_autocast = torch._C._is_any_autocast_enabled()

    def __enter__(self) -> Evaluations:
        self.interrupts.__enter__()
        self._grad_mode.__enter__()
        # An autocast region around the step would cache its casts of the unperturbed weights.
        torch.set_autocast_cache_enabled(False)
        known = self.bound.modules() if self._modules is None else self._modules
        for module in known or ():
            self._buffers.watch(module)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._report(self.count)
        self.bound.release()
        try:
            # After a failure restore the state before the step, otherwise that after one call.
            if kind is not None or self.count == 0:
                self.look_for_writes()
                self._random.rewind()
                self._buffers.rewind()
            else:
                self._random.finish()
                self._buffers.finish()
        finally:
            torch.clear_autocast_cache()
            torch.set_autocast_cache_enabled(self._autocast_cache)
            self._grad_mode.__exit__(kind, value, traceback)
            self.interrupts.__exit__(kind, value, traceback)

    def __call__(self, prepare: bool = False) -> float:
        """The loss. With `prepare` the closure may keep what later probes need."""
        if not self.count:
            value = self._call_first(self.bound.prepare if prepare else None)
            if prepare:
                with self.bound.standing():
                    self._buffers.parameters.keep()
            return value
        return self.again()

    def rewind(self) -> None:
        """Restore the random numbers and buffers of the beginning of the step."""
        self._random.rewind()
        self._buffers.rewind()

    def charge(self, calls: int) -> None:
        """Count evaluations made without calling the closure."""
        self.count += calls

    @contextmanager
    def uncounted(self, report: Callable[[int], None]) -> Iterator[None]:
        """Report the evaluations made inside to `report` instead of counting them here."""
        before = self.count
        try:
            yield
        finally:
            report(self.count - before)
            self.count = before

    @property
    def averages_gradients(self) -> bool:
        """Whether a DistributedDataParallel on several ranks is among the modules."""
        return self._buffers.parallel and torch.distributed.get_world_size() > 1

    def _call_first(self, prepare: Callable[[Callable[[], None]], LossValue] | None) -> float:
        try:
            # `restored` undoes what further evaluations write into parameters.
            with self.bound.standing(), ExitStack() as restored:
                rewind = partial(self._begin_again, restored)
                return self._first_value(partial(prepare, rewind) if prepare else self.closure)
        except RuntimeError as error:
            if _NO_GRAPH not in str(error):
                raise
            raise ValueError(
                "closure calls backward(), but losses are evaluated without a graph: return the "
                "loss alone, without backward() and zero_grad()"
            ) from error

    def _begin_again(self, restored: ExitStack) -> None:
        """End the first evaluation and prepare another before the probes."""
        self._buffers.parameters.mark()
        restored.enter_context(self.keeping())
        self.rewind()

    def _first_value(self, closure: Closure) -> float:
        self._buffers.parameters.begin()
        if self._modules is None and self.bound.modules() is None:
            with watching(self._buffers):
                value = self._call(closure)
        else:
            value = self._call(closure)
        self._random.mark()
        self._buffers.mark()
        self._buffers.parameters.mark()
        self.first = value.detach().clone() if isinstance(value, Tensor) else value
        return scalar(value)

    def _call(self, closure: Closure) -> LossValue:
        if self.interrupts.waiting is not None:
            self.interrupts.deliver()
        if self.inside_autocast:  # a region entered by the closure may cache all the same
            torch.clear_autocast_cache()
        self.count += 1
        self.interrupts.window = True
        try:
            return closure()
        finally:
            self.interrupts.window = False

    def again(self) -> float:
        """The loss again, from the same random numbers and buffers."""
        return self._losses(iter((None,)), rewinding=True)[0]

    def quickly(self) -> float:
        """The loss again, by a traced objective's own forward pass, which is faster."""
        return self._losses(iter((None,)), rewinding=True, closure=self.bound.quickly)[0]

    def moved(self, tensors: list[Tensor]) -> float:
        """The loss if only `tensors` have moved since the first evaluation."""
        if not self.count:
            return self._call_first(partial(self.bound.moved, tensors))
        closure = partial(self.bound.moved, tensors, self.rewind)
        return self._losses(iter((None,)), rewinding=True, closure=closure)[0]

    def losses(self, points: Callable[[], Generator[None, None, None]]) -> list[float]:
        """The losses at a sequence of points; the generator from `points` moves to each in turn.

        Rewinding 5 kB of random state before each loss costs as much as the rest of the overhead.
        If the first evaluation drew no random numbers and there are no buffers, the others are
        unlikely to draw any. So they run without rewinding, and all run again if one did draw.
        """
        still = not (self._random.drawn or self._buffers.any or self._random.has_devices)
        values = self._losses(points(), rewinding=not still)
        if still and self._random.moved:
            values = self._losses(points(), rewinding=True)
        return values

    def _losses(
        self, points: Iterator[None], rewinding: bool, closure: Closure | None = None
    ) -> list[float]:
        # This loop is the whole overhead of a probe, so it skips every call it can.
        closure, interrupts = closure or self.closure, self.interrupts
        if self._buffers.parameters.found:
            closure = partial(self._unwritten, closure)
        rewind = self._rewinder() if rewinding else None
        inside_autocast = self.inside_autocast
        values: list[float] = []
        try:
            for _ in points:
                if rewind is not None:
                    rewind()
                if interrupts.waiting is not None:
                    interrupts.deliver()
                if inside_autocast:  # a region entered by the closure may cache all the same
                    torch.clear_autocast_cache()
                self.count += 1
                interrupts.window = True
                value = closure()
                interrupts.window = False
                if type(value) is Tensor and not value.ndim and value.dtype in _REAL:
                    values.append(value.item())
                else:
                    values.append(scalar(value))
        finally:
            try:
                interrupts.window = False
            finally:
                if isinstance(points, Generator):
                    points.close()  # undoes its last move
        return values

    def _unwritten(self, closure: Closure) -> LossValue:
        with self.keeping():
            try:
                return closure()
            finally:
                self.interrupts.window = False  # do not interrupt the restoring

    def keeping(self) -> AbstractContextManager[None]:
        """Undo what a forward run inside writes into parameters."""
        parameters = self._buffers.parameters
        return parameters.kept() if parameters.found else nullcontext()

    def look_for_writes(self) -> None:
        """Check for undetected writes of probes into parameters, once all are back at x."""
        with self.bound.standing():
            self._buffers.parameters.look()

    def _rewinder(self) -> Callable[[], object]:
        more = self._buffers.any or self._random.has_devices
        return self.rewind if more else self._random.rewind_cpu


def scalar(value: LossValue | None) -> float:
    """The loss as a float; ValueError if the closure returned anything else."""
    if isinstance(value, Tensor):
        if value.numel() == 1 and not value.is_complex():
            return float(value)
        raise ValueError(
            f"closure must return a scalar loss, got a tensor of shape {tuple(value.shape)} and "
            f"dtype {value.dtype}"
        )
    if value is None:
        raise ValueError("closure must return the loss, got None (is its return missing?)")
    if isinstance(value, Real) or (getattr(value, "shape", None) == () and hasattr(value, "item")):
        return float(value)
    raise ValueError(f"closure must return a scalar loss, got {type(value).__name__}")
