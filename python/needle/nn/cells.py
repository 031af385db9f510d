"""One step of recurrent layers: RNNCell, LSTMCell, GRUCell; ``recurrent`` runs them.

The product of the inputs with ``W_ih`` does not depend on the state, so it is computed once for a
whole sequence; only ``W_hh`` is applied step by step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError, UnknownNameError, check_choice
from ..shapes import shape_of, shape_with
from .linear import affine
from .module import Module, Parameter

NONLINEARITIES: dict[str, Callable[[Tensor], Tensor]] = {"tanh": ops.tanh, "relu": ops.relu}
State = tuple[Tensor, ...]


class Cell(Module):
    """Base class of cells with G gates: W_ih (I, G*H), W_hh (H, G*H), bias_ih and bias_hh (G*H,).

    The parameters are drawn from U(±1/sqrt(H)) in this order. With ``proj_size`` P the output is h
    W_hr, where W_hr (H, P) is drawn last, and W_hh is (P, G*H) (Sak et al. 2014).
    """

    gates = 1
    states = 1
    """Number of tensors (B, H) in the state; the first one is the output."""
    proj_size = 0
    W_hr: Tensor | None = None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        if min(input_size, hidden_size) < 1:
            raise ShapeError(
                f"{type(self).__name__}: sizes must be at least 1, got input_size={input_size}, "
                f"hidden_size={hidden_size}; pass positive sizes"
            )
        self.input_size, self.hidden_size = input_size, hidden_size
        self.output_size = self.proj_size or hidden_size
        bound, width = 1.0 / math.sqrt(hidden_size), self.gates * hidden_size

        def drawn(*shape: int) -> Parameter:
            return Parameter(init.rand(*shape, low=-bound, high=bound, device=device, dtype=dtype))

        self.W_ih: Tensor = drawn(input_size, width)
        self.W_hh: Tensor = drawn(self.output_size, width)
        self.bias_ih: Tensor | None = drawn(width) if bias else None
        self.bias_hh: Tensor | None = drawn(width) if bias else None
        if self.proj_size:
            self.W_hr = drawn(hidden_size, self.proj_size)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, bias={self.bias_ih is not None}"

    def from_inputs(self, x: Tensor) -> Tensor:
        """Return the inputs' contribution to the gates: x (..., I) -> (..., G*H)."""
        ### BEGIN YOUR SOLUTION [rnn-cell]
        return affine(type(self).__name__, x, self.W_ih, self.bias_ih)
        ### END YOUR SOLUTION

    def gate_inputs(self, part: Tensor, h: Tensor) -> Tensor:
        """Return ``part``, the contribution of the inputs, plus that of the output h (B, H)."""
        ### BEGIN YOUR SOLUTION [rnn-cell]
        return part + affine(type(self).__name__, h, self.W_hh, self.bias_hh)
        ### END YOUR SOLUTION

    def advance(self, part: Tensor, state: State) -> State:
        """Return the next state, given the inputs' contribution ``part`` to the gates."""
        raise NotImplementedError

    def start(self, batch: int) -> State:
        """Return a zero state.

        ``W_hh`` is still applied to it, so that every parameter gets a gradient.
        """
        place: dict[str, Any] = {"device": self.W_hh.device, "dtype": self.W_hh.dtype}
        made = {size: init.zeros(batch, size, **place) for size in self.state_sizes}
        return tuple(made[size] for size in self.state_sizes)

    def forward(self, X: Tensor, h: Any = None) -> Any:
        """Return the next state h' (B, H) for X (B, I) and h, None for zeros."""
        return self.step(X, None if h is None else (h,))[0]

    def step(self, X: Tensor, state: State | None) -> State:
        """Return the state after one step on X (B, I)."""
        name = type(self).__name__
        shape = shape_with(name, X, "(B, input_size)", 2)
        if state is None:
            state = self.start(shape[0])
        check_state(name, state, self, (shape[0],))
        return self.advance(self.from_inputs(X), state)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """The width of each tensor of the state, the output's first."""
        return (self.output_size, self.hidden_size)[: self.states]


class RNNCell(Cell):
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
        check_choice(
            type(self).__name__, "nonlinearity", nonlinearity, NONLINEARITIES, UnknownNameError
        )
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def advance(self, part: Tensor, state: State) -> State:
        ### BEGIN YOUR SOLUTION [rnn-cell]
        return (NONLINEARITIES[self.nonlinearity](self.gate_inputs(part, state[0])),)
        ### END YOUR SOLUTION


class LSTMCell(Cell):
    """Long short-term memory cell (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000).

    The gates i, f, g, o are the four column blocks, in this order, of X W_ih + bias_ih + h W_hh +
    bias_hh. c' = sigmoid(f) c + sigmoid(i) tanh(g) and h' = sigmoid(o) tanh(c'). Called with X (B,
    input_size) and (h, c), each (B, hidden_size), None for zeros; returns (h', c'). With
    ``proj_size`` P, h' is projected by W_hr (hidden_size, P), and h is (B, P).
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
        *,
        proj_size: int = 0,
    ) -> None:
        self.proj_size = proj_size
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def advance(self, part: Tensor, state: State) -> State:
        ### BEGIN YOUR SOLUTION [lstm-cell]
        h, c = state
        i, f, g, o = gate_blocks(self.gate_inputs(part, h), 4)
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(c)
        return h if self.W_hr is None else ops.matmul(h, self.W_hr), c
        ### END YOUR SOLUTION

    def forward(self, X: Tensor, h: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        output, c = self.step(X, h)
        return output, c


class GRUCell(Cell):
    """Gated recurrent unit (Cho et al. 2014), with the reset gate applied after the product.

    With i = X W_ih + bias_ih and s = h W_hh + bias_hh, whose three column blocks belong to r, z, n
    in this order: r = sigmoid(i_r + s_r), z = sigmoid(i_z + s_z), n = tanh(i_n + r s_n) and h' =
    (1 - z) n + z h. Called with X (B, input_size) and h (B, hidden_size), None for zeros; returns
    h'.
    """

    gates = 3

    def advance(self, part: Tensor, state: State) -> State:
        (h,) = state
        from_state = affine(type(self).__name__, h, self.W_hh, self.bias_hh)
        (i_r, i_z, i_n), (s_r, s_z, s_n) = gate_blocks(part, 3), gate_blocks(from_state, 3)
        r, z = ops.sigmoid(i_r + s_r), ops.sigmoid(i_z + s_z)
        n = ops.tanh(i_n + r * s_n)
        return (n + z * (h - n),)


def gate_blocks(gates: Tensor, count: int) -> Any:
    """Return the column blocks of gates (B, count * H), each (B, H)."""
    batch, width = gates.shape
    return ops.split(ops.reshape(gates, (batch, count, width // count)), 1)


def check_state(owner: str, state: State, cell: Cell, lead: tuple[int, ...]) -> None:
    """Raise ShapeError unless the state is a tuple of tensors of shape ``lead`` + (width,)."""
    if isinstance(state, Tensor) or len(state) != cell.states:
        raise ShapeError(
            f"{owner}: the state must be a tuple of {cell.states} tensors, got "
            f"{type(state).__name__} of length {len(state)}; pass (h, c) for an LSTM"
        )
    for each, width in zip(state, cell.state_sizes, strict=True):
        if shape_of(owner, each) != (*lead, width):
            raise ShapeError(
                f"{owner}: a state must have shape {(*lead, width)}, got {shape_of(owner, each)}; "
                "pass a state that the layer returned for this batch size"
            )
