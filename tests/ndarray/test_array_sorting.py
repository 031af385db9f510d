"""Compare sorting, unique values, shifts and cumulative functions with NumPy."""

from typing import Any

import numpy as np
import pytest
from array_layouts import DTYPES, LAYOUTS, case, check

from needle import ndarray as nd
from needle.errors import DTypeError, IndexingError, ShapeError


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "0-d"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sorting(layout: str, dtype: str, device: Any) -> None:
    a, host = case(layout, dtype, device)
    for axis in (-1, 0):
        check(nd.sort(a, axis=axis), np.sort(host, axis))
        check(nd.argsort(a, axis=axis), np.argsort(host, axis, stable=True))
        check(nd.sort(a, axis=axis, descending=True), np.flip(np.sort(host, axis), axis))
    assert nd.sort(a).dtype == dtype and nd.argsort(a).dtype == "int64"


def test_descending_order_keeps_equal_values_in_place(device: Any) -> None:
    a = nd.asarray([3, 1, 3, 2, 3], device=device)
    check(nd.argsort(a, descending=True), [0, 2, 4, 3, 1])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_unique_values(layout: str, dtype: str, device: Any) -> None:
    a, host = case(layout, dtype, device)
    found = nd.unique_all(a)
    values, first, counts = np.unique(host, return_index=True, return_counts=True)
    check(found.values, values)
    check(found.indices, first)
    check(found.counts, counts)
    check(nd.take(found.values, found.inverse_indices), host) if host.size else None
    check(nd.unique_values(a), values)
    check(nd.unique_counts(a).counts, counts)
    check(nd.unique_inverse(a).inverse_indices, found.inverse_indices.numpy())


def test_every_nan_is_a_unique_value_of_its_own(device: Any) -> None:
    a = nd.asarray([np.nan, 1.0, np.nan], device=device)
    check(nd.unique_counts(a).counts, [1, 1, 1])


def test_searchsorted(device: Any) -> None:
    host, wanted = np.array([1.0, 2.0, 2.0, 5.0]), np.array([[0.0, 2.0], [5.0, 9.0]])
    a, b = nd.asarray(host, device=device), nd.asarray(wanted, device=device)
    for side in ("left", "right"):
        check(nd.searchsorted(a, b, side=side), np.searchsorted(host, wanted, side))
    order = nd.asarray([3, 0, 2, 1], device=device)
    check(nd.searchsorted(a[[1, 3, 2, 0]], b, sorter=order), np.searchsorted(host, wanted))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_shifts(dtype: str, device: Any) -> None:
    a, host = case("compact", dtype, device)
    places = nd.asarray([0, 1, 5, 2], dtype=dtype, device=device)
    moved = np.array([0, 1, 5, 2], dtype)
    check(a << places, host << moved)
    check(a >> places, host >> moved)
    check(3 << places, np.array(3, dtype) << moved)
    check(nd.bitwise_right_shift(a, 2), host >> 2)
    assert (a << places).dtype == dtype


def test_neighbours_and_signs_of_floats(device: Any) -> None:
    host = np.array([1.0, -0.0, np.inf, np.nan, -np.nan], np.float32)
    a = nd.asarray(host, device=device)
    check(nd.nextafter(a, 2.0), np.nextafter(host, np.float32(2)))
    check(nd.signbit(a), np.signbit(host))
    ones = nd.ones_like(a)
    assert np.signbit(nd.copysign(ones, a).numpy()).tolist() == np.signbit(host).tolist()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_results_and_differences(axis: int, device: Any) -> None:
    a, host = case("sliced", "float64", device)
    check(nd.cumulative_prod(a, axis=axis), np.cumprod(host, axis))
    check(nd.diff(a, axis=axis), np.diff(host, axis=axis))
    check(nd.diff(a, axis=axis, n=2), np.diff(host, 2, axis))
    more = nd.ones_like(a)
    joined = np.diff(host, axis=axis, prepend=np.ones_like(host), append=np.ones_like(host))
    check(nd.diff(a, axis=axis, prepend=more, append=more), joined)
    check(nd.diff(a, axis=axis, n=0, prepend=more, append=more), host)
    line = nd.asarray([2, 3, 4], device=device)
    check(nd.cumulative_prod(line, include_initial=True), [1, 2, 6, 24])
    check(nd.diff(nd.asarray([True, False, False], device=device)), [True, False])


def test_pow_and_parts_of_real_numbers(device: Any) -> None:
    a = nd.asarray([1.0, -2.0], device=device)
    check(nd.pow(a, 2), [1, 4])
    check(nd.real(a), a.numpy())
    check(nd.conj(a), a.numpy())
    check(nd.imag(a), [0, 0])


ERRORS = [
    (lambda a: nd.sort(a, axis=2), IndexingError, "sort: axis 2 is out of range"),
    (lambda a: nd.expand_dims(a, 5), IndexError, "expand_dims: axis 5 is out of range"),
    (lambda a: nd.searchsorted(a, a), ShapeError, "searchsorted: x1 must be 1-D"),
    (lambda a: nd.searchsorted(a[0], a, side="top"), ShapeError, "side must be 'left' or"),
    (lambda a: nd.diff(a, n=-1), ShapeError, "diff: n must not be negative, got -1"),
    (lambda a: a << 1, DTypeError, "bitwise_left_shift: operands must be of kind 'integral'"),
    (lambda a: nd.nextafter(a > 0, True), DTypeError, "nextafter: operands must be of kind"),
    (lambda a: nd.cumulative_prod(a), ShapeError, "cumulative_prod: axis may be omitted"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call: Any, error: type[Exception], message: str, device: Any) -> None:
    with pytest.raises(error, match=message):
        call(nd.ones((2, 3), device=device))
