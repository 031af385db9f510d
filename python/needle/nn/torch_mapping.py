"""State dicts from and for PyTorch, as dicts of NumPy arrays; PyTorch is not imported.

Both sides use the same dotted attribute names if the two models name their layers alike
(Sequential's are "0", "1", ... on both; a Residual's block is under "fn"). Values per layer:

====================================  ============================  ==============================
needle                                PyTorch                       values
====================================  ============================  ==============================
Linear.weight (I, O)                  weight (O, I)                 transposed
Linear.bias (1, O)                    bias (O,)                     reshaped
Conv.weight (K, K, I, O)              weight (O, I, K, K)           permuted; all convolutions
LSTM.lstm_cells.0.W_ih (I, 4*H)       weight_ih_l0 (4*H, I)         transposed; same gate order
LSTM.lstm_cells.1.bias_hh             bias_hh_l0_reverse            unchanged; also RNN, GRU, cells
MultiheadAttention                    in_proj_weight (3*E, E)       transposed; also q_proj_weight
norm layers                           the same names                unchanged, and running values
—                                     num_batches_tracked           dropped; 0 when written
====================================  ============================  ==============================

num_batches_tracked is written only for norms whose momentum is not None.

PyTorch's running_var is the unbiased variance, needle's the biased one, except in InstanceNorm;
loading keeps the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..errors import CheckpointError
from .attention import MultiheadAttention
from .cells import Cell
from .linear import Linear
from .module import Module
from .normalization import BatchStatistics
from .recurrent import Recurrent
from .window import WindowLayer

HostArray = NumpyArray[Any]
COUNTER = "num_batches_tracked"


def from_torch_state_dict(
    module: Module, state: Mapping[str, HostArray], strict: bool = True
) -> tuple[list[str], list[str]]:
    """Load ``{name: NumPy array}`` of the same model in PyTorch into ``module``.

    ``{k: v.numpy() for k, v in torch_model.state_dict().items()}`` is such a dict. Errors and
    result are those of ``Module.load_state_dict``.
    """
    entries = {entry.name: (name, entry) for name, entry in _entries(module).items()}
    converted = {}
    for name, value in state.items():
        if name in entries:
            ours, entry = entries[name]
            converted[ours] = _from_torch(entry, np.asarray(value))
        elif _leaf(name) != COUNTER:
            converted[name] = np.asarray(value)
    return module.load_state_dict(converted, strict=strict)


def to_torch_state_dict(module: Module) -> dict[str, HostArray]:
    """Return the module's state under PyTorch's names and layouts, as copied NumPy arrays.

    ``{k: torch.from_numpy(v) for k, v in result.items()}`` loads with ``strict=True``.
    """
    own, further, entries = module.state_dict(), module.further_names(), _entries(module)
    state: dict[str, HostArray] = {
        entry.name: np.array(_to_torch(entry, own[further.get(name, name)].numpy()), order="C")
        for name, entry in entries.items()
    }
    for entry in entries.values():
        if isinstance(entry.owner, BatchStatistics) and entry.owner.track_running_stats:
            path = entry.name.rpartition(".")[0]
            state.setdefault(_join(path, COUNTER), np.array(0, dtype=np.int64))
    return state


class _Entry(NamedTuple):
    """PyTorch's name of a tensor, and the layer to which it belongs."""

    name: str
    owner: Module | None

    @property
    def leaf(self) -> str:
        """The name within the layer."""
        return _leaf(self.name)


def _entries(module: Module) -> dict[str, _Entry]:
    """Map each of needle's tensor names to an entry; a shared tensor has several names."""
    owners = dict(module.named_modules())
    further = module.further_names()
    suffixes = {}
    for path, layer in owners.items():
        if isinstance(layer, Recurrent):
            directions = 1 + layer.bidirectional
            for k, cell in enumerate(layer.cells):
                backward = "_reverse" if k % directions else ""
                suffixes[id(cell)] = path, f"_l{k // directions}{backward}"
    entries = {}
    for name in (*module.state_dict(), *further):
        path, _, leaf = name.rpartition(".")
        owner = owners.get(path, owners.get(further.get(name, "").rpartition(".")[0]))
        if isinstance(owner, Cell):
            home, suffix = suffixes.get(id(owner), (path, ""))
            entries[name] = _Entry(_join(home, leaf.replace("W_", "weight_") + suffix), owner)
        else:
            entries[name] = _Entry(name, owner)
    return entries


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _is_matrix(entry: _Entry) -> bool:
    """Return True for a weight (I, O), which is (O, I) in PyTorch."""
    owner, leaf = entry.owner, entry.leaf
    if isinstance(owner, Linear):
        return leaf == "weight"
    return isinstance(owner, (Cell, MultiheadAttention)) and "weight" in leaf


def _from_torch(entry: _Entry, value: HostArray) -> HostArray:
    owner = entry.owner
    if _is_matrix(entry):
        return _checked(entry.name, value, 2).T
    if isinstance(owner, Linear):
        return _checked(entry.name, value, 1).reshape(1, -1)
    if isinstance(owner, WindowLayer) and entry.leaf == "weight":
        value = _checked(entry.name, value, 2 + owner.axes)
        return (value if owner.axes == 2 else value[:, :, None]).transpose(2, 3, 1, 0)
    return value


def _to_torch(entry: _Entry, value: HostArray) -> HostArray:
    owner = entry.owner
    if _is_matrix(entry):
        return value.T
    if isinstance(owner, Linear):
        return value.reshape(-1)
    if isinstance(owner, WindowLayer) and entry.leaf == "weight":
        value = value.transpose(3, 2, 0, 1)
        return value if owner.axes == 2 else value[:, :, 0]
    return value


def _checked(name: str, value: HostArray, ndim: int) -> HostArray:
    if value.ndim != ndim:
        raise CheckpointError(
            f"from_torch_state_dict: {name} must have {ndim} axes in PyTorch's layout, got shape "
            f"{value.shape}; pass the state dict of the same model"
        )
    return value
