"""Test how samples are collated into batches and batches converted to Tensors."""

from collections import namedtuple

import numpy as np
import pytest

import needle
from needle.backend_selection import BACKEND
from needle.data import default_collate
from needle.data.batching import collate
from needle.data.batching.collate import to_tensors
from needle.errors import DTypeError, ShapeError

Pair = namedtuple("Pair", "image label")


@pytest.mark.parametrize(
    "samples, want",
    [
        ([np.ones(2, "f4"), np.zeros(2, "f4")], np.array([[1, 1], [0, 0]], "f4")),
        ([np.int64(3), np.int64(4)], np.array([3, 4], "i8")),
        ([np.uint8(3), np.uint8(4)], np.array([3, 4], "u1")),
        ([np.float64(0.5), np.float64(1)], np.array([0.5, 1], "f8")),
        ([1, 2], np.array([1, 2], "i8")),
        ([1.5, 2], np.array([1.5, 2], "f4")),
        ([2, 1.5, True], np.array([2, 1.5, 1], "f4")),
        ([2**70, 0.5], np.array([2**70, 0.5], "f4")),
        ([True, False], np.array([True, False])),
        ([True, 3], np.array([1, 3], "i8")),
        ([np.bool_(True)], np.array([True])),
        ([3, np.uint8(4)], np.array([3, 4], "i8")),
        ([np.float32(0.5), 2], np.array([0.5, 2], "f8")),
        ([np.int16(3), np.uint16(4), np.float16(0.5)], np.array([3, 4, 0.5], "f4")),
        ([np.array(3), np.int8(4), True], np.array([3, 4, 1], "i8")),
    ],
)
def test_arrays_and_numbers(samples, want):
    got = default_collate(samples)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_the_first_sample_decides_the_order_of_keys_alone():
    batch = default_collate([{"a": 1, "b": 2.5}, {"b": 3, "a": 4}])
    assert list(batch) == ["a", "b"] and batch["a"].tolist() == [1, 4]
    assert batch["b"].tolist() == [2.5, 3] and batch["b"].dtype == "float32"


def test_structures_keep_their_kind():
    batch = default_collate([{"x": (1, [2.0]), "name": "a"}, {"x": (3, [4.0]), "name": "b"}])
    assert isinstance(batch["x"], tuple) and isinstance(batch["x"][1], list)
    assert batch["x"][0].tolist() == [1, 3] and batch["x"][1][0].tolist() == [2, 4]
    assert batch["name"] == ["a", "b"]
    pairs = default_collate([Pair(np.zeros(2), 1), Pair(np.ones(2), 2)])
    assert isinstance(pairs, Pair) and pairs.label.tolist() == [1, 2]


def test_needle_arrays_and_tensors_are_samples_too():
    tensor = needle.Tensor(np.ones((2, 2)), dtype="float32")
    for sample in (tensor, tensor.realize_cached_data()):
        np.testing.assert_array_equal(default_collate([sample, sample]), np.ones((2, 2, 2)))


