"""Test ``needle.capture`` on a backend whose kernels call other functions of the backend."""

from typing import Any

import numpy as np
import pytest

import needle
from needle import backends
from needle.backends import View
from needle.backends.numpy_backend import NumpyBackend
from tests.nn_devices import needs_kernels

pytestmark = needs_kernels


class Composed(NumpyBackend):
    """A backend whose softmax calls other kernels and allocates memory of its own."""

    def softmax(self, a: View, out: View, axis: int) -> None:
        rows = list(a.shape)
        rows[axis] = 1
        strides = np.empty(rows, np.int8).strides
        sums = View(self.allocate(int(np.prod(rows)), a.dtype), tuple(rows), strides, 0, a.dtype)
        self.unary("exp", a, out)
        self.reduce("sum", out, sums)
        whole = sums._replace(shape=a.shape, strides=tuple(strides[:axis]) + (0,))
        self.binary("divide", out, whole, out)


def test_a_kernel_is_recorded_once_with_the_kernels_that_it_calls() -> None:
    backends.register("composed", Composed())
    device = needle.device("composed")

    def step(x: needle.Tensor) -> Any:
        return needle.ops.softmax(x * 2.0, axis=1)

    captured = needle.capture(step)
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=(3, 5)).astype("float32")
        got = captured(needle.Tensor(x, device=device, requires_grad=False)).numpy()
        wide = np.exp(2.0 * x.astype("float64"))
        np.testing.assert_allclose(got, wide / wide.sum(axis=1, keepdims=True), rtol=1e-5)
    assert captured.replays == 3
    (program,) = captured.programs
    assert [call.name for call in program.recording.segments[0].calls] == ["binary", "softmax"]


def test_a_kernel_that_is_python_code_is_called_by_replays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other kernels of the backend are compiled, but the recording runs from Python."""
    backend = needle.cpu().backend
    compiled, scales = backend.unary, []

    def unary(name: str, a: View, out: View) -> None:
        scales.append(name)
        compiled(name, a, out)

    monkeypatch.setattr(type(backend), "unary", staticmethod(unary))
    captured = needle.capture(lambda x: (x * 2.0).exp() + 1.0, check=False)
    x = needle.ones(3, device=needle.cpu())
    results = [captured(x).numpy() for _ in range(3)]
    assert captured.replays == 2 and scales == ["exp"] * 3
    np.testing.assert_array_equal(results[0], results[2])
