"""`minimize`: ask, evaluate, tell, save, call back. `scipy_method` does so inside SciPy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import NonFiniteLoss
from ..parts.interrupts import Interrupts
from ..parts.types import NonFinite, State
from ..parts.warn import warn
from . import checkpoint as files
from .arguments import Basis, Bounds, Method, Seed, check_seconds
from .ask_tell import AskTell
from .executors.engine import Answers, Engine, TooManyFailures, evaluate
from .executors.task import Task
from .executors.workers import Workers, engine
from .methods.rule import FTOL
from .progress import FAILED, INTERRUPTED, STOPPED
from .termination import Termination

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult


def minimize(
    fun: Callable[..., object],
    x0: ArrayLike,
    *,
    args: object = (),
    method: Method = "auto",
    lr: float | None = None,
    eps: float | None = None,
    compute_budget: int | None = None,
    memory_budget: int | None = None,
    decay: float | None = None,
    basis: Basis | None = None,
    bounds: Bounds | None = None,
    maxfev: int | None = None,
    maxiter: int | None = None,
    ftol: float | None = FTOL,
    workers: Workers = 1,
    vectorized: bool = False,
    callback: Callable[[OptimizeResult], object] | None = None,
    nonfinite: NonFinite = "skip",
    timeout: float | None = None,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    rng: Seed = None,
) -> OptimizeResult:
    """Minimise a function of a vector that can be evaluated but not differentiated.

    By default the method chooses steps and radii, measures the noise and looks for other minima.
    The result is the best point seen, so it is never worse than x0. With noise it is the point that
    the averages lead to, and its value is a mean.

    Args:
        fun: ``fun(x, *args)`` returns a number; x is a float64 copy in the shape of x0.
        x0: the start, of any shape; the result has the same shape. `fun` must be finite there.
        args: further arguments of `fun`.
        method: "auto"; "cocd", the paper's method, with the same numbers as `cocd.CoCD` at this
            `lr`; "wasp", the method of `cocd.baselines.WASP`: one probe after the other until
            slopes agree; "cma", CMA-ES from the package `cma`, without checkpoints.
        lr: the learning rate of "cocd" and "wasp".
        eps: the radius of the probes. None derives it from the rounding of float64, the scale of x
            and the noise of `fun`, which takes ten evaluations to measure ("wasp" assumes no
            noise).
        compute_budget: B, coordinates probed per step; defaults to all n if `maxfev` leaves room
            for eight such sweeps, for "cocd" to 32 (or `memory_budget`, or n). For "wasp" the most
            probes per step, n by default.
        memory_budget: m, the number of estimates that "cocd" remembers; None for all n.
        decay: gamma of "cocd", applied to every remembered estimate at every step; 1 by default.
        basis: the vectors along which "wasp" probes: "rotation" (dense and random, the default up
            to n = 1000), "hadamard" (random and fast) or "identity".
        bounds: `scipy.optimize.Bounds`, or a pair (low, high) for each number of x0, row by row,
            with None for no bound. Probes and iterates stay inside.
        maxfev: the largest number of evaluations; the last one is reserved for the last iterate.
            1000 (n + 1) by default if `maxiter` is not given either.
        maxiter: the largest number of steps; one more evaluation visits the last iterate.
        ftol: "cocd" and "wasp" have converged when a sweep over all coordinates changes `fun` by no
            more than `ftol` times max(`|fun|`, 1), and none of its probes is lower by more. "auto"
            has converged when two sweeps at a radius below 1e-3 of the scale of x change `fun` by
            no more than `ftol` times max(`|fun|`, s), where s is the decrease of `fun` so far, at
            most 1, and a search at wide radii finds nothing lower. None disables the test.
        workers: a number of processes (-1: one per core), a `concurrent.futures` executor, a Dask
            client, a pool, or any callable with the signature of `map`.
        vectorized: `fun` takes an (n, k) array of k points and returns k values.
        callback: ``callback(intermediate_result)`` after each step, with the best x and fun so
            far, nfev and nit. It may raise StopIteration to stop.
        nonfinite: "skip" keeps the old estimate if an evaluation fails, "raise" raises
            `NonFiniteLoss` if a value is not finite.
        timeout: the most seconds that one evaluation may take, in processes and executors.
        checkpoint: a file for the whole state. If it exists, the run resumes from it; a finished
            run returns its result at once.
        checkpoint_every: seconds between two saves; 0 saves after each phase of a step.
        rng: a seed or a generator for all random draws.

    Returns:
        `scipy.optimize.OptimizeResult` with x, fun, nfev, nit, success, status, message; nfailed
        (evaluations given up), nretried (evaluations made twice) and failures (the reasons for
        giving up, each with its count).

        | status | why the run ended |
        | --: | --- |
        | 0 | converged (`success`): nothing lower was found near the result |
        | 1 | `maxfev` |
        | 2 | `maxiter` |
        | 3 | 50 evaluations, or 10 workers, in a row failed |
        | 4 | the method cannot continue: x overflows (`lr` is too large), or `fun` has no minimum |
        | 5 | Ctrl-C |
        | 99 | the callback raised StopIteration |

    Raises:
        NonFiniteLoss: `fun` is not finite at x0 or fails there.

    >>> import cocd
    >>> result = cocd.minimize(lambda x: ((x - 1) ** 2).sum(), [3.0, -2.0])
    >>> result.x.round(3), result.success
    (array([1., 1.]), True)
    """
    search = AskTell(
        x0,
        method=method,
        lr=lr,
        eps=eps,
        compute_budget=compute_budget,
        memory_budget=memory_budget,
        decay=decay,
        basis=basis,
        bounds=bounds,
        maxfev=maxfev,
        maxiter=maxiter,
        ftol=ftol,
        nonfinite=nonfinite,
        rng=rng,
    )
    for name, value in (("fun", fun), ("callback", callback)):
        if not callable(value) and not (name == "callback" and value is None):
            raise ValueError(f"{name} must be a function, got {value!r}")
    seconds = None if timeout is None else check_seconds("timeout", timeout)
    every = check_seconds("checkpoint_every", checkpoint_every, "and not negative")
    if checkpoint is not None and method == "cma":
        raise ValueError(
            f"method='cma' has no checkpoints: leave checkpoint={checkpoint!r} out, or use 'auto'"
        )
    task = Task(fun, args if isinstance(args, tuple) else (args,), search.x.shape, bool(vectorized))
    run = _Minimization(search, engine(workers, task, seconds), callback, _path(checkpoint), every)
    return run.to_the_end()


class _Minimization:
    """Evaluates the points of a search until it ends."""

    def __init__(
        self,
        search: AskTell,
        engine: Engine,
        callback: Callable[[OptimizeResult], object] | None,
        path: Path | None,
        every: float,
    ) -> None:
        self._search, self._engine, self._callback = search, engine, callback
        self._path, self._every = path, every
        self._answers = Answers(engine.count)
        if path is not None and path.exists():
            self._resume(path)
        self._saved = monotonic()
        self._unwritten = ""

    def to_the_end(self) -> OptimizeResult:
        """Run until the search is done, Ctrl-C, or the callback raises StopIteration."""
        search = self._search
        if search.done:  # a finished run was loaded
            return self._result()
        end: tuple[int, str] | None = None
        with Interrupts() as interrupts, Termination(interrupts, self._path is not None) as term:
            try:
                while not search.done:
                    term.deliver()
                    self._phase(interrupts)
            except KeyboardInterrupt:
                end = INTERRUPTED, "interrupted"
            except TooManyFailures as error:
                self._tell()
                if np.isnan(search.fun):
                    raise NonFiniteLoss(
                        f"fun could not be evaluated at x0: {error}"
                    ) from self._answers.cause
                end = FAILED, str(error)
            except BaseException:
                if search.nfev:  # without a value there is nothing to resume
                    self._save()
                raise
            finally:
                self._engine.close()
                # A second Ctrl-C that arrived while the workers stopped needs no further action.
                interrupts.waiting = None
            self._save()
        if end is not None:  # after saving: the same call resumes from here
            search.stop(end[0], f"{end[1]}; {_best(search)}")
        return self._result()

    def _phase(self, interrupts: Interrupts) -> None:
        search, answers = self._search, self._answers
        points, rows, steps = search.points(), search.pending.tolist(), search.nit
        answers.begin(len(points), opening=not search.nfev)
        interrupts.deliver()
        interrupts.window = True
        try:
            evaluate(self._engine, points, rows, answers)
        except (KeyboardInterrupt, SystemExit):
            self._tell()  # the answers so far may include the best point
            raise
        finally:
            interrupts.window = False
        self._tell()
        if self._callback is not None and search.nit > steps:
            interrupts.window = True
            try:
                self._callback(self._result())
            except StopIteration:
                search.stop(STOPPED, "the callback raised StopIteration")
            finally:
                interrupts.window = False
        if self._path is not None and monotonic() - self._saved >= self._every:
            self._save()
            self._saved = monotonic()

    def _save(self) -> None:
        """Write the checkpoint; if that fails, warn and let the run continue."""
        if self._path is None:
            return
        try:
            files.save(self._path, self._state())
            self._unwritten = ""
        except OSError as error:
            why = error.strerror or str(error)
            if why != self._unwritten:  # warn once, not at every save
                self._unwritten = why
                warn(
                    f"checkpoint {self._path} cannot be written ({why}): the run continues "
                    "without one",
                    RuntimeWarning,
                )

    def _tell(self) -> None:
        answers = self._answers
        rows = np.flatnonzero(answers.told)
        if not len(rows):
            return
        try:
            self._search.tell(answers.values[rows], rows)
        except NonFiniteLoss as error:
            why = list(answers.reasons)[-1]
            raise NonFiniteLoss(f"{error} ({why})") from answers.cause
        answers.begin(0)

    def _result(self) -> OptimizeResult:
        result = self._search.result
        result.nretried = self._answers.retried
        result.failures = list(self._answers.reasons.items())
        return result

    def _state(self) -> State:
        answers = self._answers
        return {
            "search": self._search.state_dict(),
            "retried": answers.retried,
            "failures": dict(answers.reasons),
        }

    def _resume(self, path: Path) -> None:
        state = files.load(path)
        try:
            self._search.load_state_dict(state["search"])
            self._answers.retried = int(state["retried"])
            self._answers.reasons = {str(why): int(k) for why, k in state["failures"].items()}
        except (KeyError, TypeError) as error:
            raise ValueError(f"checkpoint {path} lacks {error}; delete it to start over") from None
        except ValueError as error:
            raise ValueError(
                f"checkpoint {path} cannot be resumed: {error}; delete it or name another file"
            ) from None


def _best(search: AskTell) -> str:
    return "x is the best point seen" if np.isfinite(search.fun) else "no point has been seen"


def _path(checkpoint: str | PathLike[str] | None) -> Path | None:
    if checkpoint is None:
        return None
    try:
        path = Path(checkpoint)
    except TypeError:
        raise ValueError(f"checkpoint must be the path of a file, got {checkpoint!r}") from None
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ValueError(f"checkpoint={str(path)!r} must be a file in a directory that exists")
    return path


def scipy_method(
    fun: Callable[..., object], x0: ArrayLike, args: object = (), **options: Any
) -> OptimizeResult:
    """`minimize` as a method of SciPy.

    ``options`` takes every keyword of `cocd.minimize`; SciPy's ``tol`` is `ftol`. A gradient or
    Hessian is ignored with a warning; constraints raise. As in SciPy, the callback gets the result
    so far if its argument is named ``intermediate_result``, otherwise x.

    >>> import cocd, scipy.optimize
    >>> result = scipy.optimize.minimize(
    ...     lambda x: ((x - 1) ** 2).sum(), [3.0, -2.0], method=cocd.scipy_method,
    ...     options={"maxfev": 500})
    >>> result.x.round(3)
    array([1., 1.])
    """
    if np.any(options.pop("constraints", ())):
        raise ValueError(
            "constraints are not supported; use bounds, or return numpy.inf where they do not hold"
        )
    for name in ("jac", "hess", "hessp"):
        if callable(options.pop(name, None)):
            warn(f"cocd does not use {name}: it only evaluates fun", RuntimeWarning)
    options.pop("disp", None)
    if (tol := options.pop("tol", None)) is not None:
        options.setdefault("ftol", tol)
    unknown = sorted(set(options) - set(inspect.signature(minimize).parameters))
    if unknown:
        raise ValueError(f"options: {', '.join(unknown)} is not an option of cocd.minimize")
    callback = options.pop("callback", None)
    if callable(callback) and list(inspect.signature(callback).parameters) != [_BY_NAME]:
        options["callback"] = lambda result: callback(result.x)
    elif callback is not None:
        options["callback"] = callback
    return minimize(fun, x0, args=args, **options)


_BY_NAME = "intermediate_result"
