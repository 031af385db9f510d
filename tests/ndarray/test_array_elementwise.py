"""Compare every elementwise function with NumPy in float64, over dtypes, layouts and devices."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from array_layouts import DTYPES, FLOATS, LAYOUTS, case, check

from needle import ndarray as nd
from needle.backends import base
from needle.errors import DeviceError, DTypeError, ShapeError

HOST_NAMES = {"round": "rint", "bitwise_invert": "invert", "atan2": "arctan2"} | {
    name: "arc" + name[1:] for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh")
}
ABOVE_ZERO = ("log", "log2", "log10", "log1p", "sqrt")
IN_UNIT = ("acos", "asin", "atanh")


def oracle(name: str) -> Any:
    if name == "erf":
        return np.vectorize(math.erf, otypes=[float])
    return getattr(np, HOST_NAMES.get(name, name))


def inside_domain(name: str, a: Any, host: Any) -> tuple[Any, Any]:
    if name in ABOVE_ZERO:
        return nd.abs(a), abs(host)
    if name == "acosh":
        return nd.abs(a) + 1, abs(host) + 1
    if name in IN_UNIT:
        return a / 5, host / 5
    return a, host


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", base.UNARY)
def test_unary(name: str, layout: str, device: Any) -> None:
    for dtype in FLOATS if name not in base.UNARY_INTEGER else ("int32", "bool"):
        a, host = inside_domain(name, *case(layout, dtype, device))
        wide = host.astype(np.float64) if host.dtype.kind == "f" else host
        result = getattr(nd, name)(a)
        check(result, oracle(name)(wide))
        assert result.dtype == ("bool" if name in base.UNARY_TO_BOOL else dtype)


@pytest.mark.parametrize("name", base.UNARY_FLOAT)
def test_a_function_of_reals_makes_integers_float32(name: str, device: Any) -> None:
    a, host = case("compact", "uint8", device)
    result = getattr(nd, name)(a)
    rounding = name in ("floor", "ceil", "trunc", "round")
    assert result.dtype == ("uint8" if rounding else "float32")
    with np.errstate(all="ignore"):
        check(result, oracle(name)(host.astype(np.float64)))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_numeric_unary_of_integers(dtype: str, device: Any) -> None:
    a, host = case("sliced", dtype, device)
    wide = host.astype(np.int64)
    check(nd.square(a), (wide * wide).astype(nd.square(a).dtype))
    check(nd.abs(a), abs(wide))
    check(nd.sign(a), np.sign(wide))
    check(-a, (-wide).astype((-a).dtype.name))
    assert (-a).dtype == ("int64" if dtype == "bool" else dtype)


def operands(name: str, dtype: str, layout: str, device: Any) -> Any:
    a, host_a = case(layout, dtype, device, seed=1)
    b, host_b = case(layout, dtype, device, seed=2)
    if name == "power":
        a, host_a = nd.abs(a), np.abs(host_a)
        if dtype in ("int32", "int64"):
            b, host_b = nd.abs(b), np.abs(host_b)
    return a, host_a, b, host_b


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", base.BINARY)
def test_binary(name: str, layout: str, device: Any) -> None:
    for dtype in DTYPES:
        if dtype in FLOATS and name in base.BINARY_INTEGER:
            continue
        if dtype == "uint8" and name == "subtract":
            continue
        a, host_a, b, host_b = operands(name, dtype, layout, device)
        if dtype == "bool" and name in ("floor_divide", "remainder", "divide"):
            b, host_b = b | True, host_b | True
        exact = {"float32": np.float64, "bool": np.int64}.get(dtype, dtype)
        if dtype == "bool" and name in base.BINARY_INTEGER:
            exact = bool
        if name in ("divide", "atan2"):
            exact = np.float64
        result = getattr(nd, name)(a, b)
        rtol = 1e-4 if name == "remainder" else 1e-5
        check(result, oracle(name)(host_a.astype(exact), host_b.astype(exact)), rtol)


PROMOTION = [
    ("uint8", "int32", "int32"),
    ("int32", "int64", "int64"),
    ("float32", "float64", "float64"),
    ("int64", "float32", "float32"),
    ("bool", "uint8", "uint8"),
    ("bool", "float32", "float32"),
    ("bool", "bool", "int64"),
]


@pytest.mark.parametrize(("left", "right", "result"), PROMOTION)
def test_promotion(left: str, right: str, result: str, device: Any) -> None:
    a, host_a = case("compact", left, device, 1)
    b, host_b = case("compact", right, device, 2)
    for one, two in ((a + b, b + a),):
        assert one.dtype == two.dtype == result
        check(one, host_a.astype(result) + host_b.astype(result))
    assert (a == b).dtype == "bool"
    assert nd.result_type(a, b) == (result if left != right else left)


@pytest.mark.parametrize("dtype", DTYPES)
def test_python_scalars_keep_the_dtype(dtype: str, device: Any) -> None:
    a, host = case("compact", dtype, device)
    integer = "int64" if dtype == "bool" else dtype
    floating = dtype if dtype in FLOATS else "float32"
    assert (a + 1).dtype == (1 + a).dtype == integer
    assert (a * 2.5).dtype == (2.5 * a).dtype == floating
    assert (a / 2).dtype == floating
    check(3 - a * 2.5, 3 - host.astype(np.float64) * 2.5)
    check(a > 0.5, host > 0.5)
    check(
        2**a if dtype in FLOATS else 2 * a, 2.0**host if dtype in FLOATS else 2 * host.astype(int)
    )


@pytest.mark.parametrize("scalar", [np.float64(1.5), np.float32(1.5), np.array(1.5), np.int64(2)])
def test_numpy_scalars_count_as_python_scalars(scalar: Any, device: Any) -> None:
    a, host = case("compact", "float32", device)
    for result in (a * scalar, scalar * a):
        assert result.dtype == "float32"
        check(result, host * float(scalar))


def test_a_scalar_is_converted_before_comparing(device: Any) -> None:
    a = nd.array([0.1, 0.2], device=device)
    assert (a == 0.1).tolist() == [True, False]
    assert (nd.array([44], device=device).astype("uint8") < 300).tolist() == [True]
    assert (nd.asarray(np.array([5], np.uint8), device=device) > -1).tolist() == [True]
    big = nd.asarray([2**40 + 1], device=device)
    assert not bool(big == float(2**40)) and bool(big > float(2**40))


def test_maximum_of_bool_stays_bool(device: Any) -> None:
    a, b = nd.asarray([True, False], device=device), nd.asarray([False, False], device=device)
    assert nd.maximum(a, b).dtype == nd.minimum(a, b).dtype == "bool"
    assert nd.maximum(a, b).tolist() == [True, False]
    assert nd.minimum(a, b).tolist() == [False, False]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integers_are_clipped_to_fractions(dtype: str, device: Any) -> None:
    a = nd.asarray([1, 2, 3], dtype=dtype, device=device)
    assert nd.clip(a, 1.5, 2.5).tolist() == [1.5, 2.0, 2.5]
    assert nd.clip(a, max=nd.asarray([1.5], device=device)).tolist() == [1.0, 1.5, 1.5]
    assert nd.clip(a, 2, 2).dtype == dtype


@pytest.mark.parametrize("layout", LAYOUTS)
def test_composed(layout: str, device: Any) -> None:
    a, host_a = case(layout, "float32", device, 1)
    b, host_b = case(layout, "float32", device, 2)
    wide_a, wide_b = host_a.astype(np.float64), host_b.astype(np.float64)
    check(nd.positive(a), host_a)
    check(nd.reciprocal(a), 1 / wide_a)
    check(nd.hypot(a, b), np.hypot(wide_a, wide_b))
    check(nd.logaddexp(a, b), np.logaddexp(wide_a, wide_b))
    check(nd.copysign(a, b), np.copysign(host_a, host_b))
    check(nd.signbit(a), np.signbit(host_a))
    check(nd.clip(a, -1.0, 1), np.clip(host_a, -1, 1))
    check(nd.clip(a, max=b), np.minimum(host_a, host_b))
    check(nd.where(a > b, a, b), np.maximum(host_a, host_b))
    check(nd.where(a > b, 1.0, b), np.where(host_a > host_b, 1, host_b))
    check(nd.where(a > b, 1, 0), np.where(host_a > host_b, 1, 0))


def test_composed_at_the_edges(device: Any) -> None:
    inf = math.inf
    a = nd.array([inf, -inf, 0.0, 3e30, -0.0, -inf], device=device)
    b = nd.array([1.0, -inf, 0.0, 4e30, 1.0, inf], device=device)
    check(nd.logaddexp(a, b), np.logaddexp(a.numpy(), b.numpy()))
    check(nd.hypot(a, b), np.hypot(a.numpy().astype(float), b.numpy()))
    nans = nd.full_like(a, math.nan)
    for x, y in ((a, nans), (nans, a)):  # infinity takes precedence over NaN
        check(nd.hypot(x, y), np.hypot(x.numpy(), y.numpy()))
    check(nd.hypot(a, inf), np.full(6, inf))
    assert np.signbit((+a).numpy()).tolist() == np.signbit(nd.positive(a).numpy()).tolist()
    assert np.signbit((+a).numpy()).tolist() == np.signbit(a.numpy()).tolist()
    check(nd.signbit(a), np.signbit(a.numpy()))
    assert np.signbit(nd.copysign(b, a).numpy()).tolist() == np.signbit(a.numpy()).tolist()


def test_composed_of_integers_and_of_two_dtypes(device: Any) -> None:
    small = nd.asarray(np.array([1, 200], np.uint8), device=device)
    low = nd.asarray(np.array([-(2**31), 3], np.int32), device=device)
    single, double = (nd.array([1.5, -2.0], dtype, device) for dtype in FLOATS)
    check(nd.logaddexp(small, small), np.array([1, 200]) + math.log(2))
    check(nd.hypot(low, single), np.hypot(low.numpy().astype(float), single.numpy()))
    assert nd.hypot(low, double).dtype == nd.logaddexp(low, double).dtype == "float64"
    for pair in ((single, -double), (double, -single)):
        check(nd.copysign(*pair), -pair[0].numpy().astype(float))
        assert nd.copysign(*pair).dtype == "float64"


def test_results_keep_the_dense_layout(device: Any) -> None:
    nhwc = nd.ones((2, 3, 4, 5), device=device)
    nchw = nhwc.permute((0, 3, 1, 2))
    for result in (nd.exp(nchw), nchw + nchw, nchw * 2, nchw + nd.ones((5, 1, 1), device=device)):
        assert result.shape == (2, 5, 3, 4)
        assert result.strides == nchw.strides
        assert result.permute((0, 2, 3, 1)).is_compact()
    assert (nchw[::-1] + 1).strides == nchw.strides
    assert nchw.astype("float64").strides == nchw.strides


def test_in_place_writes_through_views(device: Any) -> None:
    a = nd.zeros((3, 3), device=device)
    row = a[1]
    row += 2
    a[:, 0] -= 1
    a[2] *= 3
    a[0] /= 2
    check(a, [[-0.5, 0, 0], [1, 2, 2], [-3, 0, 0]])
    before = a._handle
    a += a.T
    assert a._handle is before
    check(a, [[-1, 1, -3], [1, 4, 2], [-3, 2, 0]])


ERRORS = [
    (lambda a: a + nd.ones((4,), device=a.device), ShapeError, "add: shapes must broadcast"),
    (lambda a: a & a, DTypeError, "bitwise_and: operands must be bool or integers, got float32"),
    (lambda a: ~a, DTypeError, "bitwise_invert: operands must be bool or integers"),
    (lambda a: a.astype("uint8") + 300, DTypeError, r"the scalar must fit uint8 \(0..255\), got"),
    (lambda a: a.astype("int32") * 2**40, DTypeError, "multiply: the scalar must fit int32"),
    (lambda a: a + 10**400, DTypeError, "add: the scalar must fit float32"),
    (lambda a: a + [1.0, 2.0], DTypeError, "add: operands must be arrays or scalars, got list"),
    (lambda a: a + "x", TypeError, "unsupported operand"),
    (lambda a: a + 1j, TypeError, "unsupported operand"),
    (lambda a: a * np.complex64(1), DTypeError, "complex"),
    (lambda a: nd.exp(3.0), DTypeError, "exp: the operand must be an NDArray, got float"),
    (lambda a: nd.add(a, None), DTypeError, "add: operands must be arrays or scalars"),
    (lambda a: nd.where(True, 1, 2), DTypeError, "where: at least one operand must be an NDArray"),
    (lambda a: nd.signbit(a.astype("int32")), DTypeError, "signbit: the array must be floating"),
    (lambda a: nd.copysign(a.astype("int32"), 1), DTypeError, "copysign: operands must be"),
    (
        lambda a: a.__iadd__(nd.ones((2, 3, 3), device=a.device)),
        DTypeError,
        "add: in an in-place operation",
    ),
    (lambda a: a.astype("int32").__itruediv__(2), DTypeError, "divide: in an in-place operation"),
    (lambda a: a.broadcast_to((2, 3, 3)).__iadd__(1), ShapeError, "broadcast view"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call: Any, error: type[Exception], message: str, device: Any) -> None:
    with pytest.raises(error, match=message):
        call(nd.ones((3, 3), device=device))


def test_mixed_devices_are_refused() -> None:
    if not nd.cpu().enabled():
        pytest.skip("needs two devices")
    a, b = nd.ones((2, 2), device=nd.cpu()), nd.ones((2, 2), device=nd.cpu_numpy())
    for call in (lambda: a + b, lambda: a @ b, lambda: nd.where(a > 0, a, b), lambda: a == b):
        with pytest.raises(DeviceError, match=r"operands must be on one device, got cpu\(\) and"):
            call()
    with pytest.raises(DeviceError, match="setitem: operands must be on one device"):
        a[0] = b[0]
    with pytest.raises(DeviceError, match="one device"):
        nd.concat([a, b])


LOST = [np.nan, np.inf, -np.inf, 3e9, -3e9]


@pytest.mark.parametrize("lost", LOST)
def test_a_float_without_a_value_in_an_integer_dtype_is_told(lost: float, device: Any) -> None:
    floats = nd.array([1.0, lost, 2.0], device=device)
    whole = nd.array([7, 8, 9], device=device).astype("int32")

    def assign(key: Any) -> None:
        whole[key] = floats

    for convert in (
        lambda: floats.astype("int32"),
        lambda: nd.NDArray(floats, dtype="int32"),
        lambda: nd.astype(floats, "uint8"),
        lambda: assign(...),
        lambda: assign([0, 2, 1]),
    ):
        with pytest.warns(
            RuntimeWarning, match="a float must be representable in .*int.*, got"
        ) as seen:
            convert()
        assert len(seen) == 1
    assert whole.numpy()[1:].tolist() == [2, whole.numpy()[2]]


def test_floats_that_have_a_value_are_converted_without_a_word(device: Any) -> None:
    limits = nd.array([-(2.0**31), 2.0**31 - 1, -0.9, 255.9], device=device, dtype="float64")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert limits.astype("int32").tolist() == [-(2**31), 2**31 - 1, 0, 255]
        assert limits[2:].astype("uint8").tolist() == [0, 255]
        assert nd.array([np.nan], device=device).astype("float64").dtype == "float64"
        assert nd.array([], device=device).astype("int32").shape == (0,)
        wide = nd.array(np.array([257, -1]), device=device, dtype="int64")
        assert wide.astype("uint8").tolist() == [1, 255]  # wraps around, as in NumPy
