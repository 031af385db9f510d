"""Small cases for the ten functions of a backend (part 9 of the course).

Arrays are built by hand as views in four layouts; needle's own arrays are not used. The complete
test of a backend is ``python -m needle.testing.conformance``.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from apps.course.compare import expect
from needle.backends import Backend, View

Array = np.ndarray[Any, Any]
LAYOUTS = ("row-major", "transposed", "reversed", "with gaps")


def places_of(shape: tuple[int, ...], layout: str) -> Array:
    """Return where the elements of a view with this shape and layout lie in a buffer."""
    size = math.prod(shape)
    if layout == "transposed":
        return np.arange(size).reshape(shape[::-1]).T
    if layout == "reversed":
        return np.arange(size)[::-1].reshape(shape)
    if layout == "with gaps":
        return np.arange(2 * size + 1)[1::2].reshape(shape)
    return np.arange(size).reshape(shape)


def view_on(handle: Any, shape: tuple[int, ...], layout: str, dtype: str) -> View:
    """Return a view of the buffer."""
    places = places_of(shape, layout)
    strides = tuple(step // places.itemsize for step in places.strides)
    first = int(places.flat[0]) if places.size else 0
    return View(handle, shape, strides, first, np.dtype(dtype))


def empty(backend: Backend, shape: tuple[int, ...], dtype: str, layout: str = "row-major") -> View:
    """Return a view of a new buffer that has room for every layout."""
    handle = backend.allocate(2 * math.prod(shape) + 1, np.dtype(dtype))
    return view_on(handle, shape, layout, dtype)


def on(backend: Backend, host: Any, dtype: str, layout: str = "row-major") -> View:
    """Return the numbers of a host array on the backend."""
    array = np.asarray(host, dtype)
    view = empty(backend, array.shape, dtype, layout)
    backend.upload(array, view)
    return view


def repeated(view: View, axis: int, times: int) -> View:
    """Return the view with an axis of size 1 repeated ``times`` times with stride 0."""
    shape, strides = list(view.shape), list(view.strides)
    shape[axis], strides[axis] = times, 0
    return view._replace(shape=tuple(shape), strides=tuple(strides))


def compare(
    what: str, backend: Backend, out: View, expected: Any, given: Mapping[str, Any], **more: Any
) -> None:
    """Call ``expect`` with the content of ``out`` on the backend."""
    expect(what, np.asarray(backend.download(out)), np.asarray(expected), given=given, **more)


# ---- copy and fill -------------------------------------------------------------------------------

GRID = np.arange(12).reshape(3, 4) - 5.5


def from_start(a: Array, layout: str, shape: tuple[int, ...]) -> dict[str, Array]:
    """Return the values read if strides and offset of ``a`` are ignored."""
    buffer = np.zeros(2 * a.size + 1)
    buffer[places_of(a.shape, layout).ravel()] = a.ravel()
    read = buffer[: math.prod(shape)].reshape(shape)
    return {"a was read from the start of its buffer: use its strides and offset": read}


def check_copy(backend: Backend) -> None:
    """Test copies between all layouts, broadcast axes (stride 0), and C's conversions."""
    for source in LAYOUTS:
        for target in LAYOUTS:
            a, out = on(backend, GRID, "float32", source), empty(backend, (3, 4), "float32", target)
            backend.copy(a, out)
            given = {"a": GRID, "layout of a": source, "layout of out": target}
            mistakes = from_start(GRID, source, out.shape)
            compare("copy(a, out)", backend, out, GRID, given, mistakes=mistakes)
    column = on(backend, [[1], [2], [3]], "int32")
    out = empty(backend, (3, 4), "int32")
    backend.copy(repeated(column, 1, 4), out)
    got, want = np.asarray(backend.download(out)), np.array([[1] * 4, [2] * 4, [3] * 4])
    cause = "a was read from the start of its buffer, without its strides: that of the columns is 0"
    mistakes = {cause: got} if got[0, 1] == 2 else {}
    given = {"a": [[1], [2], [3]], "strides of a": (1, 0)}
    expect(
        "copy of a column that is repeated by stride 0", got, want, given=given, mistakes=mistakes
    )
    for dtype, values, target, expected in (
        ("float64", [-2.7, 2.7, 0.0], "int32", [-2, 2, 0]),
        ("int64", [300, -1, 2**40 + 7], "uint8", [44, 255, 7]),
        ("float32", [0.0, 0.25, np.nan], "bool", [False, True, True]),
        ("bool", [True, False, True], "float64", [1.0, 0.0, 1.0]),
    ):
        out = empty(backend, (3,), target)
        backend.copy(on(backend, values, dtype), out)
        given = {"a": values, "dtype of a": dtype, "dtype of out": target}
        mistakes = {
            "0.25 is not 0: the conversion to bool is x != 0": np.array([0.0, 0.0, 1.0]),
            "truncate towards 0, not down": np.floor(values),
            "truncate towards 0, do not round": np.rint(values),
        }
        want = np.array(expected, "float64")
        compare("copy(a, out)", backend, out, want, given, mistakes=mistakes)


