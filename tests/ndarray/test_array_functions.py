"""Compare the namespace's other functions with NumPy, and test all its errors.

Creation, manipulation, reductions, searching, linear algebra, dtypes.
"""

import inspect
import math
from typing import Any

import numpy as np
import pytest
from array_layouts import DTYPES, LAYOUTS, case, check, values

import needle as ndl
from needle import ndarray as nd
from needle import ops
from needle.errors import DeviceError, DTypeError, ShapeError, UnknownNameError


def both(device: Any, *specs: tuple[tuple[int, ...], str]) -> list[Any]:
    """Yield NDArray, NumPy array, NDArray, NumPy array, ... for (shape, dtype) pairs."""
    hosts = [values(shape, dtype, seed) for seed, (shape, dtype) in enumerate(specs)]
    return [item for host in hosts for item in (nd.asarray(host, device=device), host)]


def same(call: Any, a: Any, host: Any) -> None:
    """Compare a call, given a namespace and an array, on both namespaces; it may give a tuple."""
    results = call(nd, a), call(np, host)
    pairs = zip(*results, strict=True) if isinstance(results[1], (tuple, list)) else [results]
    for found, expected in pairs:
        check(found, expected)


# ---- creation --------------------------------------------------------------------------------

CREATION = [
    ("zeros", ((2, 3),), "float32", np.zeros((2, 3))),
    ("ones", (4,), "float32", np.ones(4)),
    ("full", ((2, 2), 1.5), "float32", np.full((2, 2), 1.5)),
    ("full", ((2,), 3), "int64", np.full(2, 3)),
    ("full", ((), np.float64(0.1)), "float64", np.full((), 0.1)),
    ("full", ((), np.uint8(3)), "uint8", np.full((), 3)),
    ("full", ((2,), True), "bool", np.full(2, True)),
    ("arange", (5,), "int64", np.arange(5)),
    ("arange", (2, 9, 3), "int64", np.arange(2, 9, 3)),
    ("arange", (5, 0, -2), "int64", np.arange(5, 0, -2)),
    ("arange", (0, 1, 0.25), "float32", np.arange(0, 1, 0.25)),
    ("arange", (3, 1), "int64", np.arange(3, 1)),
    ("linspace", (0, 1, 7), "float32", np.linspace(0, 1, 7)),
    ("eye", (3,), "float32", np.eye(3)),
    ("eye", (2, 4), "float32", np.eye(2, 4)),
]


@pytest.mark.parametrize(("name", "args", "dtype", "expected"), CREATION)
def test_creation(name: str, args: Any, dtype: str, expected: Any, device: Any) -> None:
    made = getattr(nd, name)(*args, device=device)
    check(made, expected)
    assert made.dtype == dtype and made.device == device
    assert getattr(nd, name)(*args).device == nd.default_device()
    check(getattr(nd, name)(*args, dtype="int32", device=device), expected.astype("int32"))


def test_creation_like_another(device: Any) -> None:
    a, host = case("permuted", "int32", device)
    same(lambda xp, x: xp.zeros_like(x), a, host)
    same(lambda xp, x: xp.ones_like(x, dtype="float64"), a, host)
    same(lambda xp, x: xp.full_like(x, 7), a, host)
    like = nd.empty_like(a)
    assert (like.shape, like.dtype, like.device) == (a.shape, a.dtype, device)
    check(nd.linspace(1, 3, 4, endpoint=False, device=device), np.linspace(1, 3, 4, endpoint=False))
    check(nd.eye(4, k=-1, device=device), np.eye(4, k=-1))


@pytest.mark.parametrize("k", [-2, 0, 1])
def test_triangles(k: int, device: Any) -> None:
    arrays = both(device, ((2, 3, 4), "float32"))
    same(lambda xp, x: (xp.tril(x, k=k), xp.triu(x, k=k)), *arrays)


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid(indexing: Any, device: Any) -> None:
    hosts = [np.arange(n, dtype=np.float32) for n in (2, 3, 4)]
    arrays = [nd.array(h, device=device) for h in hosts]
    same(lambda xp, x: xp.meshgrid(*x, indexing=indexing), arrays, hosts)


