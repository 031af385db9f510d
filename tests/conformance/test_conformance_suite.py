"""The conformance suite on our backends, on one of lists, and on backends with planted errors."""

from __future__ import annotations

from collections.abc import Iterator
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


# ---- backends with one error each, which the suite must find and nothing else
# ----------------------


class TruncatingDivision(NumpyBackend):
    """Divides integers by C's rule."""

    def binary(self, name: str, a: Any, b: Any, out: View) -> None:
        super().binary(name, a, b, out)
        if name == "floor_divide" and out.dtype.kind == "i":
            left, right = (array_of(x) if isinstance(x, View) else np.asarray(x) for x in (a, b))
            with np.errstate(all="ignore"):
                array_of(out)[...] = np.where(right == 0, 0, np.trunc(left / right))


class MaximumDropsNan(NumpyBackend):
    """Uses fmax for max."""

    def reduce(self, name: str, a: View, out: View) -> None:
        if name == "max" and a.dtype.kind == "f":
            axes = tuple(i for i, n in enumerate(out.shape) if n == 1)
            array_of(out)[...] = np.fmax.reduce(array_of(a), axis=axes, keepdims=True)
        else:
            super().reduce(name, a, out)


class RunningSum(NumpyBackend):
    """Sums with one float32 accumulator from the first element to the last."""

    def reduce(self, name: str, a: View, out: View) -> None:
        super().reduce(name, a, out)
        if name == "sum" and out.dtype == np.float32 and max(a.shape, default=0) > 10000:
            axis = a.shape.index(max(a.shape))
            running = np.cumsum(array_of(a), axis=axis, dtype=np.float32)
            last = np.take(running, [-1], axis=axis)
            array_of(out)[...] = last if out.shape == last.shape else last.sum(keepdims=True)


class CopyIgnoresOffset(NumpyBackend):
    """Reads from the start of the buffer."""

    def copy(self, a: View, out: View) -> None:
        low = sum((n - 1) * s for n, s in zip(a.shape, a.strides) if s < 0)
        super().copy(a._replace(offset=-low), out)


class IgnoresStrideSign(NumpyBackend):
    """Treats a reversed axis as a forward one."""

    def unary(self, name: str, a: View, out: View) -> None:
        if name == "tanh" and any(s < 0 for s in a.strides) and 0 not in a.shape:
            low = sum((n - 1) * s for n, s in zip(a.shape, a.strides) if s < 0)
            a = a._replace(strides=tuple(map(abs, a.strides)), offset=a.offset + low)
        super().unary(name, a, out)


class FillsTheWholeBuffer(NumpyBackend):
    """Writes outside the view."""

    def fill(self, out: View, value: Any) -> None:
        out.handle[...] = np.asarray(value).astype(out.dtype)


class SquareScribblesOnItsInput(NumpyBackend):
    """Computes in the input's memory."""

    def unary(self, name: str, a: View, out: View) -> None:
        super().unary(name, a, out)
        if name == "square" and a.handle is not out.handle:
            array_of(a)[...] = array_of(out)


class EmptyMatmul(NumpyBackend):
    """Leaves the output unchanged if the inner size is 0."""

    def matmul(self, a: View, b: View, out: View) -> None:
        if a.shape[-1]:
            super().matmul(a, b, out)


class LastMaximum(NumpyBackend):
    """argmax returns the last of equal maxima."""

    def argmax(self, a: View, out: View, axis: int) -> None:
        flipped = np.flip(array_of(a), axis)
        array_of(out)[...] = a.shape[axis] - 1 - np.argmax(flipped, axis=axis, keepdims=True)


class AddOnce(NumpyBackend):
    """scatter_add ignores repeated indices."""

    def scatter_add(self, a: View, index: View, out: View) -> None:
        array_of(out)[array_of(index)] += array_of(a)


class MeanOverChannels(NumpyBackend):
    """softmax does not subtract the maximum and overflows."""

    def softmax(self, a: View, out: View, axis: int) -> None:
        with np.errstate(all="ignore"):
            exps = np.exp(array_of(a))
            array_of(out)[...] = exps / exps.sum(axis=axis, keepdims=True)


class AdoptsACopy(NumpyBackend):
    """Claims to share memory where it does not."""

    def adopt(self, source: Any) -> Any:
        return source.ravel().copy()


class RefusesWhere(NumpyBackend):
    """Always raises."""

    def where(self, condition: View, a: Any, b: Any, out: View) -> None:
        raise NotImplementedError("still to be written")


def _operands(a: Any, b: Any, out: View) -> list[Any]:
    return [array_of(x) if isinstance(x, View) else np.asarray(x).astype(out.dtype) for x in (a, b)]


class NegativeExponentsRaise(NumpyBackend):
    """Uses NumPy's own integer power, which raises ValueError."""

    def binary(self, name: str, a: Any, b: Any, out: View) -> None:
        if name == "power" and out.dtype.kind == "i":
            np.power(*_operands(a, b, out), out=array_of(out))
        else:
            super().binary(name, a, b, out)


