"""``dtype=None`` means float32, and in NumPy mode NumPy's float64, wherever a dtype is optional."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import init, nn, ops
from needle.errors import DTypeError
from tests.nn_devices import NUMPY_MODE

MADE: dict[str, Callable[[], Any]] = {
    "linear": lambda: nn.Linear(4, 3, device=None, dtype=None).weight,
    "embedding": lambda: nn.Embedding(4, 3, dtype=None).weight,
    "batch norm": lambda: nn.BatchNorm1d(3, dtype=None).running_var,
    "layer norm": lambda: nn.LayerNorm(3, dtype=None).weight,
    "rand": lambda: init.rand(2, dtype=None),
    "randn": lambda: init.randn(2, dtype=None, generator=init.Generator(0)),
    "randb": lambda: init.randb(2, dtype=None),
    "one_hot": lambda: init.one_hot(3, ndl.Tensor([1]), dtype=None),
    "zeros": lambda: ndl.zeros(2, dtype=None),
    "full": lambda: ndl.default_device().full((2,), 1.0, dtype=None),
    "device's zeros": lambda: ndl.default_device().zeros(2, dtype=None),
    "device's one_hot": lambda: ndl.default_device().one_hot(3, np.array([1]), dtype=None),
}


@pytest.mark.parametrize("name", MADE)
def test_no_dtype_is_the_default_dtype(name: str) -> None:
    assert MADE[name]().dtype == ("float64" if NUMPY_MODE else "float32")


def test_a_cast_needs_a_dtype() -> None:
    with pytest.raises(DTypeError, match="astype: None is not a supported dtype"):
        ops.astype(ndl.zeros(2), None)