def check_fill(backend: Backend) -> None:
    """Test that fill sets every element of the view and no other, converted to the dtype."""
    for layout in LAYOUTS:
        whole = on(backend, np.full(25, 9.0), "float32")
        backend.fill(view_on(whole.handle, (3, 4), layout, "float32"), -1.5)
        expected = np.full(25, 9.0)
        expected[places_of((3, 4), layout).ravel()] = -1.5
        given = {"the buffer before": "25 nines", "layout of out": layout, "value": -1.5}
        first, start = np.full(25, 9.0), np.full(25, 9.0)
        place = int(places_of((3, 4), layout)[0, 0])
        first[place] = start[place : place + 12] = -1.5
        mistakes = {
            "every element of the view is set, not the first alone": first,
            "elements outside the view keep their values": np.full(25, -1.5),
            "the strides of the view are not used": start,
            "the value is converted to the dtype of out, not to an integer first": np.where(
                expected == -1.5, -1.0, expected
            ),
        }
        what = "the whole buffer after fill(out, value)"
        compare(what, backend, whole, expected, given, mistakes=mistakes)
    for dtype, value, expected in (("int32", 2.9, 2), ("bool", 3, True), ("uint8", 258, 2)):
        out = empty(backend, (2,), dtype)
        backend.fill(out, value)
        given = {"value": value, "dtype of out": dtype}
        compare("fill(out, value)", backend, out, np.array([expected] * 2, "float64"), given)


# ---- elementwise ---------------------------------------------------------------------------------


def check_unary(backend: Backend) -> None:
    """Test layouts, in-place results, integers and bool."""
    for layout in LAYOUTS:
        a = on(backend, GRID, "float32", layout)
        for name, formula in (("negative", np.negative), ("exp", np.exp), ("floor", np.floor)):
            out = empty(backend, (3, 4), "float32")
            backend.unary(name, a, out)
            given = {"a": GRID, "layout of a": layout}
            want, read = formula(GRID), from_start(GRID, layout, (3, 4))
            mistakes = {cause: formula(values) for cause, values in read.items()}
            what = f"unary({name!r}, a, out)"
            compare(what, backend, out, want, given, mistakes=mistakes, rtol=1e-5)
        backend.unary("square", a, a)
        compare("unary('square', a, a), in place", backend, a, GRID**2, {"a": GRID})
    for dtype, values, name, kind, expected in (
        ("int32", [0, 5, -7], "bitwise_invert", "int32", [-1, -6, 6]),
        ("bool", [True, False, True], "bitwise_invert", "bool", [False, True, False]),
        ("int64", [3, 0, -3], "sign", "int64", [1, 0, -1]),
        ("float64", [1.0, np.nan, np.inf], "isnan", "bool", [False, True, False]),
        ("int32", [0, 5, -7], "logical_not", "bool", [True, False, False]),
    ):
        out = empty(backend, (3,), kind)
        backend.unary(name, on(backend, values, dtype), out)
        given = {"a": values, "dtype of a": dtype}
        want = np.array(expected, "float64")
        bits = name == "bitwise_invert" and dtype == "bool"
        cause = "~True is -2 in Python, which is not 0: of bools it is logical_not"
        mistakes = {cause: np.ones(3)} if bits else {}
        compare(f"unary({name!r}, a, out)", backend, out, want, given, mistakes=mistakes)


