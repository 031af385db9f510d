"""Tests that forbid changes which look natural but would break course programs."""

from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn
from needle.backend_selection import BACKEND

NP = BACKEND == "np"


def test_numpy_mode_keeps_numpys_dtypes() -> None:
    expected = ["float64", "int64", "float64"] if NP else ["float32"] * 3
    values: list[Any] = [[0.5], [1], np.ones(2)]
    assert [str(ndl.Tensor(v).dtype) for v in values] == expected
    wide = ndl.Tensor(np.ones(2), dtype="float64")
    assert (wide * 2 + 1).sum().dtype == "float64"
    y = (wide * wide).sum()
    y.backward()
    assert wide.grad.dtype == "float64"


def test_values_are_computed_at_once() -> None:
    assert ndl.autograd.LAZY_MODE is False
    assert (ndl.Tensor([1.0]) + 1).cached_data is not None


def test_nothing_draws_unless_it_must() -> None:
    np.random.seed(0)
    before = np.random.get_state()[2]
    loader = ndl.data.DataLoader(ndl.data.NDArrayDataset(np.ones((4, 2))), batch_size=2)
    list(loader)
    model = nn.Sequential(nn.Dropout(0.3), nn.BatchNorm1d(2), nn.LayerNorm1d(2))
    model.eval()
    model(ndl.init.ones(3, 2))
    assert np.random.get_state()[2] == before
