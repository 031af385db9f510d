"""Recurrent layers: one step (RNNCell, LSTMCell) and whole sequences (RNN, LSTM).

Sequences are time first, (T, B, features). The product of the inputs with ``W_ih`` does not depend
on the state, so it is computed for a whole sequence at once; only ``W_hh`` is applied step by step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError, UnknownNameError
from ..shapes import shape_of
from .linear import affine
from .module import Module, Parameter

NONLINEARITIES: dict[str, Callable[[Tensor], Tensor]] = {"tanh": ops.tanh, "relu": ops.relu}
State = tuple[Tensor, ...]


class _Cell(Module):
    """Base class of cells with G gates: W_ih (I, G*H), W_hh (H, G*H), bias_ih and bias_hh (G*H,).

    The parameters are drawn from U(±1/sqrt(H)) in this order.
    """

    gates = 1
    states = 1
    """Number of tensors (B, H) in the state; the first one is the output."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, device: Device | None, dtype: Any
    ) -> None:
        super().__init__()
        if min(input_size, hidden_size) < 1:
            raise ShapeError(
                f"{type(self).__name__}: sizes must be at least 1, got input_size={input_size}, "
                f"hidden_size={hidden_size}; give positive sizes"
            )
        self.input_size, self.hidden_size = input_size, hidden_size
        bound, width = 1.0 / math.sqrt(hidden_size), self.gates * hidden_size

        def drawn(*shape: int) -> Parameter:
            return Parameter(init.rand(*shape, low=-bound, high=bound, device=device, dtype=dtype))

        self.W_ih: Tensor = drawn(input_size, width)
        self.W_hh: Tensor = drawn(hidden_size, width)
        self.bias_ih: Tensor | None = drawn(width) if bias else None
        self.bias_hh: Tensor | None = drawn(width) if bias else None

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, bias={self.bias_ih is not None}"

    def from_inputs(self, x: Tensor) -> Tensor:
        """Return the inputs' contribution to the gates: x (..., I) -> (..., G*H)."""
        return affine(type(self).__name__, x, self.W_ih, self.bias_ih)

    def gate_inputs(self, part: Tensor, h: Tensor) -> Tensor:
        """Return ``part``, i.e. from_inputs(x), plus the contribution of the output h (B, H)."""
        return part + affine(type(self).__name__, h, self.W_hh, self.bias_hh)

    def advance(self, part: Tensor, state: State) -> State:
        """Return the next state, given the inputs' contribution ``part`` to the gates."""
        raise NotImplementedError

    def start(self, batch: int) -> State:
        """Return a zero state.

        ``W_hh`` is still applied to it, so that every parameter gets a gradient.
        """
        zeros = init.zeros(batch, self.hidden_size, device=self.W_hh.device, dtype=self.W_hh.dtype)
        return (zeros,) * self.states