def check_binary(backend: Backend) -> None:
    """Test layouts, broadcast axes, numbers on either side, in-place results, comparisons."""
    other = GRID[::-1] * 2
    for first, second in (("row-major", "transposed"), ("with gaps", "reversed")):
        a, b = on(backend, GRID, "float32", first), on(backend, other, "float32", second)
        given = {"a": GRID, "b": other, "layouts": f"{first}, {second}"}
        (cause, left), right = (*from_start(GRID, first, (3, 4)).items(),)[0], other
        back = from_start(other, second, (3, 4))
        for name, expected, mistakes in (
            (
                "subtract",
                GRID - other,
                {
                    "a is the first operand, b the second": other - GRID,
                    cause: left - right,
                    cause.replace("a was", "b was"): GRID - next(iter(back.values())),
                },
            ),
            ("maximum", np.maximum(GRID, other), {}),
            ("less", other > GRID, {"a is the first operand, b the second": other < GRID}),
        ):
            out = empty(backend, (3, 4), "bool" if name == "less" else "float32")
            backend.binary(name, a, b, out)
            what = f"binary({name!r}, a, b, out)"
            compare(what, backend, out, expected, given, mistakes=mistakes)
        backend.binary("multiply", a, b, a)
        compare("binary('multiply', a, b, a), in place", backend, a, GRID * other, given)
    row = on(backend, [[10, 20, 30]], "int64")
    column = on(backend, [[1], [2]], "int64")
    out = empty(backend, (2, 3), "int64")
    backend.binary("add", repeated(row, 0, 2), repeated(column, 1, 3), out)
    compare("a row plus a column, by stride 0", backend, out, [[11, 21, 31], [12, 22, 32]], {})
    a = on(backend, [1, 2, 3], "int32")
    for left, right, expected in ((10, a, [9, 8, 7]), (a, 10, [-9, -8, -7]), (a, 1.9, [0, 1, 2])):
        out = empty(backend, (3,), "int32")
        backend.binary("subtract", left, right, out)
        shown = ["a" if isinstance(each, View) else each for each in (left, right)]
        given = {"a, int32": [1, 2, 3], "of": shown}
        cause = "a number is converted to the dtype of the other operand before it is used"
        mistakes = {"a is the first operand, b the second": np.negative(expected)}
        if right == 1.9:
            mistakes = {cause: np.array([0, 0, 1])}
        compare("binary('subtract', ...)", backend, out, expected, given, mistakes=mistakes)
    out = empty(backend, (3,), "bool")
    backend.binary("less", a, 2.9, out)
    cause = "a number is converted to the dtype of the other operand, not to that of out"
    mistakes = {
        cause: np.zeros(3),
        "2.9 is stored as 2 in int32: convert it": np.array([1.0, 1.0, 0.0]),
    }
    given = {"a, int32": [1, 2, 3], "dtype of out": "bool"}
    want = np.array([1.0, 0.0, 0.0])
    compare("binary('less', a, 2.9, out)", backend, out, want, given, mistakes=mistakes)


def check_where(backend: Backend) -> None:
    """Test layouts, and numbers as one or both operands."""
    wanted = GRID > 0
    for layout in LAYOUTS:
        condition = on(backend, wanted, "bool", layout)
        a, b = on(backend, GRID, "float32", "transposed"), on(backend, -GRID, "float32", layout)
        for left, right, expected in (
            (a, b, np.abs(GRID)),
            (a, 0, np.maximum(GRID, 0)),
            (7, b, np.where(wanted, 7, -GRID)),
            (1, 0, wanted * 1.0),
        ):
            out = empty(backend, (3, 4), "float32", "with gaps")
            backend.where(condition, left, right, out)
            given = {
                "condition": wanted,
                "a": GRID if isinstance(left, View) else left,
                "b": -GRID if isinstance(right, View) else right,
                "layout of condition": layout,
            }
            x, y = (given[name] if np.ndim(given[name]) else [[given[name]]] for name in "ab")
            x, y = np.broadcast_to(x, (3, 4)), np.broadcast_to(y, (3, 4))
            mistakes = {
                "a where the condition is true, b where it is false": np.where(wanted, y, x),
                "b only where the condition is false": wanted * x + y,
                "the condition is not used": np.where(x != 0, x, y),
                "the condition of the first element in a row was taken for all": np.where(
                    wanted[:, :1], x, y
                ),
                "the condition is not used: this is a": x,
                "the condition is not used: this is b": y,
            }
            what = "where(condition, a, b, out)"
            compare(what, backend, out, expected, given, mistakes=mistakes)


# ---- reductions and products ---------------------------------------------------------------------


