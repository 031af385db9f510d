"""Input that no op sees: what makes tensors, initial values and gradients refuses it by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import init
from needle.backend_selection import BACKEND
from needle.errors import DeviceError, DTypeError, GraphError, ShapeError

CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "text": (lambda: ndl.Tensor("abc"), DTypeError, "array: elements must be bool, integers"),
    "objects": (lambda: ndl.Tensor([None]), DTypeError, "got object from list"),
    "complex": (lambda: ndl.Tensor(np.ones(2, complex)), DTypeError, "got complex128"),
    "rows of different lengths": (lambda: ndl.Tensor([[1], [2, 3]]), ValueError, "inhomogeneous"),
    "a negative size": (lambda: init.rand(-1), ShapeError, "rand: sizes must not be negative"),
    "a fraction as size": (lambda: init.randn(2.5), DTypeError, "randn: shape must be an int"),
    "zeros": (lambda: init.zeros(2, -3), ShapeError, "constant: sizes must not be negative"),
    "no inputs": (
        lambda: ndl.nn.Linear(0, 3),
        ShapeError,
        "kaiming_uniform: fan_in must be at least 1, got 0",
    ),
    "kaiming_normal": (lambda: init.kaiming_normal(0, 3), ShapeError, "fan_in must be at least 1"),
    "xavier": (
        lambda: init.xavier_normal(0, 0),
        ShapeError,
        "xavier_normal: fan_in + fan_out must be at least 1, got 0",
    ),
    "grad of an argument that is not there": (
        lambda: ndl.grad(lambda x: x.sum(), argnums=2)(ndl.Tensor([1.0])),
        GraphError,
        "grad: argnums must name positional arguments, got 2 for 1",
    ),
    "grad of a number": (
        lambda: ndl.grad(lambda x: 3.0)(ndl.Tensor([1.0])),
        GraphError,
        "grad: the function must return a Tensor, got float",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    call, error, message = CASES[name]
    with pytest.raises(error, match=message.replace("+", r"\+")):
        call()


def test_a_bad_shape_draws_nothing() -> None:
    np.random.seed(0)
    with pytest.raises(ShapeError):
        init.rand(2, -1)
    after = np.random.rand()
    np.random.seed(0)
    assert after == np.random.rand()


@pytest.mark.skipif(BACKEND == "np", reason="one device only")
def test_mixed_devices_are_named_by_the_operation() -> None:
    """Also where the first device has no kernel of its own and the definition would run."""
    if not ndl.cpu().enabled():
        pytest.skip("the extension is not built")
    image = ndl.Tensor(np.ones((1, 1, 3, 3)), device=ndl.cpu_numpy())
    weight = ndl.Tensor(np.ones((1, 1, 3, 3)), device=ndl.cpu())
    for first, second in ((image, weight), (weight, image)):
        with pytest.raises(DeviceError, match="conv2d: all arrays must be on one device"):
            ndl.conv2d(first, second)
