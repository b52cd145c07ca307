"""Record one forward pass of a model, call by call, while it runs.

Nothing is symbolic: the model runs as usual, and the recording keeps the calls that depend on
parameters. It identifies tensor arguments by identity and keeps all other arguments by value. So
the recording contains the branches that were taken and the sizes of the batch. As long as the calls
match a known graph, they are compared and not recorded again.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from ..kernels.maxpool import max_of_windows, window_of
from ..registry import Args, Function, Kwargs, Target
from .calls import CallKind, kind_of, twin
from .dropout import dropout_noise
from .graph import Known, Ref, Seen, tensors_of
from .hidden_operations import HiddenOperations
from .layers import LayerListener, buffer_versions, has_parameters, keeps_together
from .same import gives, is_as_before, same, shares_memory

T = TypeVar("T")

WRITES_A_PARAMETER = "its forward writes into a parameter"


class Recording(TorchFunctionMode):
    """The calls of one forward pass, matched against the `known` calls as they come."""

    def __init__(
        self, listener: LayerListener, names: dict[int, str], known: Known | None = None
    ) -> None:
        super().__init__()
        self.values: list[Any] = []  # the result of each call
        self.noise: dict[int, Tensor] = {}  # the scaled mask of each dropout
        self.random: dict[int, Tensor] = {}  # generator state before each random call
        self.seen: list[Seen] = [] if known is None else known.seen
        self.recognised = known is not None
        self.problem = ""  # why the pass cannot be followed
        self._draws = frozenset() if known is None else known.draws
        self._listener = listener
        self._names = names  # of the parameters, by id
        self._at: dict[int, int] = {}  # id -> position, for tensors that depend on parameters
        self._given: dict[int, int] = {}  # id -> position, for all others
        self._stale: set[int] = set()  # ids of tensors written to through an alias
        self._rewritten: list[
            Tensor
        ] = []  # tensors this pass has written to; later passes will, too
        self._written: list[Tensor] = []  # given tensors that a write made depend on parameters
        self._hold: list[Tensor] = []  # keeps tensors alive so that ids are not reused
        self._inside = 0  # nesting depth of calls recorded as a whole

    def run(self, forward: Callable[[], T]) -> T:
        """Run `forward` and return its result; `values` and `seen` then hold the recording."""
        with self._listener.open(self.layer), self:
            if self.recognised:
                return forward()
            with HiddenOperations(lambda: self._inside > 0, self._depends, self._refuse):
                return forward()

    def track(self, inputs: list[Tensor]) -> None:
        """Also record calls on these tensors, though they do not depend on parameters."""
        for i, tensor in enumerate(inputs):
            self._at[id(tensor)] = self._note("input", i, None, (), {})
            self.values.append(tensor)

    def output(self, value: object) -> object:
        """The output of the model, with recorded tensors replaced by references."""
        return tree_map(self._refer, value)

    @property
    def draws(self) -> frozenset[int]:
        """The calls whose random numbers a probe must draw again."""
        return frozenset(self.random)

    # --- torch's callbacks ----------------------------------------------------------------------

    def __torch_function__(
        self,
        func: Function,
        types: object,
        args: Args = (),
        kwargs: Kwargs | None = None,
    ) -> object:
        """Torch calls this for each torch function and tensor method."""
        kwargs = kwargs or {}
        if self._inside or self.problem:
            return func(*args, **kwargs)
        self._inside += 1
        try:
            kind = kind_of(func)
            if kind.fact:
                return func(*args, **kwargs)
            tensors = tensors_of((*args, *kwargs.values()))
            writes = kind.is_write(args, kwargs)
            if not self._depends(tensors):
                self._refuse_stale(tensors)
                if writes:
                    self._forget(tensors_of((kwargs.get("out", args[0] if args else None),)))
                return func(*args, **kwargs)
            return self._torch(func, kind, args, kwargs, tensors, writes)
        finally:
            self._inside -= 1

    def _torch(
        self,
        func: Function,
        kind: CallKind,
        args: Args,
        kwargs: Kwargs,
        tensors: list[Tensor],
        writes: bool,
    ) -> object:
        def execute() -> object:
            return func(*args, **kwargs)

        if kind.attribute is not None:
            out = execute()
            if writes:
                self._refuse(f"a tensor's {kind.attribute} is assigned")
            elif isinstance(out, Tensor):
                self._position(args[0])
                self._result("call_function", getattr, None, (args[0], kind.attribute), {}, out)
            return out
        if writes:
            return self._write(kind, args, kwargs, tensors, execute)
        operands = args[::-1] if kind.swapped else args
        return self._call(kind.op, kind.target, None, operands, kwargs, tensors, execute)

    def layer(self, module: nn.Module, *args: Any, **kwargs: Any) -> object:
        """Run in place of a layer's forward and record the layer as one call."""
        forward = type(module).forward
        if self._inside or self.problem or not keeps_together(module, args, kwargs):
            return forward(module, *args, **kwargs)
        # Leave this mode: calls inside the layer are not recorded and should run at full speed.
        mode = torch._C._pop_torch_function_stack()
        self._inside += 1
        try:
            if self._is_next(module, args, kwargs):  # the usual case
                position = len(self.values)
                out = forward(module, args[0])
                self.values.append(out)
                self._at[id(out)] = position
                return out
            return self._layer(module, forward, args, kwargs)
        finally:
            self._inside -= 1
            torch._C._push_on_torch_function_stack(mode)

    def _is_next(self, module: nn.Module, args: Args, kwargs: Kwargs) -> bool:
        """Is this the plain one-tensor call that the known graph expects next?"""
        position = len(self.values)
        if not self.recognised or position >= len(self.seen) or len(args) != 1 or kwargs:
            return False
        known = self.seen[position]
        return (
            known.module is module
            and known.is_plain
            and self._at.get(id(args[0])) == known.args[0].position
            and is_as_before(known, module)
        )

    def _layer(self, module: nn.Module, forward: Function, args: Args, kwargs: Kwargs) -> object:
        def execute() -> object:
            if size := window_of(module):
                return max_of_windows(args[0], size)
            return forward(module, *args, **kwargs)

        tensors = tensors_of((*args, *kwargs.values()))
        if not (has_parameters(module) or self._depends(tensors)):
            self._refuse_stale(tensors)
            return execute()
        if vars(module).get("inplace", False) and args:
            return self._overwrite(
                "call_module", type(module), module, args, kwargs, tensors, execute
            )
        before = buffer_versions(module)
        out = self._call("call_module", type(module), module, args, kwargs, tensors, execute)
        if buffer_versions(module) != before:  # a replay would start from the last one's state
            self._refuse(f"{type(module).__name__} writes into its buffers")
        return out

    # --- calls ----------------------------------------------------------------------------------

    def _call(
        self, op: str, target: Target, module: nn.Module | None, args: Args, kwargs: Kwargs,
        tensors: list[Tensor], execute: Callable[[], object],
    ) -> object:  # fmt: skip
        for tensor in tensors:
            self._position(tensor)
        position = len(self.values)
        noise = dropout_noise(target, module, args, kwargs)
        if noise is not None:
            self.noise[position] = noise
            out = args[0] * noise
        else:
            out = self._drawing(position, execute)
        if not any(out is tensor for tensor in tensors):  # else the call changed nothing
            self._result(op, target, module, args, kwargs, out)
        return out

    def _drawing(self, position: int, execute: Callable[[], T]) -> T:
        """Execute the call; if it draws random numbers, keep the generator's state from before."""
        if self.recognised and position not in self._draws:
            return execute()
        before = torch.get_rng_state()
        out = execute()
        if not torch.equal(before, torch.get_rng_state()):
            self.random[position] = before
        return out

    def _result(
        self,
        op: str,
        target: Target,
        module: nn.Module | None,
        args: Args,
        kwargs: Kwargs,
        out: Any,
    ) -> None:
        """Record `out`, the result of a call that depends on parameters."""
        position = self._note(op, target, module, args, kwargs)
        self.values.append(out)
        if isinstance(out, Tensor):
            self._at[id(out)] = position
        elif tensors_of((out,)):
            for key, part in out.items() if isinstance(out, dict) else enumerate(out):
                if tensors_of((part,)):
                    self._result("call_function", getitem, None, (Ref(position), key), {}, part)

    def _note(
        self,
        op: str,
        target: Target | int | None,
        module: nn.Module | None,
        args: Args,
        kwargs: Kwargs,
    ) -> int:
        """The position of a call, checking whether it matches the known call there."""
        position = len(self.values)
        if self.recognised:
            known = self.seen[position] if position < len(self.seen) else None
            if (
                known is not None
                and known.op == op
                and known.target == target
                and known.module is module
                and is_as_before(known, module)
                and same(known.args, args, self._where)
                and (not (kwargs or known.kwargs) or same(known.kwargs, kwargs, self._where))
            ):
                return position
            self.recognised = False
            self.seen = self.seen[:position]
        about = {} if module is None else dict(vars(module))
        args, kwargs = self._refer_all(args), self._refer_all(kwargs)
        self.seen.append(Seen(op, target, module, about, args, kwargs))
        return position

    # --- where tensors come from ----------------------------------------------------------------

    def _depends(self, tensors: list[Tensor]) -> bool:
        """Does any of these tensors depend on parameters?"""
        return any(id(tensor) in self._at or id(tensor) in self._names for tensor in tensors)

    def _where(self, tensor: Tensor) -> int | None:
        position = self._at.get(id(tensor))
        return self._given.get(id(tensor)) if position is None else position

    def _position(self, tensor: Tensor) -> int:
        """A tensor's position; a tensor that no recorded call has made gets a new one."""
        found = self._where(tensor)
        if found is not None:
            return found
        name = self._names.get(id(tensor))
        if name is None:
            self._refuse_hidden(tensor)
        position = self._note("given" if name is None else "parameter", name, None, (), {})
        moves = self._rewritten and any(shares_memory(tensor, other) for other in self._rewritten)
        self.values.append(tensor.clone() if moves else tensor)
        if moves:
            self._hold.append(tensor)
        (self._given if name is None else self._at)[id(tensor)] = position
        return position

    def _refuse_hidden(self, tensor: Tensor) -> None:
        """Refuse a tensor of unknown origin that may depend on parameters in an unseen way."""
        self._refuse_stale([tensor])
        if self.recognised:
            return
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            self._refuse("its forward uses torch.func transforms")
        elif any(shares_memory(tensor, self.values[i]) for i in set(self._at.values())):
            self._refuse("a tensor is read by a name that no call has given to it")

    def _refuse_stale(self, tensors: list[Tensor]) -> None:
        """Refuse tensors that were written to through an alias."""
        if (self._stale or self._written) and any(
            id(t) in self._stale or any(shares_memory(t, w) for w in self._written) for t in tensors
        ):
            self._refuse("a tensor is read that was written to by another name")

    def _refer(self, value: T) -> T | Ref:
        return Ref(self._position(value)) if isinstance(value, Tensor) else value

    def _refer_all(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, Tensor):
            return Ref(self._position(value))
        if kind is tuple or kind is list:
            return kind([self._refer_all(item) for item in value])
        if kind is dict:
            return {key: self._refer_all(item) for key, item in value.items()}
        if kind is slice:
            return slice(*map(self._refer_all, (value.start, value.stop, value.step)))
        if not isinstance(value, (tuple, dict)):
            return value
        try:
            return tree_map(self._refer, value)
        except Exception:  # a tuple that checks its items, such as a PackedSequence
            self._refuse(f"its forward passes a {kind.__name__} to a call")
            return value

    def _refuse(self, why: str) -> None:
        self.problem = self.problem or why

    # --- in-place writes ------------------------------------------------------------------------

    def _write(
        self, kind: CallKind, args: Args, kwargs: Kwargs, tensors: list[Tensor],
        execute: Callable[[], object],
    ) -> object:  # fmt: skip
        found = twin(kind, args, kwargs)
        if found is None or not isinstance(args[0], Tensor):
            self._refuse(f"{kind.name} writes into a tensor")
            return execute()
        op, target, arguments, options = found
        return self._overwrite(op, target, None, arguments, options, tensors, execute)

    def _overwrite(
        self, op: str, target: Target, module: nn.Module | None, args: Args, kwargs: Kwargs,
        tensors: list[Tensor], execute: Callable[[], object],
    ) -> object:  # fmt: skip
        """Record a call that writes into its first argument as a call that returns the result.

        The recording keeps a copy of the argument's earlier values.
        """
        written = args[0]
        for tensor in tensors:
            self._position(tensor)
        if any(id(v) in self._names and shares_memory(written, v) for v in self.values):
            self._refuse(WRITES_A_PARAMETER)
            return execute()
        position = self._note(op, target, module, args, kwargs)
        depended = id(written) in self._at
        self._save(written)
        noise = dropout_noise(target, module, args, kwargs)
        if noise is not None:
            self.noise[position] = noise
            out = written.mul_(noise)
        else:
            out = self._drawing(position, execute)
            if not self.recognised and module is None:
                seen = self.seen[position]
                if not gives(seen, self.values, self.random.get(position), written):
                    name = getattr(seen.target, "__name__", seen.target)
                    self._refuse(f"{name} writes into a tensor")
        self.values.append(written)
        self._at[id(written)] = position
        if not depended:
            self._written.append(written)
        return out

    def _save(self, written: Tensor) -> None:
        """Copy the recorded tensors that a write is about to change."""
        for i, value in enumerate(self.values):
            if isinstance(value, Tensor) and (value is written or shares_memory(value, written)):
                self.values[i] = value.clone()
                self._at.pop(id(value), None)
                self._given.pop(id(value), None)
                if value is not written:
                    self._stale.add(id(value))
                    self._hold.append(value)

    def _forget(self, written: list[Tensor]) -> None:
        """Before a write that does not depend on parameters, copy the values read so far."""
        self._rewritten += written
        for tensor in written:
            if any(shares_memory(tensor, other) for other in self._written):
                self._refuse("a tensor is written to by another name")
            for key, position in list(self._given.items()):
                value = self.values[position]
                if value is tensor or shares_memory(value, tensor):
                    self.values[position] = value.clone()
                    self._hold.append(value)
                    del self._given[key]