class NegativeExponentsAreFloored(NumpyBackend):
    """(-2)**-1 becomes -1 instead of 0."""

    def binary(self, name: str, a: Any, b: Any, out: View) -> None:
        left, right = (x.copy() for x in _operands(a, b, out)) if name == "power" else (a, b)
        super().binary(name, a, b, out)
        if name == "power" and out.dtype.kind == "i":
            wrong = (right < 0) & (left < -1) & (right % 2 == 1)
            array_of(out)[np.broadcast_to(wrong, out.shape)] = -1


class SaturatingNegative(NumpyBackend):
    """-(-2**31) becomes 2**31 - 1."""

    def unary(self, name: str, a: View, out: View) -> None:
        lowest = array_of(a) == np.iinfo(a.dtype).min if a.dtype.kind == "i" else None
        super().unary(name, a, out)
        if name == "negative" and lowest is not None:
            array_of(out)[lowest] = np.iinfo(a.dtype).max


class SaturatingAddition(NumpyBackend):
    """int32 sums saturate."""

    def binary(self, name: str, a: Any, b: Any, out: View) -> None:
        if name == "add" and out.dtype == np.int32:
            exact = np.add(*(x.astype(np.int64) for x in _operands(a, b, out)))
            array_of(out)[...] = np.clip(exact, -(2**31), 2**31 - 1)
        else:
            super().binary(name, a, b, out)


class ScalarsWiden(NumpyBackend):
    """x + 2.9 of integers is computed in floating point and truncated afterwards."""

    def binary(self, name: str, a: Any, b: Any, out: View) -> None:
        if name == "multiply" and out.dtype.kind == "i" and not isinstance(b, View):
            array_of(out)[...] = np.multiply(array_of(a), b).astype(out.dtype)
        else:
            super().binary(name, a, b, out)


class FillDropsTheSign(NumpyBackend):
    """fill(-0.0) gives 0.0."""

    def fill(self, out: View, value: Any) -> None:
        super().fill(out, value + 0.0 if isinstance(value, float) else value)


class NegativeBySubtraction(NumpyBackend):
    """Computes -x as 0 - x, so that -(0.0) is 0.0."""

    def unary(self, name: str, a: View, out: View) -> None:
        if name == "negative" and a.dtype.kind == "f":
            array_of(out)[...] = 0.0 - array_of(a)
        else:
            super().unary(name, a, out)


class CarelessExpm1(NumpyBackend):
    """Computes exp(x) - 1."""

    def unary(self, name: str, a: View, out: View) -> None:
        if name == "expm1":
            with np.errstate(all="ignore"):
                array_of(out)[...] = np.exp(array_of(a)) - 1
                array_of(out)[array_of(a) == 0] = 0.0
        else:
            super().unary(name, a, out)


class CarelessLog1p(NumpyBackend):
    """Computes log(1 + x)."""

    def unary(self, name: str, a: View, out: View) -> None:
        super().unary(name, a, out)
        if name == "log1p":
            x = array_of(a)
            with np.errstate(all="ignore"):
                array_of(out)[...] = np.where(x == 0, x, np.log(1 + x))


class WritesBeforeItReads(NumpyBackend):
    """Computes out = -b; out += a, which is wrong if out is a."""

    def binary(self, name: str, a: Any, b: Any, out: View) -> None:
        if name == "subtract" and isinstance(a, View) and isinstance(b, View):
            result = array_of(out)
            with np.errstate(all="ignore"):
                result[...] = array_of(a)
                result[...] = result - array_of(b)
        else:
            super().binary(name, a, b, out)


class WhereWritesBeforeItReads(NumpyBackend):
    """Computes out = b; out[condition] = a, which is wrong if out is a."""

    def where(self, condition: View, a: Any, b: Any, out: View) -> None:
        if isinstance(a, View) and isinstance(b, View):
            result = array_of(out)
            result[...] = array_of(b)
            result[array_of(condition)] = array_of(a)[array_of(condition)]
        else:
            super().where(condition, a, b, out)


class BoolsAreBytes(NumpyBackend):
    """Stores any nonzero byte as True."""

    def copy(self, a: View, out: View) -> None:
        super().copy(a, out)
        if out.dtype == np.bool_ and a.dtype != np.bool_:
            bits = array_of(out)
            bits.view(np.uint8)[...] *= 255


class RoundingCopy(NumpyBackend):
    """Rounds floats to the nearest integer."""

    def copy(self, a: View, out: View) -> None:
        if a.dtype.kind == "f" and out.dtype.kind == "i":
            array_of(out)[...] = np.rint(array_of(a)).astype(out.dtype)
        else:
            super().copy(a, out)


class SaturatingCopy(NumpyBackend):
    """int64 to int32 saturates."""

    def copy(self, a: View, out: View) -> None:
        if a.dtype == np.int64 and out.dtype == np.int32:
            array_of(out)[...] = np.clip(array_of(a), -(2**31), 2**31 - 1)
        else:
            super().copy(a, out)


