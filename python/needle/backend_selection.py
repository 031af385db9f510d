"""Chooses the array namespace once, at import, by ``NEEDLE_BACKEND``: nd (default) or np.

Everything above arrays writes ``from ..backend_selection import array_api as xp``. The few
functions where the modes differ (to_numpy, from_numpy, adopt, device_of, is_array) are here too.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from . import config

BACKEND = config.BACKEND.read()

if BACKEND == "nd":
    _mode: ModuleType = importlib.import_module(".backend_ndarray", __package__)
    array_api: Any = _mode
    NDArray: Any = _mode.NDArray
    Device: Any = _mode.BackendDevice
    cuda: Any = _mode.cuda
    cpu_numpy: Any = _mode.cpu_numpy
elif BACKEND == "np":
    _mode = importlib.import_module(".backend_numpy", __package__)
    array_api = importlib.import_module("numpy")
    NDArray = array_api.ndarray
    Device = _mode.Device
else:
    raise RuntimeError(
        f"NEEDLE_BACKEND: must be 'nd' (needle's arrays) or 'np' (plain NumPy), got {BACKEND!r}; "
        f"unset it for the default"
    )

cpu: Any = _mode.cpu
default_device: Any = _mode.default_device
all_devices: Any = _mode.all_devices
device: Any = _mode.device
to_numpy: Any = _mode.to_numpy
from_numpy: Any = _mode.from_numpy
adopt: Any = _mode.adopt
device_of: Any = _mode.device_of
is_array: Any = _mode.is_array

tensor_type: Any = None
"""Tensor, once the package has it: what ``data`` makes of batches, and knows nothing else of."""
tensor_constant: Any = None
"""Its function that makes a constant of an array, sharing its memory."""
