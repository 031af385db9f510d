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


def test_every_random_number_comes_from_the_global_stream() -> None:
    def numbers() -> list[Any]:
        image = np.arange(48.0).reshape(4, 4, 3)
        loader = ndl.data.DataLoader(
            ndl.data.NDArrayDataset(np.arange(10.0)), batch_size=10, shuffle=True
        )
        (batch,) = next(iter(loader))
        dropped = nn.Dropout(0.5)(ndl.init.ones(50))
        return [
            ndl.init.rand(3).numpy(),
            ndl.init.randb(9).numpy(),
            nn.Conv(2, 3, 3).bias.numpy(),
            ndl.data.RandomCrop(2)(image),
            ndl.data.RandomFlipHorizontal()(image),
            batch.numpy(),
            dropped.numpy(),
        ]

    np.random.seed(11)
    first, state = numbers(), np.random.get_state()[1]
    np.random.seed(11)
    second = numbers()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(state, np.random.get_state()[1])
    assert any(not np.array_equal(a, b) for a, b in zip(first, numbers(), strict=True))


def test_nothing_draws_unless_it_must() -> None:
    np.random.seed(0)
    before = np.random.get_state()[2]
    loader = ndl.data.DataLoader(ndl.data.NDArrayDataset(np.ones((4, 2))), batch_size=2)
    list(loader)
    model = nn.Sequential(nn.Dropout(0.3), nn.BatchNorm1d(2), nn.LayerNorm1d(2))
    model.eval()
    model(ndl.init.ones(3, 2))
    assert np.random.get_state()[2] == before


class Squares(ndl.data.Dataset):
    """A dataset as in the homework, indexed by ints and slices."""

    def __init__(self, transforms: Any = None) -> None:
        super().__init__(transforms)
        self.values = np.arange(12, dtype="float32").reshape(6, 2)

    def __getitem__(self, index: Any) -> Any:
        return self.apply_transforms(self.values[index] ** 2), np.arange(6)[index]

    def __len__(self) -> int:
        return 6


def test_own_dataset() -> None:
    order: list[str] = []

    def note(name: str) -> Any:
        return lambda v: order.append(name) or v + 1

    dataset = Squares(transforms=[note("a"), note("b")])
    np.testing.assert_array_equal(dataset[2][0], np.array([16, 25]) + 2)
    assert order == ["a", "b"]
    X, y = next(iter(ndl.data.DataLoader(dataset, batch_size=4)))
    assert isinstance(X, ndl.Tensor) and X.device == ndl.default_device() and X.dtype == "float32"
    assert isinstance(X.cached_data, ndl.autograd.NDArray)
    np.testing.assert_array_equal(X.numpy(), dataset.values[:4] ** 2 + 2)
    np.testing.assert_array_equal(y.numpy(), np.arange(4))
    assert order.count("a") >= 4
    assert Squares().apply_transforms(3) == 3
