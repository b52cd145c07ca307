"""The effect of a nudge on its way to the output: a patch instead of whole maps.

One row is one probe of one sample. Its patch is a window (rows, height, width, channels) of
differences at a corner of its own; a convolution is a small matrix from window to window, and
pooling makes it smaller again. Channels come last, so that a window is gathered in runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from .chain import Step, local
from .tape import Site


@dataclass(frozen=True)
class Patch:
    """Differences in a window of each row's map."""

    delta: Tensor  # (R, h, w, C), or one channel
    corner: Tensor  # (R, 2), which may lie outside
    sample: Tensor  # (R,)
    channel: Tensor | None  # (R,), where only one has changed

    @property
    def size(self) -> tuple[int, int]:
        return self.delta.shape[1], self.delta.shape[2]


class Maps:
    """Unperturbed maps with channels last, made once per batch."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Tensor, Tensor]] = {}  # with its original, whose id it is

    def last(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N * H * W, C)."""
        key = id(x)
        if key not in self._made:
            self._made[key] = x, x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])
        return self._made[key][1]

    def values(self, x: Tensor, patch: Patch) -> Tensor:
        """(R, h, w, C): the map where the patch lies, and something where it is outside."""
        return self.window(x, patch)[0]

    def window(self, x: Tensor, patch: Patch) -> tuple[Tensor, Tensor]:
        """(R, h, w, C): the map where the patch lies, and (R, h, w) whether it is inside."""
        H, W = x.shape[2:]
        y, inside_y = _along(patch.corner[:, 0], patch.size[0], H)
        z, inside_z = _along(patch.corner[:, 1], patch.size[1], W)
        at = (patch.sample[:, None] * H + y)[:, :, None] * W + z[:, None, :]
        inside = inside_y[:, :, None] & inside_z[:, None, :]
        if patch.channel is None:
            return self.last(x).index_select(0, at.flatten()).view(*at.shape, -1), inside
        each = x.shape[2] * x.shape[3]
        local = at - (patch.sample * each)[:, None, None]
        first = (patch.sample * x.shape[1] + patch.channel) * each
        return x.reshape(-1)[local + first[:, None, None]].unsqueeze(3), inside


def _along(corner: Tensor, size: int, limit: int) -> tuple[Tensor, Tensor]:
    at = corner[:, None] + torch.arange(size)
    return at.clamp(0, limit - 1), (at >= 0) & (at < limit)


def outputs(steps: list[Step], maps: Maps, x: Tensor, index: Tensor, moves: Tensor) -> Tensor:
    """(K, N, ...): the model's output where `x` is moved at flat positions, both (K, E, N).

    E is 1, or all units of a layer at positions of which a pooling behind it keeps one.
    """
    K, _, N = index.shape
    if x.dim() == 2:
        found = _flat(steps, x, index, moves)
    else:
        found = _follow(steps, maps, x, _started(steps, x, index, moves))
    return found.view(K, N, *found.shape[1:])


def _started(steps: list[Step], x: Tensor, index: Tensor, moves: Tensor) -> Patch:
    """The patch that a nudge is: one position, or the cell of a pooling that it lies in."""
    K, E, N = index.shape
    H, W = x.shape[2:]
    grid = _cells_ahead(steps)
    at = index % (H * W)
    y, z = at.div(W, rounding_mode="floor"), at % W
    corner = torch.stack([y[:, 0], z[:, 0]], -1).view(-1, 2)  # (R, 2)
    corner = corner.div(grid, rounding_mode="floor") * grid
    sample = torch.arange(N).repeat(K)
    delta = x.new_zeros(K * N, grid * grid, E)
    inside = (y % grid * grid + z % grid).transpose(1, 2).reshape(K * N, 1, E)
    delta.scatter_(1, inside, moves.to(x.dtype).transpose(1, 2).reshape(K * N, 1, E))
    channel = index[:, 0].div(H * W, rounding_mode="floor") % x.shape[1]
    return Patch(
        delta.view(K * N, grid, grid, E), corner, sample, channel.flatten() if E == 1 else None
    )