class EightAxes(NumpyBackend):
    """Rejects more than 8 axes, as a fixed array of strides would."""

    def copy(self, a: View, out: View) -> None:
        if len(a.shape) > 8:
            raise ValueError("at most 8 axes")
        super().copy(a, out)


class SumsInFloat(NumpyBackend):
    """Adds int64 in float64."""

    def reduce(self, name: str, a: View, out: View) -> None:
        if name == "sum" and a.dtype == np.int64:
            axes = tuple(i for i, n in enumerate(out.shape) if n == 1)
            total = array_of(a).astype(np.float64).sum(axis=axes, keepdims=True)
            array_of(out)[...] = np.clip(total, -(2.0**62), 2.0**62).astype(np.int64)
        else:
            super().reduce(name, a, out)


class MatmulInFloat(NumpyBackend):
    """Multiplies int64 in float64."""

    def matmul(self, a: View, b: View, out: View) -> None:
        if a.dtype == np.int64:
            product = array_of(a).astype(np.float64) @ array_of(b).astype(np.float64)
            array_of(out)[...] = np.clip(product, -(2.0**62), 2.0**62).astype(np.int64)
        else:
            super().matmul(a, b, out)


class ReluGradDropsNan(NumpyBackend):
    """The gradient of relu at NaN is 0."""

    def relu_grad(self, grad: View, y: View, out: View, bias_grad: View | None) -> None:
        assert bias_grad is None
        array_of(out)[...] = np.where(array_of(y) > 0, array_of(grad), 0)


class TanhSigmoid(NumpyBackend):
    """Computes sigmoid by tanh, which loses precision below 0."""

    optional_unary = ("sigmoid",)

    def unary(self, name: str, a: View, out: View) -> None:
        if name == "sigmoid":
            array_of(out)[...] = np.tanh(array_of(a) * 0.5) * 0.5 + 0.5
        else:
            super().unary(name, a, out)


PLANTED = {
    NegativeExponentsRaise: "binary.power",
    NegativeExponentsAreFloored: "binary.power",
    SaturatingNegative: "unary.negative",
    SaturatingAddition: "binary.add",
    ScalarsWiden: "binary.multiply",
    FillDropsTheSign: "fill",
    NegativeBySubtraction: "unary.negative",
    CarelessExpm1: "unary.expm1",
    CarelessLog1p: "unary.log1p",
    WritesBeforeItReads: "binary.subtract",
    WhereWritesBeforeItReads: "where",
    BoolsAreBytes: "copy",
    RoundingCopy: "copy",
    SaturatingCopy: "copy",
    EightAxes: "copy",
    SumsInFloat: "reduce.sum",
    MatmulInFloat: "matmul",
    ReluGradDropsNan: "relu_grad",
    TanhSigmoid: "unary.sigmoid",
    TruncatingDivision: "binary.floor_divide",
    MaximumDropsNan: "reduce.max",
    RunningSum: "reduce.sum",
    CopyIgnoresOffset: "copy",
    IgnoresStrideSign: "unary.tanh",
    FillsTheWholeBuffer: "fill",
    SquareScribblesOnItsInput: "unary.square",
    EmptyMatmul: "matmul",
    LastMaximum: "argmax",
    AddOnce: "scatter_add",
    MeanOverChannels: "softmax",
    AdoptsACopy: "adopt",
    RefusesWhere: "where",
}


@pytest.mark.parametrize(
    ("broken", "row"), PLANTED.items(), ids=lambda x: getattr(x, "__name__", x)
)
def test_a_planted_error_fails_in_its_row_alone(broken: type[NumpyBackend], row: str) -> None:
    family = row.split(".")[0]
    report = conformance.run(broken(), only=family)
    assert report.failed == [row], report.table()
    assert not report.ok


def test_the_first_failure_shows_inputs_expected_and_got() -> None:
    report = conformance.run(TruncatingDivision(), only="binary.floor_divide")
    assert report.row("binary.floor_divide").failures[0] == (
        "int32 (7,), compact inputs, compact output: 3 of 7 elements differ, first at (1,): "
        "inputs -2; 3, expected -1, got 0"
    )


def test_known_failures_are_a_list_that_can_only_shrink() -> None:
    listed = conformance.run(RefusesWhere(), known_failures={"where"}, only="where")
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
    backends.register("broken", MaximumDropsNan)
    assert main(["broken", "--only", "reduce.max"]) == 1
    assert "FAILS" in capsys.readouterr().out
    assert main(["broken", "--only", "reduce.max", "--known-failure", "reduce.max"]) == 0
    module = "tests.conformance.list_backend"
    assert main(["lists", "--import", module, "--only", "where"]) == 0
    assert main(["cpo"]) == 2
    assert "Did you mean 'cpu'" in capsys.readouterr().err
    assert main(["cuda"]) == 2
