"""Part 9 of the course, first half: the ten functions on Python's ``array``."""

from math import copysign, fmod, inf, nan
from typing import Any

import numpy as np
import pytest
import ten_functions as ten
from by_hand import outcome

from apps.course.compare import expect
from examples.backend_lists.needle_lists import backend as lists
from needle.backends import View

BACKEND = lists.ListsBackend()


def window(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> View:
    return View(None, shape, strides, offset, np.dtype("float32"))


@pytest.mark.exercise("lists-places")
def test_where_the_elements_of_a_view_are() -> None:
    for what, view, expected in (
        ("row-major", window((2, 3), (3, 1), 0), [0, 1, 2, 3, 4, 5]),
        ("transposed", window((3, 2), (1, 3), 0), [0, 3, 1, 4, 2, 5]),
        ("rows backwards, from element 1", window((2, 2), (-3, 1), 4), [4, 5, 1, 2]),
        ("a column, repeated", window((2, 3), (1, 0), 7), [7, 7, 7, 8, 8, 8]),
        ("one element", window((), (), 5), [5]),
        ("none", window((2, 0, 3), (3, 3, 1), 0), []),
    ):
        given = {"shape": view.shape, "strides": view.strides, "offset": view.offset}
        mistakes = {
            "element 0 is at the offset": [place - view.offset for place in expected],
            "the strides are not used": [view.offset + i for i in range(len(expected))],
        }
        if what == "row-major":
            mistakes["the last axis is innermost"] = [0, 3, 1, 4, 2, 5]
        expect(f"places: {what}", lists.places(view), expected, given=given, mistakes=mistakes)


@pytest.mark.exercise("lists-convert")
def test_numbers_by_cs_rules() -> None:
    for value, dtype, expected in (
        (2.9, "int32", 2),
        (-2.9, "int32", -2),
        (300, "uint8", 44),
        (-1, "uint8", 255),
        (2**31, "int32", -(2**31)),
        (-(2**63) - 1, "int64", 2**63 - 1),
        (0.5, "bool", True),
        (0, "bool", False),
        (2.5, "float32", 2.5),
    ):
        given = {"value": value, "dtype": dtype}
        got = lists.converted(value, np.dtype(dtype))
        bits, kind = 2.0 ** (8 * np.dtype(dtype).itemsize), np.dtype(dtype).kind
        mistakes: dict[str, float] = {}
        if kind == "b":
            mistakes["0.5 is not 0: x != 0 decides"] = float(int(value))
        if kind == "i":
            mistakes["signed integers have negative values"] = int(value) % bits
        if kind in "iu":
            mistakes["integers wrap around"] = float(int(value))
        if expected == -2:
            mistakes = {"truncate towards 0, not down": -3.0, **mistakes}
        expect("converted", float(got), float(expected), given=given, mistakes=mistakes)
    for value in (nan, inf):  # undefined in C, but must not raise
        lists.converted(value, np.dtype("int64"))


@pytest.mark.exercise("lists-memory")
def test_numbers_go_in_and_come_out() -> None:
    size = "an element has dtype.itemsize bytes, size counts elements"
    count = outcome(lambda: BACKEND.allocate(3, np.dtype("int32")).size, ValueError)
    expect("allocate(3, int32).size", count, 3, mistakes={size: count})
    expect("allocate(0, bool).size", BACKEND.allocate(0, np.dtype(bool)).size, 0)
    for layout in ten.LAYOUTS:
        view = ten.on(BACKEND, ten.GRID, "float32", layout)
        given = {"source": ten.GRID, "layout of out": layout}
        buffer = np.array(view.handle)[:12].reshape(3, 4)
        start = {"read in the order of places(operand), not of the buffer": buffer}
        what = "download(out) after upload(source, out)"
        got = BACKEND.download(view)
        expect(what, got, ten.GRID, given=given, mistakes=start)
        at = list(ten.places_of((3, 4), layout)[0])
        expect("its first row, in the buffer", [view.handle[i] for i in at], ten.GRID[0].tolist())
    host = BACKEND.download(ten.on(BACKEND, [[1, 2]], "int64"))
    expect("its dtype and shape", (str(host.dtype), host.shape), ("int64", (1, 2)))
    turned = np.arange(6, dtype="uint8").reshape(2, 3).T
    out = ten.on(BACKEND, turned, "uint8")
    ten.compare("upload of a source with strides of its own", BACKEND, out, turned, {})


@pytest.mark.exercise("lists-memory")
def test_operands_are_read() -> None:
    out = ten.empty(BACKEND, (2, 2), "float32")
    a = ten.on(BACKEND, [[1, 2], [3, 4]], "float32", "transposed")
    expect("read(a, out, float32)", lists.read(a, out, out.dtype), [1.0, 2.0, 3.0, 4.0])
    tenth = float(np.float32(0.1))
    given = {"operand": 0.1, "shape of out": (2, 2)}
    rounded = {"a number has the dtype's precision: store it in a Buffer and read it": [0.1] * 4}
    got = lists.read(0.1, out, out.dtype)
    expect("read(0.1, out, float32)", got, [tenth] * 4, given=given, mistakes=rounded)
    expect("read(2.9, out, int32)", lists.read(2.9, out, np.dtype("int32")), [2] * 4)


@pytest.mark.exercise("lists-copy")
def test_copy_is_every_movement() -> None:
    ten.check_copy(BACKEND)


@pytest.mark.exercise("lists-copy")
def test_fill_keeps_to_its_view() -> None:
    ten.check_fill(BACKEND)


@pytest.mark.exercise("lists-unary")
def test_functions_of_one_number() -> None:
    ten.check_unary(BACKEND)


@pytest.mark.exercise("lists-unary")
def test_what_raises_in_python_has_a_value() -> None:
    for name, x, expected in (
        ("log", 0.0, -inf),
        ("log", -1.0, nan),
        ("sqrt", -1.0, nan),
        ("exp", 1000.0, inf),
        ("sinh", -1000.0, -inf),
        ("atanh", 1.0, inf),
        ("log1p", -1.0, -inf),
        ("sin", inf, nan),
        ("tanh", 0.0, 0.0),
    ):
        mistakes = {
            "a pole has the value in poles": nan if name in ("log", "atanh", "log1p") else 0.5,
            "an overflow gives an infinity": nan if name in ("exp", "sinh") else 0.5,
            "sinh of a negative number is negative": inf if name == "sinh" else 0.5,
        }
        expect(f"{name}({x})", lists.UNARY[name](x), expected, mistakes=mistakes)


def quotients(function: Any, cases: list[tuple[Any, Any, Any]]) -> None:
    for x, y, expected in cases:
        name = f"{function.__name__}({x}, {y})"
        got = function(x, y)
        mistakes = {}
        if function is lists.divide and y == 0:
            mistakes[
                "the sign of the infinity is the product of the signs: 0.0 and -0.0 differ"
            ] = -expected
        if function is lists.floor_divide and y != 0:
            mistakes["Python's // rounds down, not towards 0"] = float(int(x / y))
        if function is lists.remainder and y != 0:
            mistakes["Python's % has the sign of the divisor"] = fmod(x, y)
        if function is lists.power:
            mistakes["an odd power of a negative number is negative, also of -0.0"] = -expected
        expect(name, got, expected, mistakes=mistakes)
        expect(f"the sign of {name}", copysign(1, got), copysign(1, expected))


@pytest.mark.exercise("lists-division")
def test_divisions_as_ieee_and_python_have_them() -> None:
    quotients(
        lists.divide,
        [
            (1.0, 4.0, 0.25),
            (1.0, 0.0, inf),
            (1.0, -0.0, -inf),
            (-2.0, 0.0, -inf),
            (-inf, 0.0, -inf),
        ],
    )
    expect("divide(0.0, 0.0)", lists.divide(0.0, 0.0), nan)
    expect("divide(nan, 0.0)", lists.divide(nan, 0.0), nan)
    quotients(
        lists.floor_divide,
        [(7, 2, 3), (-7, 2, -4), (7, 0, 0), (-7.0, 2.0, -4.0), (-1.0, 0.0, -inf)],
    )
    quotients(lists.remainder, [(7, 3, 1), (-7, 3, 2), (7, -3, -2), (7, 0, 0), (-1.0, 3.0, 2.0)])
    expect("remainder(1.0, 0.0)", lists.remainder(1.0, 0.0), nan)


@pytest.mark.exercise("lists-division")
def test_powers_as_ieee_has_them() -> None:
    quotients(
        lists.power,
        [
            *((2, 10, 1024), (-2, 3, -8), (0, -1, 0), (2.0, -1.0, 0.5), (0.0, 0.0, 1.0)),
            *((10.0, 400.0, inf), (-10.0, 401.0, -inf), (0.0, -1.0, inf), (-0.0, -1.0, -inf)),
        ],
    )
    expect("power(-1.0, 0.5)", lists.power(-1.0, 0.5), nan)
    expect("int(power(2, -1)), as stored", int(lists.power(2, -1)), 0)


@pytest.mark.exercise("lists-binary")
def test_functions_of_two_numbers() -> None:
    ten.check_binary(BACKEND)


@pytest.mark.exercise("lists-where")
def test_either_of_two_operands() -> None:
    ten.check_where(BACKEND)


@pytest.mark.exercise("lists-reduce")
def test_axes_are_reduced() -> None:
    ten.check_reduce(BACKEND)


@pytest.mark.exercise("lists-reduce")
def test_a_sum_is_rounded_once() -> None:
    given = {"values": [1e16, 1.0, -1e16]}
    mistakes = {"each addition rounds: math.fsum does not": 0.0}
    got = lists.exact_sum([1e16, 1.0, -1e16])
    expect("exact_sum(values)", got, 1.0, given=given, mistakes=mistakes)
    expect("exact_sum([])", lists.exact_sum([]), 0)
    expect("exact_sum of integers", lists.exact_sum([2**60, 1]), 2**60 + 1)
    expect("exact_sum([inf, 1.0])", lists.exact_sum([inf, 1.0]), inf)
    both = outcome(lambda: lists.exact_sum([inf, -inf]), ValueError, OverflowError)
    mistakes = {"where fsum raises, return the result of sum": both}
    expect("exact_sum([inf, -inf])", both, nan, mistakes=mistakes)


@pytest.mark.exercise("lists-matmul")
def test_products_of_matrices() -> None:
    ten.check_matmul(BACKEND)