def _flat(steps: list[Step], x: Tensor, index: Tensor, moves: Tensor) -> Tensor:
    """Of a layer with one position: differences of one unit until they meet a linear layer."""
    moves = moves.to(x.dtype, copy=True)
    if index.shape[1] > 1:
        return _carried(steps, x, moves.transpose(1, 2))
    units, delta = index[:, 0, 0] % x.shape[1], moves[:, 0]  # (K,), (K, N)
    for i, step in enumerate(steps):
        if step.kind == "linear" and step.weight is not None:
            columns = step.weight.detach().t()[units]  # (K, outputs)
            return _carried(steps[i + 1 :], step.out, delta[:, :, None] * columns[:, None])
        if step.kind not in ("monotone", "elementwise"):
            return _onwards(steps[i:], _spread(step.base, units, delta))
        base = partial(_rows, step.base, units)
        delta = step.change(delta, base, _rows(step.out, units))
    return _spread(steps[-1].out if steps else x, units, delta)


def _rows(x: Tensor, units: Tensor) -> Tensor:
    return x.t()[units]


def _carried(steps: list[Step], x: Tensor, delta: Tensor) -> Tensor:
    """(K N, ...): the output where `x` has changed by (K, N, units), which is overwritten."""
    for i, step in enumerate(steps):
        if step.kind in ("monotone", "elementwise"):
            delta = step.change(delta, partial(_same, step.base), step.out)
        elif step.kind == "linear" and step.weight is not None:
            delta = delta @ step.weight.detach().t()
        else:
            return _onwards(steps[i:], (step.base + delta).flatten(0, 1))
    return ((steps[-1].out if steps else x) + delta).flatten(0, 1)


def _same(x: Tensor) -> Tensor:
    return x


def _spread(x: Tensor, units: Tensor, delta: Tensor) -> Tensor:
    """(K N, units): all of x with one unit changed for each k."""
    values = x.repeat(len(units), 1, 1)
    values[torch.arange(len(units)), :, units] += delta
    return values.flatten(0, 1)


def _follow(steps: list[Step], maps: Maps, x: Tensor, patch: Patch) -> Tensor:
    """(R, ...): the model's output for each row."""
    i = 0
    while i < len(steps):
        step = steps[i]
        if step.kind in ("monotone", "elementwise"):
            base, after = partial(maps.values, step.base, patch), maps.values(step.out, patch)
            patch = replace(patch, delta=step.change(patch.delta, base, after))
        elif step.kind == "pool" and all(s % step.size == 0 for s in patch.size):
            patch = _pooled(step, maps, patch)
        elif step.kind == "conv":
            patch = _convolved(step, maps, patch, _cells_ahead(steps[i + 1 :]))
            if min(patch.size) >= min(step.out.shape[2:]):
                return _onwards(steps[i + 1 :], _dense(step.out, maps, patch))
        elif step.kind == "flatten":
            following = steps[i + 1] if i + 1 < len(steps) else None
            if following is not None and following.kind == "linear" and patch.channel is not None:
                return _onwards(steps[i + 2 :], _columns(step, following, maps, patch))
            return _onwards(steps[i:], _dense(step.base, maps, patch))
        else:
            return _onwards(steps[i:], _dense(step.base, maps, patch))
        i += 1
    return _dense(steps[-1].out if steps else x, maps, patch)


def _cells_ahead(steps: list[Step]) -> int:
    """The size of a pooling's cells, where only elementwise functions lie before it."""
    for step in steps:
        if step.kind == "pool":
            return step.size
        if step.kind not in ("monotone", "elementwise"):
            break
    return 1


def _onwards(steps: list[Step], values: Tensor) -> Tensor:
    """The rest of the chain, on whole samples."""
    for step in steps:
        values = step.apply(values)
    return values


def _dense(x: Tensor, maps: Maps, patch: Patch) -> Tensor:
    """(R, C, H, W): the whole changed map."""
    R, (H, W) = len(patch.delta), x.shape[2:]
    y, inside_y = _along(patch.corner[:, 0], patch.size[0], H)
    z, inside_z = _along(patch.corner[:, 1], patch.size[1], W)
    inside = inside_y[:, :, None] & inside_z[:, None, :]
    at = y[:, :, None] * W + z[:, None, :]
    rows = torch.arange(R)[:, None, None]
    delta = patch.delta * inside.unsqueeze(3)
    if patch.channel is None:
        values = maps.last(x).view(len(x), H * W, -1).index_select(0, patch.sample)
        flat = values.view(R * H * W, -1)
        flat.index_add_(0, (rows * (H * W) + at).flatten(), delta.flatten(0, 2))
        return values.view(R, H, W, -1).permute(0, 3, 1, 2)
    values = x.index_select(0, patch.sample)
    first = (rows * x.shape[1] + patch.channel[:, None, None]) * (H * W)
    values.view(-1).index_add_(0, (first + at).flatten(), delta.flatten())
    return values