class RNNCell(_Cell):
    """Elman cell h' = f(X W_ih + bias_ih + h W_hh + bias_hh), f tanh or relu (Elman 1990).

    Called with X (B, input_size) and h (B, hidden_size), None for zeros; returns h'.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        if nonlinearity not in NONLINEARITIES:
            raise UnknownNameError(
                f"{type(self).__name__}: nonlinearity must be 'tanh' or 'relu', got "
                f"{nonlinearity!r}; choose one of them"
            )
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def advance(self, part: Tensor, state: State) -> State:
        return (NONLINEARITIES[self.nonlinearity](self.gate_inputs(part, state[0])),)

    def forward(self, X: Tensor, h: Tensor | None = None) -> Tensor:
        return _step(self, X, None if h is None else (h,))[0]


class LSTMCell(_Cell):
    """Long short-term memory cell (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000).

    The gates i, f, g, o are the four column blocks, in this order, of X W_ih + bias_ih + h W_hh +
    bias_hh. c' = sigmoid(f) c + sigmoid(i) tanh(g) and h' = sigmoid(o) tanh(c'). Called with X (B,
    input_size) and (h, c), each (B, hidden_size), None for zeros; returns (h', c').
    """

    gates = 4
    states = 2

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def advance(self, part: Tensor, state: State) -> State:
        h, c = state
        gates = ops.reshape(self.gate_inputs(part, h), (h.shape[0], 4, self.hidden_size))
        i, f, g, o = ops.split(gates, 1)
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(c), c

    def forward(self, X: Tensor, h: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        output, c = _step(self, X, h)
        return output, c


class RNN(Module):
    """``num_layers`` RNNCells (``rnn_cells``), each applied to the outputs of the previous one.

    Called with X (T, B, input_size) and h0 (num_layers, B, hidden_size), None for zeros. Returns
    the outputs of the last layer (T, B, hidden_size) and the final state of every layer
    (num_layers, B, hidden_size).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self.rnn_cells = [
            RNNCell(size, hidden_size, bias, nonlinearity, device, dtype)
            for size in _input_sizes("RNN", input_size, hidden_size, num_layers)
        ]

    def forward(self, X: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        outputs, (h,) = _run("RNN", self.rnn_cells, X, None if h0 is None else (h0,))
        return outputs, h


class LSTM(Module):
    """``num_layers`` LSTMCells (``lstm_cells``), each applied to the outputs of the previous one.

    Called with X (T, B, input_size) and (h0, c0), each (num_layers, B, hidden_size), None for
    zeros. Returns the outputs of the last layer (T, B, hidden_size) and the final (h, c) of every
    layer.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self.lstm_cells = [
            LSTMCell(size, hidden_size, bias, device, dtype)
            for size in _input_sizes("LSTM", input_size, hidden_size, num_layers)
        ]

    def forward(
        self, X: Tensor, h: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs, (h_n, c_n) = _run("LSTM", self.lstm_cells, X, h)
        return outputs, (h_n, c_n)


def _input_sizes(owner: str, input_size: int, hidden_size: int, num_layers: int) -> list[int]:
    if num_layers < 1:
        raise ShapeError(f"{owner}: num_layers must be at least 1, got {num_layers}; pass 1")
    return [input_size] + [hidden_size] * (num_layers - 1)


def _step(cell: _Cell, X: Tensor, state: State | None) -> State:
    """Return the state after one step of ``cell`` on X (B, I)."""
    shape = _checked_shape(type(cell).__name__, X, "(B, input_size)", 2)
    if state is None:
        state = cell.start(shape[0])
    _check_state(type(cell).__name__, state, cell, (shape[0], cell.hidden_size))
    return cell.advance(cell.from_inputs(X), state)


def _run(owner: str, cells: list[Any], X: Tensor, start: State | None) -> tuple[Tensor, State]:
    """Run all layers over all steps.

    Return the last layer's outputs and the stacked final states.
    """
    steps, batch, _ = _checked_shape(owner, X, "(T, B, input_size)", 3)
    if steps == 0:
        raise ShapeError(
            f"{owner}: there must be at least one step, got shape {X.shape}; skip empty sequences"
        )
    if start is None:
        states = [cell.start(batch) for cell in cells]
    else:
        _check_state(owner, start, cells[0], (len(cells), batch, cells[0].hidden_size))
        states = list(zip(*(ops.split(each, 0) for each in start), strict=True))
    for layer, cell in enumerate(cells):
        outputs = []
        for part in ops.split(cell.from_inputs(X), 0):
            states[layer] = cell.advance(part, states[layer])
            outputs.append(states[layer][0])
        X = ops.stack(outputs, 0)
    return X, tuple(ops.stack(each, 0) for each in zip(*states, strict=True))


def _checked_shape(owner: str, X: Tensor, layout: str, ndim: int) -> tuple[int, ...]:
    shape = shape_of(owner, X)
    if len(shape) != ndim:
        raise ShapeError(f"{owner}: the input must be {layout}, got shape {shape}; reshape it")
    return shape


def _check_state(owner: str, state: State, cell: _Cell, expected: tuple[int, ...]) -> None:
    if isinstance(state, Tensor) or len(state) != cell.states:
        raise ShapeError(
            f"{owner}: the state must be a tuple of {cell.states} tensors, got "
            f"{type(state).__name__} of length {len(state)}; pass (h, c) for an LSTM"
        )
    for each in state:
        if shape_of(owner, each) != expected:
            raise ShapeError(
                f"{owner}: a state must have shape {expected}, got {shape_of(owner, each)}; pass "
                "a state that the layer returned for this batch size"
            )
