"""Virtual flattening: tensors that stay where they are, addressed as one flat vector.

The flat vector is the concatenation of the tensors, each in row-major order of its logical shape,
whatever its strides. A stretch of it is a list of tensor slices. A slice of a contiguous tensor is
one view, a slice of a strided tensor a few rectangular views. Nothing is ever copied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class TensorSlice(NamedTuple):
    """Consecutive coordinates ``start:stop`` of one tensor of a layout."""

    tensor: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class Place(NamedTuple):
    """Elements (logical, row-major) of one tensor of a layout."""

    tensor: int
    elements: list[int]

    def __len__(self) -> int:
        return len(self.elements)


class Kind(NamedTuple):
    """The device and dtype of an estimate; each kind has its own buffer."""

    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Kind:
        # Half-precision weights have float32 estimates: these are sums of many small terms, and
        # a gamma close to 1 would otherwise round to 1.
        return cls(tensor.device, torch.promote_types(tensor.dtype, torch.float32))


class Layout:
    """The swept tensors in sweep order; new tensors join only at the end."""

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        self.tensors: list[Tensor] = []
        self.offsets: list[int] = [0]  # flat position where each tensor begins, and n at the end
        self.dtypes: list[torch.dtype] = []  # of each tensor, as it joined
        self.shapes: list[torch.Size] = []
        self.kinds: list[Kind] = []
        self.kind: list[int] = []  # of each tensor, an index into `kinds`
        self.kind_offset: list[int] = []  # of each tensor: coordinates of its kind before it
        self.kind_size: list[int] = []  # of each kind: its number of coordinates
        self.extend(tensors)

    @property
    def n(self) -> int:
        return self.offsets[-1]

    @property
    def sizes(self) -> list[int]:
        return [stop - start for start, stop in pairwise(self.offsets)]

    def extend(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            kind = Kind.of(tensor)
            if kind not in self.kinds:
                self.kinds.append(kind)
                self.kind_size.append(0)
            k = self.kinds.index(kind)
            self.tensors.append(tensor)
            self.dtypes.append(tensor.dtype)
            self.shapes.append(tensor.shape)
            self.offsets.append(self.n + tensor.numel())
            self.kind.append(k)
            self.kind_offset.append(self.kind_size[k])
            self.kind_size[k] += tensor.numel()

    def slices(self, start: int, stop: int) -> Iterator[TensorSlice]:
        """The stretch ``start:stop`` of the flat vector, cut at the tensors' borders."""
        t = bisect_right(self.offsets, start) - 1
        while start < stop:
            end = min(stop, self.offsets[t + 1])
            if start < end:
                yield TensorSlice(t, start - self.offsets[t], end - self.offsets[t])
            start, t = end, t + 1


def boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[tuple[int | slice, ...]]:
    """Indices of the rectangles that make up ``start:stop`` of a row-major array, in order.

    >>> list(boxes((3, 4), 2, 9))
    [(0, slice(2, 4, None)), (slice(1, 2, None),), (2, slice(0, 1, None))]
    """
    if not shape:
        yield ()
        return
    if len(shape) == 1:
        yield (slice(start, stop),)
        return
    inner = prod(shape[1:])
    (first, head), (last, tail) = divmod(start, inner), divmod(stop, inner)
    if first == last:
        yield from ((first, *box) for box in boxes(shape[1:], head, tail))
        return
    if head:
        yield from ((first, *box) for box in boxes(shape[1:], head, inner))
        first += 1
    if first < last:
        yield (slice(first, last),)
    if tail:
        yield from ((last, *box) for box in boxes(shape[1:], 0, tail))


def views(tensor: Tensor, start: int, stop: int) -> Iterator[tuple[Tensor, int, int]]:
    """Views of `tensor` that cover ``start:stop`` in logical order, each with its range."""
    if stop - start == tensor.numel():
        yield tensor, start, stop
    elif tensor.is_contiguous():
        yield tensor.view(-1)[start:stop], start, stop
    else:
        for box in boxes(tuple(tensor.shape), start, stop):
            view = tensor[box]
            yield view, start, start + view.numel()
            start += view.numel()


# Indices of elements as torch reads and writes them: into the flat view of a tensor or, if it has
# none, into the tensor itself.
Index = slice | Tensor | tuple[Tensor, ...]


def index_of(tensor: Tensor, index: list[int]) -> Index:
    """Convert logical row-major indices for repeated use by `gather` and `put`."""
    if tensor.is_contiguous():
        first = index[0] if index else 0
        if index == list(range(first, first + len(index))):
            return slice(first, first + len(index))
        return torch.tensor(index, device=tensor.device)
    return torch.unravel_index(torch.tensor(index, device=tensor.device), tensor.shape)


def gather(tensor: Tensor, where: list[int] | Index) -> Tensor:
    """Copy the elements with these logical row-major indices into one tensor."""
    where = index_of(tensor, where) if isinstance(where, list) else where
    values = _readable(tensor, where)[where]
    return values.clone() if isinstance(where, slice) else values