def check_reduce(backend: Backend) -> None:
    """Test axes, layouts, empty arrays, NaN, bool, and a long sum."""
    for layout in LAYOUTS:
        a = on(backend, GRID, "float32", layout)
        for axes in ((0,), (1,), (0, 1), ()):
            for name, function in (("sum", np.sum), ("max", np.max), ("min", np.min)):
                expected = function(GRID, axes, keepdims=True)
                out = empty(backend, expected.shape, "float32", "with gaps")
                backend.reduce(name, a, out)
                given = {"a": GRID, "layout of a": layout, "shape of out": expected.shape}
                total = function(GRID, keepdims=True)
                mistakes = {
                    "only axes on which out has size 1 are reduced": np.broadcast_to(
                        total, expected.shape
                    ),
                    "the total starts with first, or with the first element, not with 0": (
                        np.maximum(expected, 0) if name == "max" else np.minimum(expected, 0)
                    ),
                    "the first element was taken again and again": _again(name, axes),
                }
                what = f"reduce({name!r}, a, out)"
                compare(what, backend, out, expected, given, mistakes=mistakes)
    for name, value in (("sum", 0), ("prod", 1)):
        out = on(backend, [[7], [7]], "int32")
        backend.reduce(name, empty(backend, (2, 0), "int32"), out)
        mistakes = {"an empty list is reduced too: out was not written": np.array([[7], [7]])}
        what = f"reduce({name!r}) over no elements"
        compare(what, backend, out, [[value]] * 2, {"out before": 7}, mistakes=mistakes)
    out = empty(backend, (1, 2), "float64")
    backend.reduce("max", on(backend, [[np.nan, 1], [5, 2]], "float64"), out)
    compare("reduce('max') where there is a NaN, which wins", backend, out, [[np.nan, 2.0]], {})
    out = empty(backend, (2, 1), "bool")
    backend.reduce("all", on(backend, [[True, False], [True, True]], "bool"), out)
    compare("reduce('all')", backend, out, np.array([[0.0], [1.0]]), {})
    many = np.full(60_000, 0.1, "float32")
    out = empty(backend, (1,), "float32")
    backend.reduce("sum", on(backend, many, "float32"), out)
    running = np.cumsum(many, dtype="float32")[-1:]
    mistakes = {"a running float32 sum: every addition rounds, use a wider one": running}
    exact = np.array([math.fsum(many.tolist())])
    compare("the sum of 60 000 times 0.1f", backend, out, exact, {}, mistakes=mistakes)


def _again(name: str, axes: tuple[int, ...]) -> Array:
    """Return a reduction of GRID that reads only the first element in each group."""
    first = GRID[tuple(slice(0, 1) if axis in axes else slice(None) for axis in (0, 1))]
    return first * (GRID.size // first.size) if name == "sum" else first


def check_matmul(backend: Backend) -> None:
    """Test layouts, batches, one matrix for a batch, integers, and an inner size of 0."""
    left, right = GRID[:, :3], GRID.T[:3, :2]
    small, other = np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]])
    out = empty(backend, (2, 2), "float32")
    backend.matmul(on(backend, small, "float32"), on(backend, other, "float32"), out)
    mistakes = {
        "column j of b starts at element j and steps by n: b was read transposed": small @ other.T,
    }
    given = {"a": small, "b": other}
    compare("matmul(a, b, out)", backend, out, small @ other, given, mistakes=mistakes)
    for first, second in (("row-major", "transposed"), ("reversed", "with gaps")):
        a, b = on(backend, left, "float32", first), on(backend, right, "float32", second)
        out = empty(backend, (3, 2), "float32", second)
        backend.matmul(a, b, out)
        given = {"a": left, "b": right, "layouts": f"{first}, {second}"}
        x, y = left, right
        mistakes = {
            cause.replace("a was", f"{name} was"): values
            for name, layout, by in (("a", first, 0), ("b", second, 1))
            for cause, read in from_start(
                (left, right)[by], layout, (left, right)[by].shape
            ).items()
            for values in [read @ y if by == 0 else x @ read]
        }
        compare("matmul(a, b, out)", backend, out, left @ right, given, mistakes=mistakes)
    batch = np.arange(24).reshape(2, 3, 4)
    one = np.arange(8).reshape(1, 4, 2)
    a, b = on(backend, batch, "int64"), repeated(on(backend, one, "int64"), 0, 2)
    out = empty(backend, (2, 3, 2), "int64")
    backend.matmul(a, b, out)
    given = {"a": "0 ... 23 as (2, 3, 4)", "b": "0 ... 7 as (4, 2), for both"}
    mistakes = {
        "the first matrix of the batch was taken for all": np.stack([batch[0] @ one[0]] * 2),
    }
    compare("matmul of a batch", backend, out, batch @ one, given, mistakes=mistakes)
    out = on(backend, [[5.0, 5.0]], "float64")
    backend.matmul(empty(backend, (1, 0), "float64"), empty(backend, (0, 2), "float64"), out)
    mistakes = {"with k = 0 every sum is empty and 0: out was not written": np.array([[5.0, 5.0]])}
    what = "a product over k = 0"
    compare(what, backend, out, [[0.0, 0.0]], {"out before": "5 5"}, mistakes=mistakes)
