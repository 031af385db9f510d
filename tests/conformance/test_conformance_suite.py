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
    """Each instruction set of this machine in turn, chosen for the time of the test."""
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


# ---- backends with one error each: the suite must find it, and there alone ---------------------


class TruncatingDivision(NumpyBackend):
    """Integers divided by C's rule."""

    def binary(self, name: str, a: Any, b: Any, out: View) -> None:
        super().binary(name, a, b, out)
        if name == "floor_divide" and out.dtype.kind == "i":
            left, right = (array_of(x) if isinstance(x, View) else np.asarray(x) for x in (a, b))
            with np.errstate(all="ignore"):
                array_of(out)[...] = np.where(right == 0, 0, np.trunc(left / right))


class MaximumDropsNan(NumpyBackend):
    """fmax in place of max."""

    def reduce(self, name: str, a: View, out: View) -> None:
        if name == "max" and a.dtype.kind == "f":
            axes = tuple(i for i, n in enumerate(out.shape) if n == 1)
            array_of(out)[...] = np.fmax.reduce(array_of(a), axis=axes, keepdims=True)
        else:
            super().reduce(name, a, out)


class RunningSum(NumpyBackend):
    """One float32 accumulator from the first element to the last."""

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
    """Takes a reversed axis for a forward one."""

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
    """Leaves the output as it was where the inner size is 0."""

    def matmul(self, a: View, b: View, out: View) -> None:
        if a.shape[-1]:
            super().matmul(a, b, out)


class LastMaximum(NumpyBackend):
    """argmax gives the last of equal maxima."""

    def argmax(self, a: View, out: View, axis: int) -> None:
        flipped = np.flip(array_of(a), axis)
        array_of(out)[...] = a.shape[axis] - 1 - np.argmax(flipped, axis=axis, keepdims=True)


class AddOnce(NumpyBackend):
    """scatter_add forgets repeated indices."""

    def scatter_add(self, a: View, index: View, out: View) -> None:
        array_of(out)[array_of(index)] += array_of(a)


class MeanOverChannels(NumpyBackend):
    """softmax without a maximum subtracted: overflows."""

    def softmax(self, a: View, out: View, axis: int) -> None:
        with np.errstate(all="ignore"):
            exps = np.exp(array_of(a))
            array_of(out)[...] = exps / exps.sum(axis=axis, keepdims=True)


class AdoptsACopy(NumpyBackend):
    """Says that memory is shared where it is not."""

    def adopt(self, source: Any) -> Any:
        return source.ravel().copy()


class RefusesWhere(NumpyBackend):
    """Raises."""

    def where(self, condition: View, a: Any, b: Any, out: View) -> None:
        raise NotImplementedError("still to be written")


PLANTED = {
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