def test_asarray_keeps_dtypes_and_array_gives_float32(device: Any) -> None:
    for dtype in DTYPES:
        host = values((2, 3), dtype)
        assert nd.asarray(host, device=device).dtype == dtype
        assert nd.array(host, device=device).dtype == ("bool" if dtype == "bool" else "float32")
        assert nd.array(host, dtype=dtype, device=device).dtype == dtype
    assert nd.asarray(1.5).dtype == nd.asarray([[1.0], [2.0]]).dtype == "float32"
    assert nd.asarray([1, 2]).dtype == "int64"
    assert nd.asarray([True]).dtype == "bool"
    assert nd.asarray([np.float64(1)]).dtype == "float64"
    check(nd.asarray([[1, 2], [3, 4]], device=device), [[1, 2], [3, 4]])
    a = nd.asarray([1.0], device=device)
    assert nd.asarray(a) is a
    assert nd.asarray(a, copy=True) is not a
    assert nd.asarray(a, dtype="int32").dtype == "int32"
    check(nd.asarray(np.float16([1.5]), dtype="float32", device=device), [1.5])


# ---- manipulation ----------------------------------------------------------------------------


def widths(a: Any) -> tuple[tuple[int, int], ...]:
    return tuple((axis, 2 - axis % 3) for axis in range(a.ndim))


def last(a: Any) -> tuple[int, ...]:
    """Return the order of axes in which axis 0 comes last."""
    return (*range(1, a.ndim), 0)


MANIPULATIONS: list[tuple[int, Any]] = [
    (0, lambda xp, a: xp.reshape(a, (-1,) if a.size else a.shape)),
    (0, lambda xp, a: xp.expand_dims(a, axis=0)),
    (0, lambda xp, a: xp.expand_dims(a, axis=(0, -1))),
    (0, lambda xp, a: xp.roll(a, 2)),
    (0, lambda xp, a: xp.tile(a, (2, 1, 3))),
    (0, lambda xp, a: xp.repeat(a, 2)),
    (0, lambda xp, a: xp.stack([a, a], axis=-1)),
    (0, lambda xp, a: xp.concat([a, a], axis=None)),
    (0, lambda xp, a: xp.flip(a)),
    (0, lambda xp, a: xp.transpose(a)),
    (0, lambda xp, a: xp.pad(a, 2)),
    (0, lambda xp, a: xp.pad(a, (1, 0), constant_values=-1.5)),
    (1, lambda xp, a: xp.concat([a, a + 1, a])),
    (1, lambda xp, a: xp.roll(a, -1, axis=0)),
    (1, lambda xp, a: xp.repeat(a, 3, axis=-1)),
    (1, lambda xp, a: xp.moveaxis(a, 0, -1)),
    (1, lambda xp, a: xp.swapaxes(a, 0, -1)),
    (1, lambda xp, a: xp.unstack(a, axis=-1)),
    (1, lambda xp, a: xp.transpose(a, last(a))),
    (1, lambda xp, a: xp.transpose(a, axes=list(last(a)))),
    (1, lambda xp, a: xp.permute_dims(a, last(a))),
    (1, lambda xp, a: xp.pad(a, widths(a))),
    (1, lambda xp, a: xp.pad(a, widths(a), "constant", constant_values=3)),
    (2, lambda xp, a: xp.matrix_transpose(a)),
    (2, lambda xp, a: xp.roll(a, (1, 2), axis=(0, 1))),
    (2, lambda xp, a: xp.roll(a, 1, axis=(0, 1))),
    (4, lambda xp, a: xp.squeeze(a, axis=0)),
    (4, lambda xp, a: xp.squeeze(a, (0, -2))),
    (4, lambda xp, a: xp.permute_dims(a, (3, 0, 2, 1))),
    (4, lambda xp, a: xp.moveaxis(a, (0, 1), (3, 0))),
    (4, lambda xp, a: xp.repeat(a, [1, 0, 2, 3], axis=3)),
    (4, lambda xp, a: xp.split(a, 3, axis=1)),
    (4, lambda xp, a: xp.split(a, [1, 4], axis=1)),
    (4, lambda xp, a: xp.tile(a, (0, 2))),
    (4, lambda xp, a: xp.tile(xp.reshape(a, (1,) * 10 + (6, 4)), (2,))),
]
"""The fewest axes of an array, and a call; those of four axes take the shape (1, 6, 1, 4)."""