def _pooled(step: Step, maps: Maps, patch: Patch) -> Patch:
    """The windows are made of whole cells, so each gives the maximum of its own."""
    s = step.size
    base, inside = maps.window(step.base, patch)
    values = base.add_(patch.delta)
    if not bool(inside.all()):
        values.masked_fill_(~inside.unsqueeze(3), -torch.inf)
    R, h, w, C = values.shape
    cells = values.view(R, h // s, s, w // s, s, C)
    best = cells[:, :, 0, :, 0]
    for i in range(s):
        for j in range(s):
            if i or j:
                best = torch.maximum(best, cells[:, :, i, :, j])
    smaller = replace(patch, corner=patch.corner.div(s, rounding_mode="floor"), delta=best)
    after, within = maps.window(step.out, smaller)
    return replace(smaller, delta=torch.where(within.unsqueeze(3), best - after, 0))


def _convolved(step: Step, maps: Maps, patch: Patch, grid: int) -> Patch:
    """A window of h x w becomes one of (h + k - 1) x (w + k - 1), then cells of the pooling."""
    assert step.weight is not None
    weight = step.weight.detach()
    O, _, k, l = weight.shape  # noqa: E741
    h, w = patch.size
    inside = _inside(patch, step.base.shape[2:])
    delta = patch.delta if inside is None else patch.delta * inside.unsqueeze(3)
    R = len(delta)
    if patch.channel is not None:
        tables = _window_matrix(weight, h, w)  # (h, w, C, h', w', O)
        own = tables.permute(2, 0, 1, 3, 4, 5).reshape(weight.shape[1], h * w, -1)
        if h * w == 1:
            wide = own[patch.channel, 0] * delta.view(R, 1)
        else:
            wide = torch.bmm(delta.reshape(R, 1, h * w), own[patch.channel]).view(R, -1)
    else:
        matrix = _window_matrix(weight, h, w).reshape(-1, (h + k - 1) * (w + l - 1) * O)
        wide = delta.reshape(R, -1) @ matrix
    wide = wide.view(R, h + k - 1, w + l - 1, O)
    corner = patch.corner + torch.tensor(step.padding) - torch.tensor([k - 1, l - 1])
    moved = Patch(wide, corner, patch.sample, None)
    return moved if grid == 1 else _aligned(moved, grid)


def _inside(patch: Patch, limits: torch.Size) -> Tensor | None:
    """Where the window lies on the map; None if everywhere."""
    _, y = _along(patch.corner[:, 0], patch.size[0], limits[0])
    _, z = _along(patch.corner[:, 1], patch.size[1], limits[1])
    inside = y[:, :, None] & z[:, None, :]
    return None if bool(inside.all()) else inside


def _window_matrix(weight: Tensor, h: int, w: int) -> Tensor:
    """(h, w, C, h + k - 1, w + l - 1, O): a convolution from a window to all that it reaches."""
    O, C, k, l = weight.shape  # noqa: E741
    matrix = weight.new_zeros(h, w, C, h + k - 1, w + l - 1, O)
    flipped = weight.flip(2, 3).permute(1, 2, 3, 0)
    for i in range(h):
        for j in range(w):
            matrix[i, j, :, i : i + k, j : j + l] = flipped
    return matrix


def _aligned(patch: Patch, grid: int) -> Patch:
    """The same in a window of whole cells of a pooling."""
    corner = patch.corner.div(grid, rounding_mode="floor") * grid
    off = patch.corner - corner
    h, w = (-(-(s + grid - 1) // grid) * grid for s in patch.size)
    R, _, _, C = patch.delta.shape
    delta = patch.delta.new_zeros(R, h, w, C)
    for i in range(grid):
        for j in range(grid):
            rows = ((off[:, 0] == i) & (off[:, 1] == j)).nonzero().flatten()
            if len(rows):
                part = delta.new_zeros(len(rows), h, w, C)
                part[:, i : i + patch.size[0], j : j + patch.size[1]] = patch.delta[rows]
                delta[rows] = part
    return replace(patch, corner=corner, delta=delta)


def _columns(flatten: Step, linear: Step, maps: Maps, patch: Patch) -> Tensor:
    """A linear layer behind one channel's patch reads few of its columns."""
    assert linear.weight is not None and patch.channel is not None
    H, W = flatten.base.shape[2:]
    y, inside_y = _along(patch.corner[:, 0], patch.size[0], H)
    z, inside_z = _along(patch.corner[:, 1], patch.size[1], W)
    at = patch.channel[:, None, None] * (H * W) + y[:, :, None] * W + z[:, None, :]
    delta = patch.delta[..., 0] * (inside_y[:, :, None] & inside_z[:, None, :])
    columns = linear.weight.detach().t().contiguous()[at.flatten(1)]  # (R, h w, outputs)
    change = torch.bmm(delta.reshape(len(delta), 1, -1), columns).squeeze(1)
    return linear.out.index_select(0, patch.sample) + change


def at_positions(maps: Maps, site: Site, index: Tensor, d: Tensor) -> dict[str, Tensor] | None:
    """Slopes of a convolution's parameters of slopes `d` at a few positions, both (K, E, N).

    What those positions read is gathered, where a dense product would mostly multiply zeros.
    """
    geometry = local(site.arguments, site.input)
    N, U, H, W = site.output.shape
    K, E, _ = index.shape
    if geometry is None or (E != 1 and E % U):
        return None
    if E > 1:
        shape = K, E // U, U, N
        return _all_units(maps, site, index.view(shape), d.view(shape), geometry)
    x, weight = site.input, site.arguments["weight"]
    rows, own = index.view(K, N), d.view(K, N)
    owners = rows[:, 0] // (H * W) % U
    y, z = rows % (H * W) // W, rows % W
    seen = _windows(maps, x, weight, rows // (U * H * W), y, z, geometry)
    found = torch.bmm(own.unsqueeze(1), seen.view(K, N, -1))  # (K, 1, k l C)
    slopes = weight.new_zeros(U, found.shape[2]).index_copy_(0, owners, found.squeeze(1))
    bias = weight.new_zeros(U).index_copy_(0, owners, own.sum(1))
    return _as_parameters(weight, slopes, bias)


def _all_units(
    maps: Maps, site: Site, index: Tensor, d: Tensor, geometry: tuple[int, int]
) -> dict[str, Tensor]:
    """The same where all units are moved; all (K, Q, U, N).

    Units whose pooling keeps different places of one cell read one of few windows. Each of these is
    gathered once and multiplied with the slopes of the units that read it.
    """
    x, weight = site.input, site.arguments["weight"]
    U, H, W = site.output.shape[1:]
    y, z = index % (H * W) // W, index % W
    top, left = y.amin(2), z.amin(2)
    sample = index[:, :, 0] // (U * H * W)
    own = d.permute(2, 0, 1, 3).flatten(1)  # (U, K Q N)
    offset = ((y - top.unsqueeze(2)) * W + z - left.unsqueeze(2)).permute(2, 0, 1, 3).flatten(1)
    offsets = torch.unique(offset).tolist()
    slopes = weight.new_zeros(U, weight[0].numel())
    if len(offsets) > U:  # no cell is shared
        for u in range(U):
            seen = _windows(maps, x, weight, sample, y[:, :, u], z[:, :, u], geometry)
            slopes[u] = own[u] @ seen
    else:
        for each in offsets:
            seen = _windows(maps, x, weight, sample, top + each // W, left + each % W, geometry)
            slopes.addmm_(own * (offset == each), seen)
    return _as_parameters(weight, slopes, own.sum(1))


def _windows(
    maps: Maps, x: Tensor, weight: Tensor, sample: Tensor, y: Tensor, z: Tensor,
    geometry: tuple[int, int],
) -> Tensor:  # fmt: skip
    """(R, k l C): what a convolution reads for its outputs in rows `y` and columns `z`."""
    corner = torch.stack([y - geometry[0], z - geometry[1]], -1).view(-1, 2)
    size = Patch(x.new_empty(y.numel(), *weight.shape[2:], 0), corner, sample.flatten(), None)
    seen, inside = maps.window(x, size)
    return (seen * inside.unsqueeze(3)).flatten(1)


def _as_parameters(weight: Tensor, slopes: Tensor, bias: Tensor) -> dict[str, Tensor]:
    U, C, k, l = weight.shape  # noqa: E741
    return {"weight": slopes.view(U, k, l, C).permute(0, 3, 1, 2), "bias": bias}
