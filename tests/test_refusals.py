"""Test that functions that create tensors, values and gradients reject invalid input."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import init
from needle.backend_selection import BACKEND
from needle.errors import DeviceError, DTypeError, GraphError, ShapeError, UnknownNameError

CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "text": (lambda: ndl.Tensor("abc"), DTypeError, "array: elements must be bool, integers"),
    "objects": (lambda: ndl.Tensor([None]), DTypeError, "got object from list"),
    "an item of a list": (
        lambda: ndl.tuple_get_item([ndl.Tensor(1.0)], 0),
        TypeError,
        "tuple_get_item: value must be a TensorTuple, got list",
    ),
    "complex": (lambda: ndl.Tensor(np.ones(2, complex)), DTypeError, "got complex128"),
    "rows of different lengths": (lambda: ndl.Tensor([[1], [2, 3]]), ValueError, "inhomogeneous"),
    "a negative size": (lambda: init.rand(-1), ShapeError, "rand: sizes must not be negative"),
    "a fraction as size": (lambda: init.randn(2.5), DTypeError, "randn: shape must be an int"),
    **{
        f"0 as the device of {name}": (make, UnknownNameError, "unknown device '0'")
        for name, make in {
            "an embedding": lambda: ndl.nn.Embedding(10, 3, 0),  # type: ignore[arg-type]
            "zeros": lambda: init.zeros(2, device=0),  # type: ignore[arg-type]
            "draws": lambda: init.rand(2, device=0),  # type: ignore[arg-type]
            "copies": lambda: init.ones_like(ndl.Tensor([1.0]), device=0),  # type: ignore[arg-type]
        }.items()
    },
    "zeros": (lambda: init.zeros(2, -3), ShapeError, "constant: sizes must not be negative"),
    "no inputs": (
        lambda: ndl.nn.Linear(0, 3),
        ShapeError,
        "kaiming_uniform: fan_in must be at least 1, got 0",
    ),
    "kaiming_normal": (lambda: init.kaiming_normal(0, 3), ShapeError, "fan_in must be at least 1"),
    "xavier": (
        lambda: init.xavier_normal(0, 0),
        ShapeError,
        "xavier_normal: fan_in + fan_out must be at least 1, got 0",
    ),
    "a misspelt dtype": (
        lambda: ndl.Tensor([1.0], dtype="flaot32"),
        DTypeError,
        "array: 'flaot32' is not a supported dtype; use one of .*. Did you mean 'float32'?",
    ),
    "dtype of random values": (
        lambda: init.randn(2, dtype="flaot32"),
        DTypeError,
        "mean 'float32'",
    ),
    "dtype of random bits": (
        lambda: init.randb(2, dtype="boool"),
        DTypeError,
        "randb: .*mean 'bool'",
    ),
    "dtype of constants": (
        lambda: init.zeros(2, dtype="int46"),
        DTypeError,
        "constant: .*mean 'int64'",
    ),
    "dtype of one_hot": (
        lambda: init.one_hot(2, ndl.Tensor([1]), dtype="uint80"),
        DTypeError,
        "one_hot: .*mean 'uint8'",
    ),
    **{
        f"one_hot of {ids}": (
            lambda ids=ids: init.one_hot(3, ndl.Tensor(ids)),
            ShapeError,
            r"one_hot: labels must be whole numbers in \[0, 3",
        )
        for ids in ([0, 3], [-1, 0], [0.5, 1], [float("nan"), 0])
    },
    "a nonlinearity": (
        lambda: init.kaiming_uniform(3, 4, nonlinearity="rellu"),
        UnknownNameError,
        "known: linear, relu, tanh",
    ),
    "dtype of a layer": (
        lambda: ndl.nn.Linear(2, 2, dtype="flaot32"),
        DTypeError,
        "mean 'float32'",
    ),
    "dtype of a cast": (
        lambda: ndl.astype(ndl.Tensor([1.0]), "flaot64"),
        DTypeError,
        "astype: 'flaot64' is not a supported dtype",
    ),
    "dtype of a copy": (
        lambda: ndl.Tensor(ndl.Tensor([1.0]), dtype="flaot32"),
        DTypeError,
        "Tensor: 'flaot32' is not a supported dtype",
    ),
    "dtype of a device's zeros": (
        lambda: ndl.default_device().zeros(2, dtype="flaot32"),
        DTypeError,
        "'flaot32' is not a supported dtype",
    ),
    "grad of an argument that is not there": (
        lambda: ndl.grad(lambda x: x.sum(), argnums=2)(ndl.Tensor([1.0])),
        GraphError,
        "grad: argnums must be indices of positional arguments, got 2 for 1",
    ),
    "grad of a number": (
        lambda: ndl.grad(lambda x: 3.0)(ndl.Tensor([1.0])),
        GraphError,
        "grad: the function must return a Tensor, got float",
    ),
}


MASKED = np.ma.array([1.0, 2.0], mask=[False, True], dtype="float32")
TAKE_NO_MASKS: dict[str, Callable[[Any], Any]] = {
    "a tensor": ndl.Tensor,
    "a list of arrays": lambda a: ndl.Tensor([a, a]),
    "a parameter": ndl.nn.Parameter,
    "an operand": lambda a: ndl.Tensor([1.0, 2.0]) * a,
    "labels": lambda a: ndl.cross_entropy(ndl.ones(2, 3), a.astype("int64")),
    "indices of a layer": lambda a: ndl.nn.Embedding(3, 2)(a.astype("int64")),
    "a saved array": lambda a: ndl.io.save(os.devnull, {"a": a}),
    "a state dict": lambda a: ndl.nn.Linear(2, 1, bias=False).load_state_dict(
        {"weight": a.reshape(2, 1)}
    ),
    "a sample": lambda a: ndl.data.default_collate([(a, 1), (np.ones(2), 2)]),
    "a masked number": lambda a: ndl.data.default_collate([a[0], a[1]]),
    "a dataset": ndl.data.ArrayDataset,
    "a batch": lambda a: next(iter(ndl.data.DataLoader([a, a], collate=np.ma.stack))),
}


@pytest.mark.parametrize("name", TAKE_NO_MASKS)
def test_masked_elements_are_refused(name: str) -> None:
    with pytest.raises(DTypeError, match="no masked elements, got"):
        TAKE_NO_MASKS[name](MASKED)


def test_arrays_that_mask_nothing_are_plain_arrays() -> None:
    assert ndl.Tensor(np.ma.array([1.0, 2.0])).numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    call, error, message = CASES[name]
    with pytest.raises(error, match=message.replace("+", r"\+").replace("?", r"\?")):
        call()


IMAGES = [[[[1.0, 2.0, 3.0, 4.0]] * 4] * 3]
TAKE_NO_LISTS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "Linear": (ndl.nn.Linear(2, 2), [[[1.0, 2.0]]]),
    "Flatten": (ndl.nn.Flatten(), [[1.0]]),
    "BatchNorm1d": (ndl.nn.BatchNorm1d(2), [[1.0, 2.0], [3.0, 4.0]]),
    "BatchNorm2d": (ndl.nn.BatchNorm2d(3, affine=False), IMAGES),
    "GroupNorm": (ndl.nn.GroupNorm(3, 3, affine=False), IMAGES),
    "InstanceNorm2d": (ndl.nn.InstanceNorm2d(3, track_running_stats=True), IMAGES),
    "LayerNorm": (ndl.nn.LayerNorm(4, elementwise_affine=False), IMAGES),
    "RMSNorm": (ndl.nn.RMSNorm(4, elementwise_affine=False), IMAGES),
    "LayerNorm1d": (ndl.nn.LayerNorm1d(2), [[1.0, 2.0]]),
    "Dropout": (ndl.nn.Dropout(), [1.0]),
    "RNN": (lambda x: ndl.nn.RNN(1, 1)(x)[0], [[[1.0]]]),
    "LSTMCell": (lambda x: ndl.nn.LSTMCell(1, 1)(x)[0], [[1.0]]),
    "MultiHeadAttention": (lambda x: ndl.nn.MultiHeadAttention()(x, x, x)[0], [[[[1.0]]]]),
    "Transformer": (lambda x: ndl.nn.Transformer(2, 2, 1)(x)[0], [[[1.0, 2.0]]]),
    "Conv": (ndl.nn.Conv(3, 2, 3), IMAGES),
    "Conv2d": (ndl.nn.Conv2d(3, 2, 3), IMAGES),
    "Conv1d": (ndl.nn.Conv1d(3, 2, 3, padding_mode="reflect", padding=1), [[[1.0] * 4] * 3]),
    "ConvTranspose2d": (ndl.nn.ConvTranspose2d(3, 2, 3), IMAGES),
    "interpolate": (ndl.nn.Upsample(scale_factor=2), IMAGES),
    "adaptive_avg_pool2d": (ndl.nn.GlobalAvgPool(), IMAGES),
    "cross_entropy": (lambda x: ndl.nn.SoftmaxLoss()(x, [0]), [[1.0, 2.0]]),
    "embedding": (lambda x: ndl.embedding(x, [0]), [[1.0, 2.0]]),
    "expand_dims": (ndl.expand_dims, [1.0]),
    "squeeze": (ndl.squeeze, [1.0]),
    "mean": (ndl.mean, [1.0]),
    "var": (ndl.var, [1.0]),
}


@pytest.mark.parametrize("name", TAKE_NO_LISTS)
def test_lists_are_refused_by_name_and_arrays_accepted(name: str) -> None:
    call, values = TAKE_NO_LISTS[name]
    message = f"^{name}: the input must be a Tensor or an array, got list; make it one with needle"
    with pytest.raises(TypeError, match=message):
        call(values)
    assert isinstance(call(np.array(values, dtype="float32")), ndl.Tensor)


def test_products_and_comparisons_of_lists_alone_are_those_of_tensors() -> None:
    rows, columns = [[1.0, 2.0]], [[3.0], [4.0]]
    assert ndl.matmul(rows, columns).numpy().tolist() == [[11.0]]
    assert ndl.less(rows, [[2.0, 2.0]]).numpy().tolist() == [[True, False]]


def test_a_bad_shape_draws_nothing() -> None:
    np.random.seed(0)
    with pytest.raises(ShapeError):
        init.rand(2, -1)
    after = np.random.rand()
    np.random.seed(0)
    assert after == np.random.rand()


@pytest.mark.skipif(BACKEND == "np", reason="one device only")
def test_mixed_devices_are_named_by_the_operation() -> None:
    """The error is the same if the first device falls back to the definition."""
    if not ndl.cpu().enabled():
        pytest.skip("the extension is not built")
    image = ndl.Tensor(np.ones((1, 1, 3, 3)), device=ndl.cpu_numpy())
    weight = ndl.Tensor(np.ones((1, 1, 3, 3)), device=ndl.cpu())
    for first, second in ((image, weight), (weight, image)):
        with pytest.raises(DeviceError, match="conv2d: all arrays must be on one device"):
            ndl.conv2d(first, second)