@pytest.mark.parametrize("layout", [*LAYOUTS, "4-d"])
def test_manipulation(layout: str, device: Any) -> None:
    four = layout == "4-d"
    a, host = both(device, ((1, 6, 1, 4), "f4")) if four else case(layout, "float32", device)
    for axes, call in MANIPULATIONS:
        if axes == 4 if four else axes <= host.ndim:
            same(call, a, host)
    if host.ndim:
        check(nd.permute(a, last(a)), np.transpose(host, last(host)))
        check(a.pad(widths(a), 7), np.pad(host, widths(host), constant_values=7))
        views = nd.swapaxes(a, -1, 0), nd.transpose(a), *nd.split(a, 1)
        assert all(view._handle is a._handle for view in views)


def test_the_product_of_a_shape_is_an_int() -> None:
    """Test the course's calls of the array module with tuples and lists."""
    for shape in ((2, 3), [4, np.int64(5)], (), (2**31, 2**20)):
        found = nd.prod(shape)
        assert type(found) is int and found == math.prod(map(int, shape))
    for wrong in ((2.5, 2), ([1, 2], 3)):
        with pytest.raises(DTypeError, match="prod: the shape must be"):
            nd.prod(wrong)


def test_concat_promotes(device: Any) -> None:
    a, host_a, b, host_b = both(device, ((2, 3), "int32"), ((1, 3), "float32"))
    joined = nd.concat([a, b])
    assert joined.dtype == "float32"
    check(joined, np.concatenate([host_a, host_b]))
    assert nd.stack([a, a]).dtype == "int32"


# ---- reductions ------------------------------------------------------------------------------

AXES: dict[Any, int] = {None: 0, (): 0, 0: 1, -1: 1, (0, 1): 2, (-1, 0): 2}
"""Axes to reduce over, and the number of axes that an array must have for them."""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all", "mean", "var", "std"])
def test_reductions(name: str, layout: str, device: Any) -> None:
    numpys = getattr(np, name)
    for dtype in DTYPES:
        a, host = case(layout, dtype, device)
        real = dtype[0] == "f" or name in ("mean", "var", "std")
        wide = host.astype(np.float64 if real else np.int64)
        for axes, needed in AXES.items():
            of_nothing = not host.size and name in ("max", "min", "mean", "var", "std")
            if host.ndim >= needed and not of_nothing:
                result = getattr(nd, name)(a, axis=axes)
                check(result, numpys(wide, axis=axes), rtol=1e-4)
                check(getattr(a, name)(axes, True), numpys(wide, axis=axes, keepdims=True), 1e-4)
                assert result.dtype == reduced_dtype(name, dtype)


def reduced_dtype(name: str, dtype: str) -> str:
    if name in ("any", "all"):
        return "bool"
    if name in ("sum", "prod") and dtype[0] != "f":
        return "int64"
    return "float32" if name in ("mean", "var", "std") and dtype[0] != "f" else dtype


LARGE: dict[str, list[Any]] = {
    "int64": [[2**62, 2**62], [-(2**63), 2**63 - 1, 5]],
    "int32": [[10**9, 10**9 + 1, 10**9 + 2], [2**31 - 1, -(2**31)]],
    "uint8": [[255] * 300],
    "bool": [[True] * 3],
}


@pytest.mark.parametrize("name", ["mean", "var", "std"])
@pytest.mark.parametrize("dtype", LARGE)
def test_means_of_large_integers_do_not_overflow(name: str, dtype: str) -> None:
    for host in (np.array(numbers, dtype) for numbers in LARGE[dtype]):
        array, tensor = nd.asarray(host), ndl.Tensor(host, dtype=dtype)
        expected = pytest.approx(getattr(host.astype("float64"), name)(), rel=1e-6, abs=1e-6)
        for got in (getattr(nd, name)(array), getattr(array, name)(), getattr(ops, name)(tensor)):
            assert got.dtype == "float32" and got.item() == expected


LACKED: dict[str, list[Any]] = {
    "uint8": [[256], [-1], [math.inf], 300],
    "int32": [[1, 2**31], [2.0**31], -math.inf],
    "int64": [[2.0**63], [-(2.0**63) * 1.01], np.array([2**63], "uint64"), [1, math.nan]],
}


