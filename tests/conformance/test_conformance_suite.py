"""Run the conformance suite on needle's backends, the example ``lists`` and faulty backends."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from needle import backends
from needle.backends.base import View
from needle.backends.numpy_backend import NumpyBackend, array_of
from needle.errors import UnknownNameError
from needle.testing import conformance
from needle.testing.conformance.__main__ import main
from tests.conformance import list_backend

CPU = backends.get("cpu") if backends.available("cpu") else None
ISAS = CPU.module.available_isas() if CPU else ["none"]


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test with each instruction set of this machine."""
    if CPU is None:
        pytest.skip(f"the CPU backend is not built: {backends.why('cpu')}")
    module = CPU.module
    before = module.isa() if callable(module.isa) else module.isa
    module.select_isa(request.param)
    yield request.param
    module.select_isa(before)


def test_the_numpy_backend_conforms() -> None:
    report = conformance.run("cpu_numpy")
    assert report.ok, report.table()


def test_the_cpu_backend_conforms_under_every_instruction_set(isa: str) -> None:
    report = conformance.run("cpu")
    assert report.ok, f"{isa}\n{report.table()}"


@pytest.mark.slow
def test_ten_functions_over_lists_conform_and_all_else_falls_back() -> None:
    report = conformance.run("lists")
    assert report.ok, report.table()
    states = {row.name: row.state for row in report.rows}
    assert {states[name] for name in backends.base.OPTIONAL} == {"falls back"}
    assert states["matmul"] == states["binary.power"] == "passes"
    assert isinstance(backends.get("lists"), list_backend.ListsBackend)


# ---- backends with one error each, which the suite must find and nothing else --------------------

PLANTED: dict[str, tuple[type[NumpyBackend], str]] = {}


def planted(row: str, **attributes: Any) -> Callable[[Any], Any]:
    """Register a backend on which the decorated function computes ``row`` and nothing else.

    The function gets the correct method, then the arguments of the call without the row's name.
    """
    method, _, kind = row.partition(".")

    def register(wrong: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: NumpyBackend, *arguments: Any) -> Any:
            names = [kind] if kind else []

            def right(*others: Any) -> Any:
                return getattr(NumpyBackend, method)(self, *names, *others)

            if kind and arguments[0] != kind:
                return getattr(NumpyBackend, method)(self, *arguments)
            return wrong(right, *arguments[len(names) :])

        backend = type(wrong.__name__, (NumpyBackend,), {method: call, **attributes})
        PLANTED[wrong.__name__] = backend, row
        return wrong

    return register


def operands(a: Any, b: Any, out: View) -> list[Any]:
    return [array_of(x) if isinstance(x, View) else np.asarray(x).astype(out.dtype) for x in (a, b)]


def reduced(a: View, out: View) -> dict[str, Any]:
    """Return the options of a NumPy function that reduces ``a`` to the shape of ``out``."""
    return {"axis": tuple(i for i, n in enumerate(out.shape) if n == 1), "keepdims": True}


@planted("binary.floor_divide")
def divisions_are_truncated(right: Any, a: Any, b: Any, out: View) -> None:
    right(a, b, out)
    if out.dtype.kind == "i":
        left, by = operands(a, b, out)
        with np.errstate(all="ignore"):
            array_of(out)[...] = np.where(by == 0, 0, np.trunc(left / by))


@planted("reduce.max")
def maximum_drops_nan(right: Any, a: View, out: View) -> None:
    if a.dtype.kind != "f":
        return right(a, out)
    array_of(out)[...] = np.fmax.reduce(array_of(a), **reduced(a, out))


@planted("reduce.sum")
def one_float32_accumulates(right: Any, a: View, out: View) -> None:
    right(a, out)
    if out.dtype == np.float32 and max(a.shape, default=0) > 10000:
        axis = a.shape.index(max(a.shape))
        running = np.cumsum(array_of(a), axis=axis, dtype=np.float32)
        last = np.take(running, [-1], axis=axis)
        array_of(out)[...] = last if out.shape == last.shape else last.sum(keepdims=True)


@planted("copy")
def copy_ignores_the_offset(right: Any, a: View, out: View) -> None:
    low = sum((n - 1) * s for n, s in zip(a.shape, a.strides) if s < 0)
    right(a._replace(offset=-low), out)


