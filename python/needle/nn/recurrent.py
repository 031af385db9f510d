"""Recurrent layers over whole sequences: RNN, LSTM, GRU; the cells are in ``cells``.

Sequences are time first, (T, B, features), unless ``batch_first``. Every module has a list of
cells, one for each layer and direction: forward and backward of the first layer, then of the
second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError
from ..host_steps import host_step
from ..shapes import shape_with
from .cells import Cell, GRUCell, LSTMCell, RNNCell, State, check_state
from .dropout import Dropout
from .module import Module


class Recurrent(Module):
    """Base class of recurrent layers: the options, and the loops over layers, directions, steps."""

    cell: Callable[..., Cell]
    cells_name: str
    """The attribute that holds the cells."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ShapeError(
                f"{type(self).__name__}: num_layers must be at least 1, got {num_layers}; pass 1"
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.bidirectional = batch_first, bidirectional
        self.dropout = Dropout(dropout) if dropout else None
        cells: list[Cell] = []
        for i in range(num_layers * (1 + bidirectional)):
            first = i <= bidirectional
            width = input_size if first else (1 + bidirectional) * cells[0].output_size
            cells.append(self.cell(width, hidden_size, bias, device=device, dtype=dtype))
        setattr(self, self.cells_name, cells)

    @property
    def cells(self) -> Sequence[Cell]:
        """The cells, in the order of the state's first axis."""
        found: Sequence[Cell] = getattr(self, self.cells_name)
        return found

    def forward(self, X: Tensor, h0: Any = None, lengths: Any = None) -> tuple[Tensor, Any]:
        """Return the outputs of the last layer and the final state of every layer."""
        outputs, (h,) = self.run(X, None if h0 is None else (h0,), lengths)
        return outputs, h

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"]
        parts += [f"{name}=True" for name in ("batch_first", "bidirectional") if vars(self)[name]]
        return ", ".join(parts)

    def run(self, X: Tensor, start: State | None, lengths: Any) -> tuple[Tensor, State]:
        """Return the last layer's outputs, and the final states of all cells, stacked."""
        owner, cells = type(self).__name__, self.cells
        layout = "(B, T, input_size)" if self.batch_first else "(T, B, input_size)"
        shape = shape_with(owner, X, layout, 3)
        steps, batch = (shape[1], shape[0]) if self.batch_first else shape[:2]
        if steps == 0:
            raise ShapeError(
                f"{owner}: there must be at least one step, got shape {shape}; leave empty "
                "sequences out"
            )
        if start is None:
            states = [cell.start(batch) for cell in cells]
        else:
            check_state(owner, start, cells[0], (len(cells), batch))
            states = list(zip(*(ops.split(each, 0) for each in start), strict=True))
        device = cells[0].W_hh.device
        valid = None if lengths is None else _valid(owner, lengths, steps, batch, device)
        X = ops.transpose(X, (0, 1)) if self.batch_first else X
        X, states = self._run_layers(X, states, valid)
        X = ops.transpose(X, (0, 1)) if self.batch_first else X
        return X, tuple(ops.stack(each, 0) for each in zip(*states, strict=True))

    def _run_layers(
        self, X: Tensor, states: list[State], valid: Tensor | None
    ) -> tuple[Tensor, list[State]]:
        directions, final = 1 + self.bidirectional, list(states)
        each = None if valid is None else list(ops.split(valid, 0))
        for layer in range(self.num_layers):
            outputs = []
            for k in range(layer * directions, (layer + 1) * directions):
                backward = bool(k % directions)
                y, final[k] = _run_cell(self.cells[k], X, states[k], backward, each)
                outputs.append(y)
            X = outputs[0] if directions == 1 else ops.concatenate(outputs, 2)
            X = X if valid is None else X * ops.astype(valid, X.dtype)
            if self.dropout is not None and layer + 1 < self.num_layers:
                X = self.dropout(X)
        return X, final


