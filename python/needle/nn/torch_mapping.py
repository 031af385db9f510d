"""State dicts to and from PyTorch, as dicts of NumPy arrays; PyTorch itself is not imported.

Both sides use the same dotted attribute names if the two models name their layers alike
(Sequential's are "0", "1", ... on both; a Residual's block is under "fn"). Values per layer:

========================  ======================  ========================================
needle                    PyTorch                 values
========================  ======================  ========================================
Linear.weight (I, O)      weight (O, I)           transposed
Linear.bias (1, O)        bias (O,)               reshaped
Conv.weight (K, K, I, O)  weight (O, I, K, K)     permuted (also Conv2d, grouped)
BatchNorm, LayerNorm      the same names          unchanged; running_mean, running_var too
—                         num_batches_tracked     dropped by loading, 0 when written
========================  ======================  ========================================

PyTorch's running_var is the unbiased variance, needle's the biased one; loading keeps the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..errors import CheckpointError
from .linear import Linear
from .module import Module
from .normalization import BatchStatistics
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
    owners, own = _owners(module), module.state_dict()
    converted = {
        name: _from_torch(owners.get(name.rpartition(".")[0]), name, np.asarray(value))
        for name, value in state.items()
        if _leaf(name) != COUNTER or name in own
    }
    return module.load_state_dict(converted, strict=strict)


def to_torch_state_dict(module: Module) -> dict[str, HostArray]:
    """Return the module's state under PyTorch's names and layouts, as copied NumPy arrays.

    ``{k: torch.from_numpy(v) for k, v in result.items()}`` loads with ``strict=True``.
    """
    owners = _owners(module)
    state: dict[str, HostArray] = {}
    for name, value in module.state_dict().items():
        owner = owners.get(name.rpartition(".")[0])
        state[name] = np.array(_to_torch(owner, name, value.numpy()), order="C")
    for path, owner in owners.items():
        if isinstance(owner, BatchStatistics) and owner.track_running_stats:
            name = f"{path}.{COUNTER}" if path else COUNTER
            state.setdefault(name, np.array(0, dtype=np.int64))
    return state


def _owners(module: Module) -> dict[str, Module]:
    return dict(module.named_modules())


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _from_torch(owner: Module | None, name: str, value: HostArray) -> HostArray:
    if isinstance(owner, Linear):
        if _leaf(name) == "weight":
            return _checked(name, value, 2).T
        return _checked(name, value, 1).reshape(1, -1)
    if isinstance(owner, WindowLayer) and _leaf(name) == "weight":
        value = _checked(name, value, 2 + owner.axes)
        return (value if owner.axes == 2 else value[:, :, None]).transpose(2, 3, 1, 0)
    return value


def _to_torch(owner: Module | None, name: str, value: HostArray) -> HostArray:
    if isinstance(owner, Linear):
        return value.T if _leaf(name) == "weight" else value.reshape(-1)
    if isinstance(owner, WindowLayer) and _leaf(name) == "weight":
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