@pytest.mark.parametrize(
    ("values", "dtype"), [(each, dtype) for dtype, values in LACKED.items() for each in values]
)
def test_numbers_that_an_integer_dtype_lacks_are_refused(values: Any, dtype: str) -> None:
    host = np.asarray(values)
    target = nd.zeros(host.shape, dtype=dtype)
    for make in (
        lambda: nd.asarray(values, dtype=dtype),
        lambda: nd.array(values, dtype=dtype),
        lambda: nd.NDArray(host, dtype=dtype),
        lambda: ndl.Tensor(values, dtype=dtype),
        lambda: ndl.Tensor(host, dtype=dtype),
        lambda: nd.full((2,), host.reshape(-1)[-1], dtype),
        lambda: target.fill(host.reshape(-1)[-1]),
        lambda: target.__setitem__(..., host),
    ):
        with pytest.raises(DTypeError, match=dtype):
            make()


def test_numbers_within_an_integer_dtype_are_cut() -> None:
    assert nd.asarray([255.9, -0.9], dtype="uint8").tolist() == [255, 0]
    assert nd.asarray([-(2.0**63)], dtype="int64").tolist() == [-(2**63)]
    assert nd.asarray(np.zeros(0), dtype="uint8").shape == (0,)
    assert nd.asarray([True], dtype="int32").tolist() == [1]
    with pytest.raises(DTypeError, match="arange: .*int64"):
        nd.arange(2**63 - 2, 2**63 + 2)


def test_reductions_of_nothing(device: Any) -> None:
    a = nd.zeros((0, 3), device=device)
    check(a.sum(), 0.0)
    check(a.prod(0), [1, 1, 1])
    assert bool(a.all()) and not bool(a.any())
    check(a.max(1), np.zeros(0))
    assert math.isnan(float(a.mean()))
    assert math.isnan(float(nd.var(nd.ones((1,), device=device), correction=1)))


def test_reduction_options(device: Any) -> None:
    a, host = both(device, ((5, 7), "float32"))
    same(lambda xp, x: xp.var(x, 1, correction=1), a, host)
    same(lambda xp, x: xp.std(x, correction=2), a, host)
    same(lambda xp, x: xp.count_nonzero(x > 0, axis=0), a, host)
    same(lambda xp, x: xp.cumulative_sum(x, axis=1), a, host)
    same(lambda xp, x: xp.cumulative_sum(x[0], include_initial=True), a, host)
    same(lambda xp, x: xp.cumulative_sum(x), nd.arange(9, device=device), np.arange(9))
    assert nd.sum(a, dtype="float64").dtype == "float64"
    assert nd.sum(a > 0, dtype="int32").dtype == "int32"
    check(nd.summation(a, 1, True), host.sum(1, keepdims=True))
    assert nd.cumulative_sum(a, axis=0, dtype="float64").dtype == "float64"


# ---- searching and linear algebra ------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg_extremes(name: str, layout: str, device: Any) -> None:
    for dtype in DTYPES:
        a, host = case(layout, dtype, device)
        if not host.size:
            continue
        check(getattr(nd, name)(a), getattr(np, name)(host))
        check(getattr(nd, name)(a, keepdims=True), getattr(np, name)(host, keepdims=True))
        assert getattr(nd, name)(a).dtype == "int64"
        for axis in range(-host.ndim, host.ndim):
            check(getattr(a, name)(axis), getattr(np, name)(host, axis=axis))


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min"])
def test_extremes_along_an_empty_axis_of_an_empty_result(name: str, device: Any) -> None:
    a = nd.zeros((3, 0, 0), device=device)
    assert getattr(nd, name)(a, axis=1).shape == (3, 0)
    assert getattr(nd, name)(a, axis=2, keepdims=True).shape == (3, 0, 1)


def test_searching(device: Any) -> None:
    a, host = both(device, ((3, 4), "float32"))
    same(lambda xp, x: xp.nonzero(x > 0), a, host)
    for call in (
        lambda xp, x: xp.take(x, xp.asarray([2, 0, -1]), axis=1),
        lambda xp, x: xp.take(x[0], xp.asarray([2, 0, -1]), axis=0),
        lambda xp, x: xp.take_along_axis(x, xp.asarray(np.argsort(host, axis=1)), axis=1),
        lambda xp, x: xp.take_along_axis(x, np.argmax(host, axis=0)[None], axis=0),
    ):
        same(call, a, host)
    check(nd.take(a[0], nd.asarray([2, 0, -1])), host[0][[2, 0, -1]])


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 1, 3, 4), (6, 4, 5)), ((4,), (2, 4, 5)), ((0, 4), (4, 5)), ((33, 70), (70, 65))],
)
def test_matmul(left: Any, right: Any, device: Any) -> None:
    """Test dtypes; the op table covers shapes."""
    for dtype in ("float32", "float64", "int32", "int64", "uint8"):
        a, host_a, b, host_b = both(device, (left, dtype), (right, dtype))
        wide = [h.astype(np.float64) if dtype[0] == "f" else h for h in (host_a, host_b)]
        for result in (nd.matmul(a, b), a @ b):
            assert result.dtype == dtype
            check(result, np.matmul(*wide), 1e-4)