@planted("unary.tanh")
def a_reversed_axis_is_read_forward(right: Any, a: View, out: View) -> None:
    if any(s < 0 for s in a.strides) and 0 not in a.shape:
        low = sum((n - 1) * s for n, s in zip(a.shape, a.strides) if s < 0)
        a = a._replace(strides=tuple(map(abs, a.strides)), offset=a.offset + low)
    right(a, out)


@planted("fill")
def the_whole_buffer_is_filled(right: Any, out: View, value: Any) -> None:
    out.handle[...] = np.asarray(value).astype(out.dtype)


@planted("unary.square")
def square_changes_its_input(right: Any, a: View, out: View) -> None:
    right(a, out)
    if a.handle is not out.handle:
        array_of(a)[...] = array_of(out)


@planted("matmul")
def an_inner_size_of_0_writes_nothing(right: Any, a: View, b: View, out: View) -> None:
    if a.shape[-1]:
        right(a, b, out)


@planted("argmax")
def the_last_maximum_is_found(right: Any, a: View, out: View, axis: int) -> None:
    flipped = np.flip(array_of(a), axis)
    array_of(out)[...] = a.shape[axis] - 1 - np.argmax(flipped, axis=axis, keepdims=True)


@planted("scatter_add")
def repeated_indices_add_once(right: Any, a: View, index: View, out: View) -> None:
    array_of(out)[array_of(index)] += array_of(a)


@planted("softmax")
def softmax_overflows(right: Any, a: View, out: View, axis: int) -> None:
    with np.errstate(all="ignore"):
        exps = np.exp(array_of(a))
        array_of(out)[...] = exps / exps.sum(axis=axis, keepdims=True)


@planted("adopt")
def a_copy_is_adopted(right: Any, source: Any) -> Any:
    return source.ravel().copy()


@planted("where")
def where_raises(right: Any, *arguments: Any) -> None:
    raise NotImplementedError("still to be written")


@planted("binary.power")
def negative_exponents_are_floored(right: Any, a: Any, b: Any, out: View) -> None:
    base, exponent = (x.copy() for x in operands(a, b, out))
    right(a, b, out)
    if out.dtype.kind == "i":
        wrong = (exponent < 0) & (base < -1) & (exponent % 2 == 1)
        array_of(out)[np.broadcast_to(wrong, out.shape)] = -1


@planted("binary.add")
def int32_sums_saturate(right: Any, a: Any, b: Any, out: View) -> None:
    if out.dtype != np.int32:
        return right(a, b, out)
    exact = np.add(*(x.astype(np.int64) for x in operands(a, b, out)))
    array_of(out)[...] = np.clip(exact, -(2**31), 2**31 - 1)


@planted("binary.multiply")
def scalars_widen_integers(right: Any, a: Any, b: Any, out: View) -> None:
    if out.dtype.kind != "i" or isinstance(b, View):
        return right(a, b, out)
    array_of(out)[...] = np.multiply(array_of(a), b).astype(out.dtype)


@planted("fill")
def fill_drops_the_sign_of_zero(right: Any, out: View, value: Any) -> None:
    right(out, value + 0.0 if isinstance(value, float) else value)


@planted("unary.expm1")
def expm1_is_exp_minus_1(right: Any, a: View, out: View) -> None:
    with np.errstate(all="ignore"):
        array_of(out)[...] = np.where(array_of(a) == 0, 0.0, np.exp(array_of(a)) - 1)


@planted("binary.subtract")
def subtract_writes_before_it_reads(right: Any, a: Any, b: Any, out: View) -> None:
    if not (isinstance(a, View) and isinstance(b, View)):
        return right(a, b, out)
    with np.errstate(all="ignore"):
        array_of(out)[...] = array_of(a)
        array_of(out)[...] -= array_of(b)


@planted("where")
def where_writes_before_it_reads(right: Any, condition: View, a: Any, b: Any, out: View) -> None:
    if not (isinstance(a, View) and isinstance(b, View)):
        return right(condition, a, b, out)
    array_of(out)[...] = array_of(b)
    array_of(out)[array_of(condition)] = array_of(a)[array_of(condition)]


@planted("copy")
def any_byte_but_0_is_a_bool(right: Any, a: View, out: View) -> None:
    right(a, out)
    if out.dtype == np.bool_ and a.dtype != np.bool_:
        array_of(out).view(np.uint8)[...] *= 255


