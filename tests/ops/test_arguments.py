"""Test that errors for a wrong type, dtype or size name the op, the rule and the value."""

from typing import Any

import numpy as np
import pytest

from needle import Tensor, init, nn, ops
from needle.backend_selection import BACKEND
from needle.errors import DTypeError, ShapeError


def of(values: Any, device: Any, dtype: str = "float32") -> Tensor:
    return Tensor(np.asarray(values), device=device, dtype=dtype)


# ---- numbers as arguments ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "call"),
    {
        "leaky_relu: negative_slope": ops.leaky_relu,
        "elu: alpha": ops.elu,
        "clip: min": lambda a, x: ops.clip(a, min=x),
        "clip: max": lambda a, x: ops.clip(a, max=x),
        "add_scalar: the scalar": ops.add_scalar,
        "power_scalar: the scalar": ops.power_scalar,
        "divide: the scalar": lambda a, x: a.__rtruediv__(np.asarray(x)),
        "layer_norm: eps": lambda a, x: ops.layer_norm(a, eps=x),
        "rms_norm: eps": lambda a, x: ops.rms_norm(a, eps=x),
        "instance_norm: eps": lambda a, x: ops.instance_norm(ops.reshape(a, (1, 1, 2)), eps=x),
        "group_norm: eps": lambda a, x: ops.group_norm(ops.reshape(a, (1, 1, 2)), 1, eps=x),
        "batch_norm: eps": lambda a, x: ops.batch_norm(ops.reshape(a, (2, 1)), a[:1], a[:1], x),
        "cross_entropy: label_smoothing": lambda a, x: ops.cross_entropy(a, 0, x),
        "var: correction": lambda a, x: ops.var(a, correction=x),
        "std: correction": lambda a, x: ops.std(a, correction=x),
    }.items(),
)
@pytest.mark.parametrize("wrong", ["a", 1j, object()])
def test_arguments_that_must_be_numbers(name: str, call: Any, wrong: Any, device: Any) -> None:
    with pytest.raises(DTypeError, match=rf"^{name} must be a real number, got .*;"):
        call(of([1.0, 2.0], device), wrong)


def test_numpy_numbers_are_numbers(device: Any) -> None:
    """NumPy scalars are accepted wherever Python numbers are."""
    a = of([[1.0, 2.0, 4.0], [0.0, 1.0, 5.0]], device)
    half = np.float32(0.5)
    assert nn.Dropout(half).p == 0.5
    for call in (
        lambda x: ops.cross_entropy(a, [0, 1], label_smoothing=x),
        lambda x: ops.layer_norm(a, eps=x),
        lambda x: ops.var(a, 1, correction=x),
    ):
        np.testing.assert_array_equal(call(half).numpy(), call(0.5).numpy())


@pytest.mark.parametrize("join", [ops.concatenate, ops.stack])
@pytest.mark.parametrize("wrong", [None, 3, "ab", {"a": 1}, np.float32(1)])
def test_what_is_joined_is_a_sequence(join: Any, wrong: Any, device: Any) -> None:
    name = join.__name__
    with pytest.raises(
        DTypeError, match=f"^{name}: the argument must be a list or tuple of tensors, got .*;"
    ):
        join(wrong)
    with pytest.raises(
        DTypeError, match=f"^{name}: the argument must be a list or tuple of tensors, got Te"
    ):
        join(of(1.0, device))


HUGE = 2**70


@pytest.mark.parametrize(
    ("name", "call"),
    {
        "max_pool2d: stride": lambda a: ops.max_pool2d(a, 2, HUGE),
        "adaptive_avg_pool2d: output_size": lambda a: ops.adaptive_avg_pool2d(a, HUGE),
        "adaptive_max_pool2d: output_size": lambda a: ops.adaptive_max_pool2d(a, (HUGE, 1)),
        "conv2d: stride": lambda a: ops.conv2d(a, a, stride=HUGE),
        "conv2d: padding": lambda a: ops.conv2d(a, a, padding=HUGE),
        "conv_transpose2d: stride": lambda a: ops.conv_transpose2d(a, a, stride=HUGE),
        "interpolate: size": lambda a: ops.interpolate(a, HUGE),
        "interpolate: size or scale_factor": lambda a: ops.interpolate(a, scale_factor=1e30),
        "tril: diagonal": lambda a: ops.tril(a, HUGE),
        "triu: diagonal": lambda a: ops.triu(a, -HUGE),
        "one_hot: n": lambda a: init.one_hot(HUGE, Tensor([1.0])),
        "empty: an array may have": lambda a: ops.conv2d(a, a, padding=2**40),
    }.items(),
)
def test_sizes_beyond_64_bits_are_refused(name: str, call: Any, device: Any) -> None:
    if name.startswith("empty") and (BACKEND == "np" or "numpy" in str(device)):
        pytest.skip("NumPy checks the sizes of its own arrays")
    with pytest.raises(ShapeError, match=f"^{name}"):
        call(of(np.ones((1, 1, 4, 4)), device))


# ---- positions -----------------------------------------------------------------------------------


def test_scatter_takes_a_source_of_its_own_dtype(device: Any) -> None:
    a = of([1.0, 2.0], device)
    for dtype in ("float64", "int64", "bool"):
        src = Tensor(np.ones(2), device=device, dtype=dtype)
        for reduce in (None, "add"):
            with pytest.raises(DTypeError, match=f"^scatter: src must .* float32, got {dtype};"):
                ops.scatter(a, 0, [0, 0], src, reduce)
    with pytest.raises(DTypeError, match="^scatter: src must .* int64, got float32;"):
        ops.scatter(Tensor([1, 2], device=device, dtype="int64"), 0, [0], 1.5)
    for src in (np.ones(2, "int32"), np.ones(2), [True, True], [1, 1]):
        y = ops.scatter(a, 0, [0, 0], src, "add")
        assert y.dtype == "float32"
        np.testing.assert_array_equal(y.numpy(), [3.0, 2.0])


def test_an_index_of_unequal_rows_is_refused(device: Any) -> None:
    for call in (ops.gather, ops.index_select):
        with pytest.raises(ShapeError, match=f"^{call.__name__}: the index must be a regular arra"):
            call(of([[1.0, 2.0]], device), 0, [[0], [0, 0]])
