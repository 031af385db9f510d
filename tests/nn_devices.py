"""The available devices and an assertion, shared by tests of layers, optimisers and capture."""

from typing import Any

import numpy as np
import pytest

from needle import Tensor
from needle import backend_selection as selection

NUMPY_MODE = selection.BACKEND == "np"
DEVICES = [device for device in selection.all_devices() if device.enabled()]
needs_kernels = pytest.mark.skipif(
    NUMPY_MODE or not selection.cpu().enabled(), reason="needs the compiled backend"
)


def tensor(values: Any, device: Any = None, dtype: str = "float32") -> Tensor:
    return Tensor(np.asarray(values), device=device, dtype=dtype)


def close(actual: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Assert that values and shapes of a Tensor or array equal those of an array."""
    host = actual.numpy() if hasattr(actual, "numpy") else np.asarray(actual)
    expected = np.asarray(expected)
    assert host.shape == expected.shape
    np.testing.assert_allclose(host, expected, rtol=rtol, atol=atol)