@pytest.mark.parametrize(
    "samples, error, message",
    [
        ([], ShapeError, "at least one sample, got none"),
        (
            [np.zeros((2, 3)), np.zeros((3, 3))],
            ShapeError,
            r"the same shape, got \(2, 3\) in sample 0",
        ),
        ([(1, 2), (1,)], ShapeError, "got a tuple of 2 in sample 0 and a tuple of 1 in sample 1"),
        ([(1, 2), 3], ShapeError, "got a tuple of 2 in sample 0 and a single value in sample 1"),
        ([3, 4, (1, 2)], ShapeError, "a single value in sample 0 and a tuple of 2 in sample 2"),
        ([(1, 2), [1, 2]], ShapeError, "a tuple of 2 in sample 0 and a list of 2 in sample 1"),
        ([(1, 2), Pair(1, 2)], ShapeError, "a tuple of 2 in sample 0 and a Pair of 2 in sample 1"),
        ([(1, [2]), (1, (2,))], ShapeError, "a list of 1 in sample 0 and a tuple of 1 in sample 1"),
        ([{"a": 1}, {"b": 1}], ShapeError, r"keys \['a'\] in sample 0 and .* \['b'\] in sample 1"),
        ([{"a": 1}, {"a": 1, "b": 1}], ShapeError, r"keys \['a'\] in .* \['a', 'b'\] in sample 1"),
        ([{1: 1}, {"1": 1}], ShapeError, r"keys \[1\] in sample 0 and .* \['1'\] in sample 1"),
        ([{"a": 1}, 5], ShapeError, r"keys \['a'\] in sample 0 and a single value in sample 1"),
        ([object()], TypeError, "cannot make a batch of object, got it in sample 0; return arrays"),
        ([None], TypeError, "cannot make a batch of NoneType"),
        ([1, None], TypeError, "cannot make a batch of NoneType, got it in sample 1"),
        ([1.5, None], TypeError, "cannot make a batch of NoneType, got it in sample 1"),
        (["a", None], TypeError, "cannot make a batch of NoneType, got it in sample 1"),
        (["a", "b", 3], TypeError, "got str in sample 0 and int in sample 2"),
        ([1.5, "a"], TypeError, "got float in sample 0 and str in sample 1"),
        ([1, np.zeros(2)], ShapeError, r"got \(\) in sample 0 and \(2,\) in sample 1"),
        ([1, 2**70], TypeError, "must fit int64, got 1180591620717411303424"),
        ([np.int64(1), np.uint64(1)], TypeError, "no dtype holds every value of int64, uint64"),
        ([np.array("a"), np.array(1)], TypeError, "no dtype holds every value of <U1, int64"),
    ],
)
def test_samples_that_do_not_fit(samples, error, message):
    with pytest.raises(error, match=message):
        default_collate(samples)


def test_arrays_become_tensors_wherever_they_are():
    batch = {"x": (np.ones((2, 3), "f4"), [np.arange(2)]), "names": ["a", "b"], "n": 3}
    got = collate.to_tensors(batch)
    x, (ids,) = got["x"]
    assert isinstance(x, needle.Tensor) and x.dtype == "float32" and not x.requires_grad
    assert ids.dtype == "int64" and ids.numpy().tolist() == [0, 1]
    assert got["names"] == ["a", "b"] and got["n"] == 3
    pair = collate.to_tensors(Pair(np.ones(1), np.ones(1)))
    assert isinstance(pair, Pair) and isinstance(pair.label, needle.Tensor)


@pytest.mark.parametrize(
    "given, want",
    [("uint8", "uint8"), ("bool", "bool"), ("int16", "int32"), ("uint32", "int64")],
)
def test_integers_keep_a_dtype_that_holds_them(given, want):
    assert collate.to_tensors(np.ones(2, given)).dtype == want


def test_dtypes_that_tensors_lack_are_refused():
    with pytest.raises(DTypeError, match="dtype uint64, which tensors do not support"):
        collate.to_tensors(np.ones(2, "uint64"))
    text = np.array(["a"])
    assert collate.to_tensors(text) is text


@pytest.mark.parametrize("device", ["cpu", "cpu_numpy"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool"])
def test_a_tensor_takes_over_the_memory_of_an_unshared_array(device, dtype):
    if BACKEND == "np" or not needle.device(device).enabled():
        pytest.skip(f"no device {device} here")
    array = np.arange(12).reshape(3, 4).astype(dtype)
    (taken,) = to_tensors((array,), needle.device(device), owned=True)
    (copied,) = to_tensors((array,), needle.device(device))
    array[1, 2] = 0
    assert taken.numpy()[1, 2] == 0 and copied.numpy()[1, 2] != 0
    assert taken.dtype == dtype and not taken.requires_grad and str(taken.device) == f"{device}()"
    np.testing.assert_array_equal(taken.numpy(), array)


def test_tensors_of_float64_and_narrow_ints_are_converted_owned_or_not():
    batch = (np.ones((2, 2)), np.ones(2, np.int16), np.ones((2, 2), np.float32)[:, ::-1])
    made = to_tensors(batch, owned=True)
    for tensor, plain in zip(made, to_tensors(batch)):
        assert tensor.dtype == plain.dtype
        np.testing.assert_array_equal(tensor.numpy(), plain.numpy())
