"""Recurrent layers as the calls of their time steps, for which there are unit rules."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..objective.registry import Function

State = tuple[Tensor, ...]


def lstm_cell(x: Tensor, state: State, *weights: Tensor) -> State:
    """(h, c) after one step."""
    h, c = state
    i, f, g, o = (_linear(x, weights, 0) + _linear(h, weights, 1)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_cell(x: Tensor, h: Tensor, *weights: Tensor) -> Tensor:
    """H after one step."""
    r, z, n = _linear(x, weights, 0).chunk(3, -1)
    s, y, m = _linear(h, weights, 1).chunk(3, -1)
    z = (z + y).sigmoid()
    new = (n + (r + s).sigmoid() * m).tanh()
    return new + z * (h - new)


def rnn_tanh_cell(x: Tensor, h: Tensor, *weights: Tensor) -> Tensor:
    """H after one step."""
    return (_linear(x, weights, 0) + _linear(h, weights, 1)).tanh()


def rnn_relu_cell(x: Tensor, h: Tensor, *weights: Tensor) -> Tensor:
    """H after one step."""
    return (_linear(x, weights, 0) + _linear(h, weights, 1)).relu()


def _linear(x: Tensor, weights: tuple[Tensor, ...], which: int) -> Tensor:
    return F.linear(x, weights[which], weights[which + 2] if len(weights) > 2 else None)


def _unrolled(cell: Function, parts: int) -> Function:
    """A whole layer of such cells, called as torch calls its own."""

    def forward(
        x: Tensor, initial: Tensor | State, weights: list[Tensor], has_biases: bool, layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool = False,
    ) -> State:  # fmt: skip
        if not isinstance(has_biases, bool):
            raise NotImplementedError("packed sequences have no unit rule; pad them instead")
        states = list(initial) if parts == 2 else [initial]
        each, directions = (4 if has_biases else 2), 1 + bidirectional
        x = x.transpose(0, 1) if batch_first else x
        last: list[State] = []
        for layer in range(layers):
            sides = []
            for side in range(directions):
                at = layer * directions + side
                own = weights[at * each : (at + 1) * each]
                state: State = tuple(s[at] for s in states)
                steps = []
                for step in x.unbind(0) if not side else x.flip(0).unbind(0):
                    found = cell(step, state if parts == 2 else state[0], *own)
                    state = found if parts == 2 else (found,)
                    steps.append(state[0])
                last.append(state)
                sides.append(torch.stack(steps if not side else steps[::-1]))
            x = torch.cat(sides, -1)
            if dropout and train and layer + 1 < layers:
                x = F.dropout(x, dropout, True)
        x = x.transpose(0, 1) if batch_first else x
        return (x, *(torch.stack([state[i] for state in last]) for i in range(parts)))

    return forward


UNROLLED: dict[Function, Function] = {
    torch.lstm: _unrolled(lstm_cell, 2),
    torch.gru: _unrolled(gru_cell, 1),
    torch.rnn_tanh: _unrolled(rnn_tanh_cell, 1),
    torch.rnn_relu: _unrolled(rnn_relu_cell, 1),
    torch.lstm_cell: lstm_cell,
    torch.gru_cell: gru_cell,
    torch.rnn_tanh_cell: rnn_tanh_cell,
    torch.rnn_relu_cell: rnn_relu_cell,
}