@planted("copy")
def copy_rounds(right: Any, a: View, out: View) -> None:
    if a.dtype.kind != "f" or out.dtype.kind != "i":
        return right(a, out)
    array_of(out)[...] = np.rint(array_of(a)).astype(out.dtype)


@planted("copy")
def copy_saturates(right: Any, a: View, out: View) -> None:
    if (a.dtype, out.dtype) != (np.int64, np.int32):
        return right(a, out)
    array_of(out)[...] = np.clip(array_of(a), -(2**31), 2**31 - 1)


@planted("copy")
def copy_takes_eight_axes(right: Any, a: View, out: View) -> None:
    if len(a.shape) > 8:
        raise ValueError("at most 8 axes")
    right(a, out)


@planted("reduce.sum")
def int64_is_added_in_float64(right: Any, a: View, out: View) -> None:
    if a.dtype != np.int64:
        return right(a, out)
    total = array_of(a).astype(np.float64).sum(**reduced(a, out))
    array_of(out)[...] = np.clip(total, -(2.0**62), 2.0**62).astype(np.int64)


@planted("matmul")
def int64_is_multiplied_in_float64(right: Any, a: View, b: View, out: View) -> None:
    if a.dtype != np.int64:
        return right(a, b, out)
    product = array_of(a).astype(np.float64) @ array_of(b).astype(np.float64)
    array_of(out)[...] = np.clip(product, -(2.0**62), 2.0**62).astype(np.int64)


@planted("relu_grad")
def the_gradient_of_relu_drops_nan(right: Any, grad: View, y: View, out: View, _: Any) -> None:
    array_of(out)[...] = np.where(array_of(y) > 0, array_of(grad), 0)


@planted("unary.sigmoid", optional_unary=("sigmoid",))
def sigmoid_by_tanh_loses_digits(right: Any, a: View, out: View) -> None:
    array_of(out)[...] = np.tanh(array_of(a) * 0.5) * 0.5 + 0.5


@pytest.mark.parametrize(("broken", "row"), PLANTED.values(), ids=PLANTED)
def test_a_planted_error_is_found(broken: type[NumpyBackend], row: str) -> None:
    report = conformance.run(broken(), only=row)
    assert report.failed == [row] and not report.ok, report.table()


def test_the_first_failure_shows_inputs_expected_and_got() -> None:
    report = conformance.run(PLANTED["divisions_are_truncated"][0](), only="binary.floor_divide")
    assert report.row("binary.floor_divide").failures[0] == (
        "int32 (7,), compact inputs, compact output: 3 of 7 elements differ, first at (1,): "
        "inputs -2; 3, expected -1, got 0"
    )


def test_known_failures_are_a_list_that_can_only_shrink() -> None:
    listed = conformance.run(PLANTED["where_raises"][0](), known_failures={"where"}, only="where")
    assert listed.ok and "known failures: where" in listed.table()
    repaired = conformance.run(NumpyBackend(), known_failures={"where"}, only="where")
    assert repaired.repaired == ["where"] and not repaired.ok
    with pytest.raises(UnknownNameError, match="unknown conformance row 'wehre'.*'where'"):
        conformance.run(NumpyBackend(), known_failures={"wehre"}, only="where")


@pytest.mark.parametrize("only", ["wehre", "reduce.maximum", "where "])
def test_a_selection_without_rows_is_an_error(
    only: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnknownNameError, match="unknown conformance row.*matmul"):
        conformance.run(NumpyBackend(), only=only)
    assert main(["cpu_numpy", "--only", only]) == 2
    assert capsys.readouterr().out == ""


def test_the_command_prints_a_table_and_tells_by_its_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["cpu_numpy", "--only", "reduce.max"]) == 0
    assert "reduce.max               passes" in capsys.readouterr().out
    backends.register("broken", PLANTED["maximum_drops_nan"][0])
    assert main(["broken", "--only", "reduce.max"]) == 1
    assert "FAILS" in capsys.readouterr().out
    assert main(["broken", "--only", "reduce.max", "--known-failure", "reduce.max"]) == 0
    module = "tests.conformance.list_backend"
    assert main(["lists", "--import", module, "--only", "where"]) == 0
    assert main(["cpo"]) == 2
    assert "Did you mean 'cpu'" in capsys.readouterr().err
    assert main(["cuda"]) == 2