def put(tensor: Tensor, where: list[int] | Index, values: Tensor) -> None:
    """Write the elements that `gather` reads."""
    where = index_of(tensor, where) if isinstance(where, list) else where
    _readable(tensor, where)[where] = values.to(tensor)


def _readable(tensor: Tensor, where: Index) -> Tensor:
    return tensor.detach() if isinstance(where, tuple) else tensor.detach().view(-1)


def by_tensor(slices: Iterable[TensorSlice]) -> list[Place]:
    """Join consecutive slices of the same tensor into one list of its elements."""
    return [
        Place(t, list(chain.from_iterable(range(part.start, part.stop) for part in same)))
        for t, same in groupby(slices, key=lambda part: part.tensor)
    ]


_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(values: Tensor) -> Sequence[int | Tensor]:
    """Convert values for assignment to `elements`, bit for bit."""
    if values.device.type == "cpu":
        return values.view(_INTEGERS[values.element_size()]).tolist()
    return list(values.unbind())


def elements(tensor: Tensor) -> Any:
    """A view for writing single elements: ``elements(t)[i] = one item of bits(values)``."""
    tensor = tensor.detach()
    if tensor.device.type == "cpu":
        # A NumPy view writes one number ten times faster than torch.
        return tensor.view(_INTEGERS[tensor.element_size()]).numpy().flat
    return _Elements(tensor)


class _Elements:
    """The view of `elements` for devices other than the CPU."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __setitem__(self, index: int, value: Tensor) -> None:
        where = torch.unravel_index(torch.tensor(index), self._tensor.shape)
        self._tensor[tuple(int(i) for i in where)].copy_(value)


def check_tensor(tensor: Tensor, name: str) -> None:
    """Refuse a parameter that cannot be perturbed element by element."""
    if is_lazy(tensor):
        raise ValueError(
            f"params: {name} belongs to a lazy layer that has no values yet; run the model once "
            "on a batch before building the optimizer"
        )
    if tensor.layout != torch.strided:
        raise ValueError(
            f"params: {name} has layout {tensor.layout}; only dense tensors can be probed"
        )
    if tensor.is_complex():
        raise ValueError(
            f"params: {name} is complex ({tensor.dtype}); optimise torch.view_as_real of it instead"
        )
    if tensor.dtype not in _FLOATS:
        raise ValueError(
            f"params: {name} has dtype {tensor.dtype}; only float16, bfloat16, float32 and float64 "
            "parameters can be probed"
        )
    if tensor.device.type == "meta":
        raise ValueError(f"params: {name} is on the meta device and has no values to probe")


def check_overlap(named: list[tuple[str, Tensor]]) -> None:
    """Refuse tensors that share memory: a probe of one would silently move the other."""
    for group in _entangled([(name, tensor) for name, tensor in named if tensor.numel()]):
        if len(group) == 1 and _is_dense(group[0][1]):
            continue
        first = min(tensor.data_ptr() for _, tensor in group)
        taken = torch.zeros(max(_span(tensor)[1] for _, tensor in group) - first, dtype=torch.bool)
        for name, tensor in group:
            start = _elements(tensor) + (tensor.data_ptr() - first)
            bytes_ = (start[:, None] + torch.arange(tensor.element_size())).flatten()
            if taken[bytes_].any() or len(torch.unique(bytes_)) < len(bytes_):
                raise ValueError(
                    f"params: {name} shares memory with itself or with another parameter; every "
                    "stored number must be passed once"
                )
            taken[bytes_] = True


def _entangled(named: list[tuple[str, Tensor]]) -> Iterator[list[tuple[str, Tensor]]]:
    """Group tensors whose spans of memory overlap; most groups have one tensor.

    By address, not by storage: NumPy arrays that share memory arrive as different storages.
    """
    group: list[tuple[str, Tensor]] = []
    end = 0
    for name, tensor in sorted(named, key=lambda entry: (str(entry[1].device), _span(entry[1]))):
        start, stop = _span(tensor)
        if group and (start >= end or tensor.device != group[0][1].device):
            yield group
            group, end = [], 0
        group.append((name, tensor))
        end = max(end, stop)
    if group:
        yield group


def _is_dense(tensor: Tensor) -> bool:
    """Whether a tensor has no gaps or repeats: contiguous with its dimensions sorted by stride."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous()


def _span(tensor: Tensor) -> tuple[int, int]:
    """First and one-past-last byte of a tensor in memory."""
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    first = tensor.data_ptr()
    return first, first + int((last + 1) * tensor.element_size())


def _elements(tensor: Tensor) -> Tensor:
    """Byte offset of every element from the first."""
    offset = torch.tensor(0)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offset = offset.unsqueeze(-1) + torch.arange(size) * stride
    return offset.flatten() * tensor.element_size()