def test_matmul_of_views(device: Any) -> None:
    a, host_a, b, host_b = both(device, ((8, 6), "float32"), ((9, 8), "float32"))
    check(a.T @ b.T, host_a.T.astype("f8") @ host_b.T, 1e-4)
    check(a[::-1, ::2] @ b[:3, 2:], host_a[::-1, ::2].astype("f8") @ host_b[:3, 2:], 1e-4)
    wide = a[:1].broadcast_to((9, 6))
    check(b.T @ wide, host_b.T.astype("f8") @ np.broadcast_to(host_a[:1], (9, 6)), 1e-4)
    check(a @ np.eye(6, dtype=np.float32), host_a)
    check(np.eye(8, dtype=np.float32) @ a, host_a)


@pytest.mark.parametrize("axes", [0, 1, 2, ([0, 1], [1, 0]), (1, 0), ([-1], [0])])
def test_tensordot(axes: Any, device: Any) -> None:
    shapes = ((3, 4), (4, 3)) if axes != 2 else ((2, 3, 4), (3, 4, 5))
    a, host_a, b, host_b = both(device, *((shape, "float64") for shape in shapes))
    check(nd.tensordot(a, b, axes=axes), np.tensordot(host_a, host_b, axes))


def test_vecdot(device: Any) -> None:
    a, host_a, b, host_b = both(device, ((3, 1, 4), "float64"), ((2, 4), "float64"))
    same(lambda xp, x: xp.vecdot(*x), (a, b), (host_a, host_b))
    check(nd.vecdot(a, a, axis=-3), np.vecdot(host_a, host_a, axis=0))
    c, host_c = both(device, ((4,), "int32"))
    assert nd.vecdot(c, c).dtype == "int32" and nd.vecdot(c, c).item() == np.vecdot(host_c, host_c)


# ---- dtypes and the namespace ----------------------------------------------------------------


def test_dtype_functions() -> None:
    assert nd.result_type("uint8", "int32", 1.5) == "float32"
    assert nd.result_type(nd.ones((1,)), np.float64) == "float64"
    assert nd.can_cast("int32", "int64") and not nd.can_cast("int64", "int32")
    assert nd.can_cast("bool", "uint8") and nd.can_cast(nd.bool, nd.float64)
    assert not nd.can_cast("uint8", "bool") and not nd.can_cast(nd.ones(1), "int64")
    with pytest.raises(DTypeError, match="can_cast: None is not a supported dtype"):
        nd.can_cast(None, "float64")
    assert nd.isdtype(nd.uint8, "unsigned integer") and nd.isdtype("int32", "signed integer")
    assert nd.isdtype("float32", ("integral", "real floating")) and nd.isdtype("bool", nd.bool)
    assert not nd.isdtype("bool", "numeric") and not nd.isdtype("float32", "complex floating")
    for dtype in ("float32", "float64"):
        limits = nd.finfo(dtype)
        assert limits.bits == int(dtype[5:]) and limits.dtype == dtype
        for name in ("eps", "max", "min", "smallest_normal"):
            found = getattr(limits, name)
            assert type(found) is float and found == getattr(np.finfo(dtype), name)
    assert nd.iinfo(nd.asarray([1])).max == 2**63 - 1
    assert nd.astype(nd.asarray([1.7]), "int32").tolist() == [1]
    info = nd.__array_namespace_info__()
    assert set(info.dtypes()) == set(DTYPES) and set(info.dtypes(kind="real floating")) == {
        "float32",
        "float64",
    }
    assert nd.default_device() in info.devices() and info.default_device() == nd.default_device()
    assert info.default_dtypes()["integral"] == "int64"
    assert info.capabilities()["max dimensions"] == 16


