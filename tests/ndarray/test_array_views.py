"""Test views, which share memory and have NumPy's strides, and indexing and setitem by example.

The random counterpart is ``tests/properties``.
"""

import math
from typing import Any

import numpy as np
import pytest
from array_layouts import DTYPES, LAYOUTS, case, check

from needle import ndarray as nd
from needle.errors import DTypeError, IndexingError, ShapeError


def pair(shape: tuple[int, ...], device: Any) -> tuple[nd.NDArray, Any]:
    host = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return nd.array(host, device=device), host


VIEWS = {
    "mT": (lambda a: a.mT, lambda h: h.mT),
    "steps": (lambda a: a[:, ::2, ::-1], lambda h: h[:, ::2, ::-1]),
    "beyond the end": (lambda a: a[:99, -99:], lambda h: h[:99, -99:]),
    "ellipsis of nothing": (lambda a: a[0, ..., 1, 2], lambda h: h[0, ..., 1, 2]),
    "numpy int": (lambda a: a[np.int64(1), np.uint8(2)], lambda h: h[1, 2]),
    "0-d int array": (lambda a: a[nd.asarray(1, device=a.device)], lambda h: h[1]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory_and_have_numpys_strides(name: str, device: Any) -> None:
    a, host = pair((2, 3, 4), device)
    view, host_view = (take(x) for take, x in zip(VIEWS[name], (a, host), strict=True))
    check(view, host_view)
    assert view._handle is a._handle
    assert view.strides == tuple(step // host.itemsize for step in np.asarray(host_view).strides)
    view[...] = -1.0
    np.asarray(VIEWS[name][1](host))[...] = -1
    check(a, host)


def test_reshape_copies_only_where_it_must(device: Any) -> None:
    a, host = pair((4, 6), device)
    assert a.T.reshape((6, 2, 2))._handle is a._handle
    check(a.T.reshape((24,)), host.T.reshape(24))
    assert a.T.reshape((24,))._handle is not a._handle
    assert a.reshape((24,), copy=True)._handle is not a._handle
    assert a[:0].reshape((-1, 6)).shape == (0, 6) and a.reshape(24).shape == (24,)
    with pytest.raises(ShapeError, match="needs a copy"):
        a.T.reshape((24,), copy=False)


def test_is_compact(device: Any) -> None:
    a, _ = pair((4, 6), device)
    assert a.is_compact() and a.compact() is a
    for view in (a.T, a[1:], a[:, ::2], a[::-1], a[:1].broadcast_to((4, 6))):
        assert not view.is_compact()
        assert view.compact().is_compact()
        check(view.compact(), view.numpy())


def test_as_strided(device: Any) -> None:
    a, host = pair((10,), device)
    windows = a.as_strided((7, 4), (1, 1))
    check(windows, np.lib.stride_tricks.sliding_window_view(host, 4))
    assert windows._handle is a._handle
    check(a.as_strided((2, 5), (-5, 1), offset=5), host.reshape(2, 5)[::-1])


def test_flip_method_is_compact_and_function_a_view(device: Any) -> None:
    a, host = pair((3, 4), device)
    assert a.flip((0, 1)).is_compact()
    check(a.flip((0, 1)), host[::-1, ::-1])
    assert nd.flip(a)._handle is a._handle
    assert nd.flip(a, axis=0).strides == (-4, 1)


def test_pad(device: Any) -> None:
    a, host = pair((2, 3), device)
    check(a.T.pad(((1, 0), (2, 3))), np.pad(host.T, ((1, 0), (2, 3))))


def test_flat_reads_and_writes_every_layout(device: Any) -> None:
    for layout in ("compact", "permuted", "sliced", "negative", "offset", "vector"):
        a, host = case(layout, "float32", device)
        host = host.copy()
        a.flat[3] += 2.5
        a.flat[-1] = 9.0
        a.flat[1:3] = 7.0
        host.flat[3] += 2.5
        host.flat[host.size - 1] = 9.0
        host.flat[1:3] = 7.0
        check(a, host)
        assert len(a.flat) == host.size
        np.testing.assert_array_equal([float(x) for x in a.flat], host.ravel())
        np.testing.assert_array_equal(a.flat.numpy(), host.ravel())


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_setitem_casts_to_the_arrays_dtype(source: str, target: str, device: Any) -> None:
    a, host = case("sliced", target, device, 1)
    host = host.copy()
    value, host_value = case("compact", source, device, 2)
    if target == "uint8" and source.startswith("f"):
        value, host_value = nd.abs(value), abs(host_value)
    a[:, :4] = value
    host[:, :4] = host_value
    check(a, host)
    assert a.dtype == target


@pytest.mark.parametrize("layout", ["compact", "permuted", "sliced", "negative", "offset"])
def test_setitem_of_every_kind_of_value(layout: str, device: Any) -> None:
    for value in (3, 2.5, True, np.float32(1.5), np.arange(2.0), [[1.0], [2.0]]):
        a, host = case(layout, "float32", device)
        host = host.copy()
        a[..., -2:, :2] = value
        host[..., -2:, :2] = value
        check(a, host)


def test_setitem_takes_an_array_of_equal_size_and_other_shape(device: Any) -> None:
    a, host = pair((3, 4), device)
    a[1:3, :2] = nd.array([1.0, 2.0, 3.0, 4.0], device=device)
    host[1:3, :2] = [[1, 2], [3, 4]]
    a[0] = nd.array([[5.0, 6.0], [7.0, 8.0]], device=device)
    host[0] = [5, 6, 7, 8]
    check(a, host)


def test_setitem_is_safe_where_memory_overlaps(device: Any) -> None:
    b, host = pair((4, 4), device)
    b[...] = b.T
    check(b, host.T)
    alias = nd.from_dlpack(b)
    b[1:] = alias[:-1]
    check(b, np.concatenate([host.T[:1], host.T[:-1]]))


@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("flag", [True, False])
def test_a_0d_bool_adds_an_axis_of_size_1_or_0(
    shape: tuple[int, ...], flag: bool, device: Any
) -> None:
    host = np.arange(6.0)[: max(1, math.prod(shape))].reshape(shape)
    a = nd.asarray(host, device=device)
    for mask in (flag, np.array(flag), nd.asarray(flag, device=device)):
        check(a[mask], host[flag])
        changed, expected = a.copy(), host.copy()
        changed[mask], expected[flag] = 9, 9
        check(changed, expected)
    if shape:
        check(a[:, flag], host[:, flag])
        check(a[1, flag, [0, 2]], host[1, flag, [0, 2]]) if flag else None
        check(a[[0, 1], :, flag], host[[0, 1], :, flag]) if flag else None


def test_a_mask_may_be_a_view_of_the_array(device: Any) -> None:
    host = np.random.default_rng(0).integers(0, 2, (5, 5)).astype(bool)
    for value in (True, False):
        a, expected = nd.asarray(host, device=device), host.copy()
        a[a.T] = value
        expected[host.T] = value
        check(a, expected)


def test_the_last_of_equal_indices_stays(device: Any) -> None:
    a = nd.zeros((3,), device=device)
    a[[1, 1, 1]] = nd.array([1.0, 2.0, 3.0], device=device)
    assert a.tolist() == [0, 3, 0]


def test_iteration_and_length(device: Any) -> None:
    a, host = pair((3, 2), device)
    assert len(a) == 3 and a.ndim == 2 and a.size == 6
    check(nd.stack(list(a)), host)
    first, *_ = a
    assert first._handle is a._handle
    assert 4.0 in a and 9.0 not in a


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_to_devices_and_dtypes(layout: str, device: Any) -> None:
    a, host = case(layout, "float32", device)
    for name in ("cpu_numpy", "cpu"):
        if nd.device(name).enabled():
            moved = a.to(name)
            assert moved.device == nd.device(name)
            check(moved, host)
    assert a.to(device) is a and a.to_device(device) is a
    for dtype in DTYPES:
        if dtype != "uint8" or not (host < 0).any():
            check(a.astype(dtype), host.astype(dtype))
    assert a.astype("float32", copy=False) is a
    assert a.astype("float32") is not a


ERRORS = [
    (lambda a: a.reshape((5,)), ShapeError, "reshape: the number of elements must stay 12"),
    (lambda a: a.permute((0, 0)), ShapeError, "permute: axes must be distinct"),
    (lambda a: a.permute((0,)), ShapeError, "permute: every axis must be named"),
    (
        lambda a: a.broadcast_to((3, 5)),
        ShapeError,
        "broadcast_to: every axis must be equal",
    ),
    (lambda a: a.as_strided((4, 4), (4, 1)), ShapeError, "as_strided: the view must stay inside"),
    (lambda a: a.as_strided((4,), (-1,)), ShapeError, "as_strided: the view must stay inside"),
    (lambda a: a.as_strided((4,), (1, 1)), ShapeError, "as_strided: there must be one stride per"),
    (lambda a: a.flip((2,)), ShapeError, "flip: axis 2 is out of range"),
    (
        lambda a: a.pad(((1, 1),)),
        ShapeError,
        "pad: there must be one non-negative .before, after. pair",
    ),
    (
        lambda a: a.pad(((1, 1), (-1, 0))),
        ShapeError,
        "pad: there must be one non-negative .before, after. pair",
    ),
    (lambda a: a[0].T, ShapeError, "T: the array must have 2 axes"),
    (lambda a: a[0].mT, ShapeError, "mT: the array must have at least 2 axes"),
    (lambda a: a[3], IndexError, "getitem: index 3 is out of range for axis 0 with size 3"),
    (lambda a: a[0, -5], IndexingError, "getitem: index -5 is out of range for axis 1"),
    (lambda a: a[0, 0, 0], IndexingError, "getitem: too many indices, got 3 for 2 dimensions"),
    (lambda a: a[..., ...], IndexingError, "one ellipsis"),
    (lambda a: a[::0], ShapeError, "step must not be 0"),
    (lambda a: a["x"], DTypeError, "getitem: an index must be an int, slice"),
    (lambda a: a[1.5], DTypeError, "getitem: an index must be an int, slice"),
    (lambda a: a[[0.5]], DTypeError, "got list of float64; cast it to int64"),
    (lambda a: a[0.5:], IndexingError, "getitem: slice bounds must be ints"),
    (lambda a: a[[0, 3]], IndexingError, "getitem: index 3 is out of range for axis 0 with size 3"),
    (lambda a: a[:, [0, -5]], IndexingError, "getitem: index -5 is out of range for axis 1"),
    (lambda a: a[[0, 1], [0, 1, 2]], IndexingError, "index arrays must broadcast together"),
    (lambda a: a[np.ones((2, 4), bool)], IndexingError, "getitem: a mask must have the shape"),
    (lambda a: a.__setitem__(0, nd.ones((5,), device=a.device)), ShapeError, "setitem: the value"),
    (
        lambda a: a.__setitem__([0], nd.ones((5,), device=a.device)),
        ShapeError,
        "setitem: the value",
    ),
    (
        lambda a: a.__setitem__([0, 2], nd.ones((4, 2), device=a.device)),
        ShapeError,
        r"the value must broadcast to the target, got \(4, 2\) for \(2, 4\)",
    ),
    (
        lambda a: a.__setitem__(np.eye(3, 4) < 0.5, nd.ones((3, 3), device=a.device)),
        ShapeError,
        r"the value must broadcast to the target, got \(3, 3\) for \(9,\)",
    ),
    (lambda a: a.__setitem__(0, "x"), DTypeError, "setitem: elements must be bool, integers or"),
    (lambda a: a.__setitem__(0, [[1], [1, 2]]), ShapeError, "setitem: rows must have equal"),
    (
        lambda a: a.astype("int32").fill(float("nan")),
        DTypeError,
        "nan cannot be represented in int32",
    ),
    (lambda a: a.astype("uint8").__setitem__(0, -1), DTypeError, "setitem: the scalar must fit"),
    (lambda a: a.broadcast_to((2, 3, 4)).fill(1), ShapeError, "a broadcast view cannot be written"),
    (lambda a: a.astype("float16"), DTypeError, "astype: 'float16' is not a supported dtype"),
    (lambda a: len(a[0, 0]), TypeError, "len: a 0-d array has no length"),
    (lambda a: iter(a[0, 0]), TypeError, "iter: a 0-d array cannot be iterated"),
    (lambda a: bool(a), ShapeError, "item: the array must have one element"),
    (lambda a: [1, 2][a[0, 0]], DTypeError, "index: the array must hold integers, got float32"),
    (lambda a: nd.reshape(a, (1,) * 17), ShapeError, "at most 16 axes"),
    (lambda a: nd.reshape(a, (-1, -1)), ShapeError, "at most one -1"),
    (lambda a: nd.reshape(a, (-1, 5)), ShapeError, "must stay 12"),
    (lambda a: nd.reshape(a[:0], (0, -1)), ShapeError, "must stay 0"),
    (lambda a: nd.sort(a[0, 0], axis=0), IndexingError, "a 0-d array has no axes"),
    (lambda a: a.sum(1.0), DTypeError, "sum: axis must be an int, got 1.0"),
    (lambda a: a[(None,) * 15], ShapeError, "at most 16 axes, got 17"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call: Any, error: type[Exception], message: str, device: Any) -> None:
    with pytest.raises(error, match=message):
        call(nd.ones((3, 4), device=device))
