"""Test operands of different kinds: dtypes, devices, and objects that are not tensors."""

from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import Tensor, ops
from needle.backend_selection import BACKEND
from needle.errors import DTypeError


def of(values: Any, dtype: str, device: Any) -> Tensor:
    return Tensor(np.asarray(values), dtype=dtype, device=device)


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "power", "maximum", "minimum"])
def test_gradients_have_their_own_dtype(name: str, device: Any) -> None:
    single, double = of([1.0, 2.0], "float32", device), of([[3.0, 0.5]], "float64", device)
    out = getattr(ops, name)(single, double)
    assert out.dtype == "float64"
    out.sum().backward()
    assert (single.grad.dtype, double.grad.dtype) == ("float32", "float64")
    assert (single.grad.shape, double.grad.shape) == ((2,), (1, 2))


def test_matmul_of_two_dtypes(device: Any) -> None:
    single, double = of(np.ones((2, 3)), "float32", device), of(np.ones((3, 2)), "float64", device)
    out = single @ double
    assert out.dtype == "float64"
    out.sum().backward()
    assert (single.grad.dtype, double.grad.dtype) == ("float32", "float64")


def test_integers_beside_floats(device: Any) -> None:
    ids, weights = of([1, 2, 3], "int64", device), of([0.5, 1.5, 2.5], "float32", device)
    (ids * weights).sum().backward()
    np.testing.assert_array_equal(weights.grad.numpy(), [1, 2, 3])
    np.testing.assert_allclose(ids.grad.numpy(), [0.5, 1.5, 2.5])
    np.testing.assert_allclose(ops.erf(ids).numpy(), [0.84270079, 0.99532227, 0.99997791])
    assert (ids + 1).dtype == "int64" and (ids * 2).dtype == "int64"
    assert (ids * 2.5).numpy().tolist() == [2.5, 5.0, 7.5]
    with pytest.raises(DTypeError, match=r"power_scalar: an integer tensor has no negative powers"):
        ids**-1


def test_an_int_beside_bool_stays_an_int(device: Any) -> None:
    a = of([True, False], "bool", device)
    assert a.div(2).numpy().tolist() == [0.5, 0]
    assert ops.maximum(a, 2).numpy().tolist() == [2, 2]
    assert ops.where(a, 3, a).numpy().tolist() == [3, 0]
    assert ops.equal(a, 2).numpy().tolist() == [False, False]
    assert (a < 2).numpy().all() and ops.maximum(a, True).dtype == "bool"


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32", "float64"])
def test_differences_with_bytes_do_not_wrap_around(dtype: str, device: Any) -> None:
    small, other = of([0, 7, 255], "uint8", device), of([1, 1, 0], dtype, device)
    if dtype != "bool":  # bool and uint8 give uint8
        assert (other - small).numpy().tolist() == [1, -6, -255]
        assert (small - other).numpy().tolist() == [-1, 6, 255]
        assert (other.numpy() - small).numpy().tolist() == [1, -6, -255]
    assert (1.5 - small).numpy().tolist() == [1.5, -5.5, -253.5]
    assert (small - 1.5).numpy().tolist() == [-1.5, 5.5, 253.5]
    if dtype[0] == "f":
        assert ops.l1_loss(other, small, reduction="sum").item() == 262
        (other - small).sum().backward()
        assert other.grad.numpy().tolist() == [1, 1, 1]
        assert small.grad.numpy().tolist() == [-1, -1, -1]


def test_gradients_of_integers_keep_their_fractions(device: Any) -> None:
    whole = of([1, 2], "int64", device)
    (whole.astype("float32") * 0.25).sum().backward()
    assert whole.grad.numpy().tolist() == [0.25, 0.25]


def test_functions_take_numbers_and_arrays(device: Any) -> None:
    a = of([1.0, 2.0], "float32", device)
    for out in (ops.add(a, 2.0), ops.add(2.0, a), ops.add(a, np.array([2.0, 2.0]))):
        assert out.dtype == "float32" and out.device == device
        assert out.numpy().tolist() == [3.0, 4.0]
    assert ops.where(a > 1.5, a, 0.0).numpy().tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    "wrong", ["a", None, object(), 1j], ids=["str", "none", "object", "complex"]
)
def test_operands_that_are_not_numbers(wrong: Any, device: Any) -> None:
    a = of([1.0, 2.0], "float32", device)
    for combine in (lambda: a + wrong, lambda: wrong * a, lambda: ops.add(a, wrong)):
        with pytest.raises(TypeError):
            combine()


@pytest.mark.skipif(BACKEND == "np", reason="np mode has one device")
def test_moving_between_devices() -> None:
    if not ndl.cpu().enabled():
        pytest.skip("one device only: build the extension (make build)")
    a, b = of([1.0, 2.0], "float64", ndl.cpu()), of([3.0, 4.0], "float64", ndl.cpu_numpy())
    assert a.to("cpu").cached_data is a.cached_data
    (a.to(ndl.cpu_numpy()) * b).sum().backward()
    assert a.grad.device == ndl.cpu() and b.grad.device == ndl.cpu_numpy()
    np.testing.assert_array_equal(a.grad.numpy(), [3.0, 4.0])
    np.testing.assert_array_equal(b.grad.numpy(), [1.0, 2.0])
