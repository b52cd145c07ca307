"""One step's evaluations of the objective, each from the same state.

Every evaluation of a step sees the same random numbers and the same module buffers, and the step
as a whole advances both as its first evaluation did: 2B + 1 evaluations look like one from
outside. If the step fails, they look like none.
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
    """Calls the closure, counts the calls, and keeps them from leaving traces.

    ``evaluate()`` gives the loss as a float. The first call decides what the step leaves behind.
    `bound` is the closure as it may be asked for many losses at once, made once per step.
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
        self._report = report  # told the number of calls at the end, whatever became of the step
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
        # An autocast region around the step would keep its casts of the unperturbed weights.
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
            # After a failure the world is as it was before the step; otherwise as after one call.
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
        """The loss. With `prepare` the closure may keep what later probes will need."""
        if not self.count:
            value = self._call_first(self.bound.prepare if prepare else None)
            if prepare:
                with self.bound.standing():
                    self._buffers.parameters.keep()
            return value
        return self.again()

    def rewind(self) -> None:
        """Random numbers and buffers as they were when the step began."""
        self._random.rewind()
        self._buffers.rewind()

    def charge(self, calls: int) -> None:
        """Count evaluations that were made in another way than by calling the closure."""
        self.count += calls

    @contextmanager
    def uncounted(self, report: Callable[[int], None]) -> Iterator[None]:
        """What is evaluated inside is told to `report`, and is not the step's."""
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
            # Restored is what further evaluations write into parameters.
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
        """The first evaluation is over, and another one is made before the probes."""
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
        """The loss once more, from the same state of the world."""
        return self._losses(iter((None,)), rewinding=True)[0]

    def quickly(self) -> float:
        """The same by a traced objective's own pass, which is that of the model but faster."""
        return self._losses(iter((None,)), rewinding=True, closure=self.bound.quickly)[0]

    def moved(self, tensors: list[Tensor]) -> float:
        """The loss where nothing but `tensors` has moved since the first evaluation."""
        if not self.count:
            return self._call_first(partial(self.bound.moved, tensors))
        closure = partial(self.bound.moved, tensors, self.rewind)
        return self._losses(iter((None,)), rewinding=True, closure=closure)[0]

    def losses(self, points: Callable[[], Generator[None, None, None]]) -> list[float]:
        """The loss at each of the points to which a generator that `points` makes moves on.

        To rewind 5 kB of random state before each of them costs as much as all else around an
        evaluation. Where the first one of the step drew no random numbers and there are no
        buffers, the others hardly will draw: that is looked at afterwards, and if they did, all
        are made again.
        """
        still = not (self._random.drawn or self._buffers.any or self._random.has_devices)
        values = self._losses(points(), rewinding=not still)
        if still and self._random.moved:
            values = self._losses(points(), rewinding=True)
        return values

    def _losses(
        self, points: Iterator[None], rewinding: bool, closure: Closure | None = None
    ) -> list[float]:
        # What is not needed is not even asked: this is all that a probe costs beside itself.
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
                    points.close()  # which takes back its last move
        return values

    def _unwritten(self, closure: Closure) -> LossValue:
        with self.keeping():
            try:
                return closure()
            finally:
                self.interrupts.window = False  # what is restored is restored whole

    def keeping(self) -> AbstractContextManager[None]:
        """What is evaluated inside does not write parameters, even if the forward does."""
        parameters = self._buffers.parameters
        return parameters.kept() if parameters.found else nullcontext()

    def look_for_writes(self) -> None:
        """Did probes write parameters where that leaves no mark? All stand at x again."""
        with self.bound.standing():
            self._buffers.parameters.look()

    def _rewinder(self) -> Callable[[], object]:
        more = self._buffers.any or self._random.has_devices
        return self.rewind if more else self._random.rewind_cpu


def scalar(value: LossValue | None) -> float:
    """The loss as a float, or a sentence about what the closure returned instead."""
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