def test_the_namespace_is_the_standards() -> None:
    assert nd.ones((1,)).__array_namespace__(api_version="2024.12") is nd
    with pytest.raises(DTypeError, match="versions up to 2024.12 are supported, got '2030.12'"):
        nd.ones((1,)).__array_namespace__(api_version="2030.12")
    assert nd.pi == math.pi and nd.e == math.e and math.isnan(nd.nan) and nd.newaxis is None
    for name in nd.__all__:
        item = getattr(nd, name)
        assert not callable(item) or inspect.getdoc(item), f"{name} has no docstring"


ERRORS = [
    (lambda a: nd.full((2, -1), 0), ShapeError, "empty: sizes must not be negative"),
    (lambda a: nd.zeros((2,), dtype="complex64"), DTypeError, "'complex64' is not a supported"),
    (lambda a: nd.array(["x"]), DTypeError, "array: elements must be bool, integers or floats"),
    (lambda a: nd.array(None), DTypeError, "array: elements must be .* got object from NoneType"),
    (lambda a: nd.asarray([1j]), DTypeError, "asarray: elements must be .* got complex128"),
    (lambda a: nd.asarray([[1], [1, 2]]), ShapeError, "asarray: rows must have equal lengths"),
    (lambda a: nd.asarray(np.float16([1])), DTypeError, "is not a supported dtype"),
    (lambda a: nd.asarray([1.0], copy=False), ShapeError, "asarray: .* cannot share this memory"),
    (lambda a: nd.asarray(a, dtype="int32", copy=False), ShapeError, "needs a copy"),
    (lambda a: nd.zeros((2,), device="cpo"), UnknownNameError, "unknown device 'cpo'.*Did you"),
    (lambda a: nd.zeros((2,), device=nd.cuda()), DeviceError, "cuda: "),
    (lambda a: a.to("cuda"), DeviceError, "cuda: "),
    (lambda a: a.to_device("cpu", stream=1), DeviceError, "to_device: streams are not supported"),
    (lambda a: nd.arange(0, 1, 0), ShapeError, "arange: step must not be 0"),
    (lambda a: nd.linspace(0, 1, -1), ShapeError, "linspace: num must not be negative"),
    (lambda a: nd.eye(-1), ShapeError, "eye: sizes must not be negative"),
    (lambda a: nd.tril(a[0]), ShapeError, "tril: the array must have at least 2 axes"),
    (lambda a: nd.meshgrid(a[0], indexing="yx"), ShapeError, "meshgrid: indexing must be"),
    (lambda a: nd.meshgrid(a), ShapeError, "meshgrid: arrays must be 1-D"),
    (lambda a: nd.meshgrid(a[0], a[0].astype("int32")), DTypeError, "meshgrid: arrays must have"),
    (lambda a: nd.concat([]), ShapeError, "concat: there must be at least one array"),
    (lambda a: nd.concat([a, a.T]), ShapeError, r"concat: shapes must agree except on axis 0"),
    (lambda a: nd.concat([a, a[0]]), ShapeError, r"concat: shapes must agree"),
    (lambda a: nd.concat([a], axis=2), ShapeError, "concat: axis 2 is out of range"),
    (lambda a: nd.stack([a, a.T]), ShapeError, "stack: all arrays must have the same shape"),
    (lambda a: nd.stack([]), ShapeError, "stack: .* got none"),
    (lambda a: nd.split(a, 2, axis=0), ShapeError, "split: the size must divide evenly, got 3 by"),
    (lambda a: nd.squeeze(a, axis=0), ShapeError, "squeeze: axes .* must have size 1"),
    (lambda a: nd.swapaxes(a, 0, 2), IndexError, "swapaxes: axis 2 is out of range"),
    (lambda a: nd.transpose(a, (0, 0)), ShapeError, "axes must be distinct"),
    (lambda a: nd.pad(a, 1, "edge"), UnknownNameError, "mode must be 'constant', got 'edge'"),
    (lambda a: nd.pad(a, [1, 2, 3]), ShapeError, "pad: pad_width must be an int, or"),
    (lambda a: nd.pad(a, 1, constant_values=(1, 2)), ShapeError, "must be one number, got"),
    (lambda a: nd.moveaxis(a, (0, 1), 0), ShapeError, "moveaxis: source and destination"),
    (lambda a: nd.flip(a, 0, axes=1), DTypeError, "flip: only one of axis and axes may be given"),
    (lambda a: nd.roll(a, (1, 2), axis=0), ShapeError, "roll: there must be one shift per axis"),
    (lambda a: nd.tile(a, (-1,)), ShapeError, "tile: repetitions must not be negative"),
    (lambda a: nd.repeat(a, [1, 2], axis=0), ShapeError, "repeat: there must be one count per"),
    (lambda a: nd.repeat(a, -1), DTypeError, "repeat: repeats must be non-negative ints"),
    (lambda a: nd.sum(a, axis=2), ShapeError, "sum: axis 2 is out of range for 2 dimensions"),
    (lambda a: a.sum((0, -2)), ShapeError, "sum: axes must be distinct"),
    (lambda a: a[:0].max(), ShapeError, "max: there must be at least one element, got shape"),
    (lambda a: a[:, :0].min(1), ShapeError, "min: there must be at least one element"),
    (lambda a: nd.mean(a, axis=5), ShapeError, "mean: axis 5 is out of range"),
    (lambda a: a.sum(out=a), DTypeError, "sum: out= is not supported"),
    (lambda a: a.mean(out=a), DTypeError, "mean: out= is not supported"),
    (
        lambda a: nd.cumulative_sum(a),
        ShapeError,
        "cumulative_sum: axis may be omitted only for 1-D",
    ),
    (lambda a: nd.argmax(a[:0]), ShapeError, "argmax: there must be at least one element"),
    (lambda a: nd.arange(0.0, math.inf), ShapeError, "arange: .* fewer than 2.*60 values, got 0.0"),
    (lambda a: nd.arange(math.nan), ShapeError, "arange: .* fewer than 2.*60 values"),
    (lambda a: nd.split(a, [1.5]), DTypeError, "split: sections must be an int or a tuple of ints"),
    (lambda a: nd.zeros((10**10, 10**10)), ShapeError, r"at most 2\*\*60 elements"),
    (lambda a: nd.zeros((0, 10**30)), ShapeError, r"at most 2\*\*60"),
    (lambda a: nd.argmin(a, axis=3), ShapeError, "argmin: axis 3 is out of range"),
    (lambda a: nd.nonzero(a[0, 0]), ShapeError, "nonzero: the array must have at least 1 axis"),
    (lambda a: nd.take(a, [0]), ShapeError, "take: axis may be omitted only for 1-D"),
    (lambda a: nd.take(a, [4], axis=1), IndexError, "index 4 is out of range for axis 1 with size"),
    (lambda a: nd.take_along_axis(a, [0]), ShapeError, "take_along_axis: the indices must have 2"),
    (lambda a: a @ a, ShapeError, r"matmul: inner dimensions must agree, got \(3, 4\) @ \(3, 4\)"),
    (lambda a: a @ a[0, 0], ShapeError, "matmul: operands need at least one axis"),
    (lambda a: a @ 2, TypeError, "unsupported operand"),
    (lambda a: nd.matmul(a, 2), DTypeError, "matmul: the operand must be an NDArray"),
    (lambda a: nd.stack([a, a]) @ nd.stack([a.T] * 3), ShapeError, "matmul: shapes must broadcast"),
    (lambda a: nd.tensordot(a, a.T, axes=2), ShapeError, "tensordot: contracted axes"),
    (lambda a: nd.tensordot(a, a, axes=3), ShapeError, "tensordot: both operands must have 3 axes"),
    (lambda a: nd.tensordot(a, a, axes=([0], [0, 1])), ShapeError, "tensordot: axes must name"),
    (lambda a: nd.vecdot(a, a[:, :3]), ShapeError, "vecdot: sizes along axis -1 must agree"),
    (lambda a: nd.vecdot(a, a, axis=0), ShapeError, "vecdot: axis must be negative"),
    (lambda a: nd.finfo("int32"), DTypeError, "finfo: the dtype must be floating"),
    (lambda a: nd.iinfo("float32"), DTypeError, "iinfo: the dtype must be an integer"),
    (lambda a: nd.result_type(1, 2), DTypeError, "result_type: there must be at least one array"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call: Any, error: type[Exception], message: str, device: Any) -> None:
    with pytest.raises(error, match=message):
        call(nd.ones((3, 4), device=device))
