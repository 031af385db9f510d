"""Tests against changes that look natural but would break course programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle as ndl
import needle.nn as nn
from needle.backend_selection import BACKEND
from needle.errors import DTypeError

NP = BACKEND == "np"
ROOT = Path(ndl.__file__).parents[2]
nd_only = pytest.mark.skipif(NP, reason="needle's own arrays")


def test_a_backward_overwrites_grad() -> None:
    x = ndl.Tensor([1.0, 2.0])
    for _ in range(3):
        (x * x).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), [2, 4])
    (x * 5).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [5, 5])


def test_the_graph_of_a_difference_has_a_negation() -> None:
    a, b = ndl.Tensor([3.0]), ndl.Tensor([1.0])
    difference = a - b
    kinds = [type(node.op).__name__ for node in ndl.autograd.find_topo_sort([difference])]
    assert kinds == ["NoneType", "NoneType", "Negate", "EWiseAdd"]
    assert difference.inputs[0] is a and difference.inputs[1].inputs[0] is b
    shifted = a * 2 - 1 + 4
    kinds = [type(node.op).__name__ for node in ndl.autograd.find_topo_sort([shifted])]
    assert kinds == ["NoneType", "MulScalar", "AddScalar", "AddScalar"]


def test_numpy_mode_keeps_numpys_dtypes() -> None:
    expected = ["float64", "int64", "float64"] if NP else ["float32"] * 3
    values: list[Any] = [[0.5], [1], np.ones(2)]
    assert [str(ndl.Tensor(v).dtype) for v in values] == expected
    wide = ndl.Tensor(np.ones(2), dtype="float64")
    assert (wide * 2 + 1).sum().dtype == "float64"
    y = (wide * wide).sum()
    y.backward()
    assert wide.grad.dtype == "float64"


def test_data_may_be_replaced_by_another_shape() -> None:
    layer = nn.Linear(3, 2)
    layer.bias.data = ndl.Tensor(np.array([1.0, 2.0]), dtype="float32", device=layer.bias.device)
    assert layer.bias.shape == (2,)
    x = ndl.Tensor(np.zeros((4, 3)), dtype="float32", device=layer.weight.device)
    np.testing.assert_array_equal(layer(x).numpy(), np.tile([1.0, 2.0], (4, 1)))
    with pytest.raises(DTypeError):
        layer.bias.data = ndl.Tensor([1], dtype="int32", device=layer.bias.device)


def test_values_are_computed_at_once() -> None:
    assert ndl.autograd.LAZY_MODE is False
    assert (ndl.Tensor([1.0]) + 1).cached_data is not None


def test_tensors_compare_and_hash_by_identity() -> None:
    a, b = ndl.Tensor([1.0]), ndl.Tensor([1.0])
    assert a == a and a != b and (a == b) is False
    assert len({a: 1, b: 2}) == 2 and a in [b, a] and a not in [b]
    assert (a, b) != (b, a) and a in (b, a)


def test_views_share_memory() -> None:
    a = ndl.Tensor(np.arange(6.0).reshape(2, 3), dtype="float32")
    views = [a.reshape((3, 2)), a.transpose(), a.broadcast_to((4, 2, 3)), a.detach(), a.data]
    a.realize_cached_data().flat[1] += 10
    assert [float(v.numpy().max()) for v in views] == [11.0] * 5


@nd_only
def test_slices_reshapes_and_permutations_of_arrays_are_views(device: Any) -> None:
    a = ndl.backend_ndarray.array(np.arange(12.0).reshape(3, 4), device=device)
    views = [a[1:], a[:, ::2], a.reshape((4, 3)), a.permute((1, 0)), a[:1].broadcast_to((2, 4))]
    assert all(view._handle is a._handle for view in views)
    a.fill(3.0)
    assert all((view.numpy() == 3).all() for view in views)


def test_the_running_variance_is_biased() -> None:
    norm = nn.BatchNorm1d(1, momentum=1.0)
    norm(ndl.Tensor([[0.0], [2.0]], dtype="float32", device=norm.weight.device))
    np.testing.assert_allclose(norm.running_var.numpy(), [1.0])


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


def test_float32_sums_use_several_accumulators(device: Any) -> None:
    host = np.random.default_rng(0).random((2, 1 << 18), dtype="float32")
    tensor = ndl.Tensor(host, device=device, dtype="float32")
    exact = host.astype("float64").sum(1)
    np.testing.assert_allclose(tensor.sum((1,)).numpy(), exact, rtol=1e-6)
    np.testing.assert_allclose(tensor.sum().numpy(), exact.sum(), rtol=1e-6)
    columns = ndl.Tensor(host.T.copy(), device=device, dtype="float32").sum((0,))
    np.testing.assert_allclose(columns.numpy(), exact, rtol=2e-5)
    ones = ndl.init.ones(1, 1 << 18, device=device)
    product = (tensor @ ones.transpose()).numpy()
    np.testing.assert_allclose(product[:, 0], exact, rtol=1e-5)


@pytest.mark.parametrize("path, name", [(".", "apps.models"), ("apps", "models")])
def test_apps_are_found_both_ways(path: str, name: str) -> None:
    code = f"import sys; sys.path[:0] = ['python', {path!r}]; import {name} as m; m.ResNet9"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