def _run_cell(
    cell: Cell, X: Tensor, state: State, backward: bool, valid: list[Tensor] | None
) -> tuple[Tensor, State]:
    """Return the outputs (T, B, H) of one cell and its final state.

    Where ``valid`` is 0, the state is carried forward unchanged.
    """
    ### BEGIN YOUR SOLUTION [recurrent-steps]
    parts = list(ops.split(cell.from_inputs(X), 0))
    outputs = []
    for t in reversed(range(len(parts))) if backward else range(len(parts)):
        after = cell.advance(parts[t], state)
        if valid is not None:
            after = tuple(ops.where(valid[t], a, b) for a, b in zip(after, state, strict=True))
        state = after
        outputs.append(state[0])
    return ops.stack(outputs[::-1] if backward else outputs, 0), state
    ### END YOUR SOLUTION


@host_step
def _valid(owner: str, lengths: Any, steps: int, batch: int, device: Device) -> Tensor:
    """Return a mask (T, B, 1) that is True at the steps inside each sequence."""
    host = np.asarray(lengths.numpy() if isinstance(lengths, Tensor) else lengths)
    if host.shape != (batch,) or not np.isin(host, np.arange(1, steps + 1)).all():
        raise ShapeError(
            f"{owner}: lengths must be {batch} whole numbers from 1 to {steps}, got "
            f"{host.tolist()}; pass one for each sequence"
        )
    inside = (np.arange(steps)[:, None] < host)[..., None]
    return Tensor(inside, device=device, dtype="bool", requires_grad=False)


class RNN(Recurrent):
    """``num_layers`` RNNCells (``rnn_cells``), each reading the outputs of the one before.

    Called with X (T, B, input_size) and h0 (num_layers, B, hidden_size), None for zeros. Returns
    the outputs of the last layer (T, B, hidden_size) and the final state of every layer
    (num_layers, B, hidden_size). Further options, as in PyTorch: ``batch_first`` for X and outputs
    (B, T, ...), ``dropout`` of the outputs between layers, ``bidirectional`` for two cells per
    layer, the second of which runs from the last step to the first; the outputs and states of both
    are concatenated. ``lengths`` (B,) gives the number of steps of each sequence: outputs after its
    last step are 0, and the final state is that of its last step.
    """

    cells_name = "rnn_cells"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device | None = None,
        dtype: Any = "float32",
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        self.cell = partial(RNNCell, nonlinearity=nonlinearity)
        options: dict[str, Any] = {"batch_first": batch_first, "bidirectional": bidirectional}
        options |= {"device": device, "dtype": dtype, "dropout": dropout}
        super().__init__(input_size, hidden_size, num_layers, bias, **options)


class GRU(Recurrent):
    """``num_layers`` GRUCells (``gru_cells``), each reading the outputs of the one before.

    Called with X (T, B, input_size) and h0 (num_layers, B, hidden_size), None for zeros. Arguments,
    results and further options are those of ``RNN``.
    """

    cell = GRUCell
    cells_name = "gru_cells"


class LSTM(Recurrent):
    """``num_layers`` LSTMCells (``lstm_cells``), each reading the outputs of the one before.

    Called with X (T, B, input_size) and (h0, c0), each (num_layers, B, hidden_size), None for
    zeros. Returns the outputs of the last layer (T, B, hidden_size) and the final (h, c) of every
    layer. Further options are those of ``RNN``; with ``proj_size`` P outputs and h have the width
    P.
    """

    cells_name = "lstm_cells"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
    ) -> None:
        if not 0 <= proj_size < max(hidden_size, 1):
            raise ShapeError(
                f"LSTM: proj_size must be at least 0 and less than hidden_size={hidden_size}, got "
                f"{proj_size}; lower it"
            )
        self.cell = partial(LSTMCell, proj_size=proj_size)
        options: dict[str, Any] = {"batch_first": batch_first, "bidirectional": bidirectional}
        options |= {"device": device, "dtype": dtype, "dropout": dropout}
        super().__init__(input_size, hidden_size, num_layers, bias, **options)

    def forward(
        self, X: Tensor, h: tuple[Tensor, Tensor] | None = None, lengths: Any = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs, (h_n, c_n) = self.run(X, h, lengths)
        return outputs, (h_n, c_n)
