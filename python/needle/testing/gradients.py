"""Gradient check by central differences along one random direction per input.

One direction costs two evaluations of ``f``, however large the input is. A wrong gradient passes
with probability zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..array_namespace import is_array, to_numpy
from ..autograd import Tensor, TensorTuple, no_grad
from ..autograd.derivative import grad

Host = NumpyArray[Any]
Function = Callable[..., Any]


def check_gradients(
    f: Function,
    *inputs: Any,
    order: int = 1,
    step: float = 1e-5,
    rtol: float = 1e-5,
    atol: float = 1e-7,
    seed: int = 0,
    device: Any = None,
) -> None:
    """Raise AssertionError unless the gradients of ``f`` at ``inputs`` are correct up to ``order``.

    ``inputs``: Tensors, arrays or lists. Floating ones are converted to float64 and checked one by
    one; others are passed unchanged. ``f`` returns one Tensor or several, of any shape.

    Let d be a random direction, w a random weighting of the outputs and s = sum(w * f). Then the
    product <gradient of s, d> must equal (s(x + step*d) - s(x - step*d)) / (2*step), up to
    atol + rtol * |expected|. Order 2 checks the gradients of that product in the same way. Choose
    inputs that are further than ``step`` from kinks (relu at 0, equal maxima). ``device``: that of
    inputs that are not Tensors.
    """
    __tracebackhide__ = True  # pytest's report ends at the caller, with the message below
    points = [_as_point(x, device) for x in inputs]
    positions = [i for i, x in enumerate(points) if isinstance(x, Tensor) and x.dtype == "float64"]
    assert positions, "check_gradients: needs at least one floating input, got none; pass floats"
    random = np.random.default_rng(seed)
    scalar = _weighted(f, points, random)
    name = getattr(f, "__name__", "f").replace("<lambda>", "f")
    for level in range(1, order + 1):
        directions = {i: random.standard_normal(points[i].shape) for i in positions}
        slope = _slope(scalar, directions)
        for i in positions:
            called = f"check_gradients of {name}: order {level}"
            _check_one(scalar, points, i, directions[i], called, (step, rtol, atol))
        scalar = slope


def _as_point(x: Any, device: Any) -> Any:
    """Return a float64 leaf for a floating input, and any other input unchanged."""
    if isinstance(x, Tensor):
        host, device = x.numpy(), x.device
    elif is_array(x) or isinstance(x, (np.ndarray, np.generic, list, float)):
        host = np.asarray(to_numpy(x) if is_array(x) else x)
    else:
        return x
    if host.dtype.kind != "f":
        return x
    return Tensor(host.astype(np.float64), device=device, dtype="float64")


def _outputs(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    assert isinstance(result, (TensorTuple, tuple, list)), (
        f"check_gradients: f must return Tensors, got {type(result).__name__}"
    )
    return list(result)


def _inner(tensors: Sequence[Tensor], weights: Sequence[Host]) -> Tensor:
    """Return the sum of the products of the tensors' elements and their weights."""
    terms = [
        (y * Tensor(w, device=y.device, dtype="float64", requires_grad=False)).sum()
        for y, w in zip(tensors, weights, strict=True)
    ]
    return reduce(operator.add, terms)


def _weighted(f: Function, points: Sequence[Any], random: np.random.Generator) -> Function:
    """Return the function sum(w * f), with a fixed random w for each output."""
    with no_grad():
        weights = [random.standard_normal(y.shape) for y in _outputs(f(*points))]
    return lambda *args: _inner(_outputs(f(*args)), weights)


def _slope(scalar: Function, directions: dict[int, Host]) -> Function:
    """Return the function that computes the derivative of ``scalar`` along all directions."""
    gradients = grad(scalar, tuple(directions))
    return lambda *args: _inner(gradients(*args), [*directions.values()])  # type: ignore[arg-type]


def _check_one(
    scalar: Function,
    points: Sequence[Any],
    i: int,
    direction: Host,
    called: str,
    limits: tuple[float, float, float],
) -> None:
    __tracebackhide__ = True
    step, rtol, atol = limits
    name = f"{called}, input {i} of shape {points[i].shape}"
    gradient = grad(scalar, i)(*points)
    assert isinstance(gradient, Tensor)
    assert gradient.shape == points[i].shape, f"{name}: the gradient has shape {gradient.shape}"
    assert gradient.dtype == "float64", f"{name}: the gradient has dtype {gradient.dtype}"
    got = float(np.sum(gradient.numpy() * direction))
    expected = _central_difference(scalar, points, i, direction, step)
    assert abs(got - expected) <= atol + rtol * abs(expected), (
        f"{name}: expected {expected:.10g} (central difference), got {got:.10g} (gradient) along a "
        f"random direction; check the op's gradient for this input"
        + _worst_element(scalar, points, i, gradient.numpy(), step)
    )


def _worst_element(
    scalar: Function, points: Sequence[Any], i: int, gradient: Host, step: float
) -> str:
    """Describe in one line the element with the largest error in its partial derivative."""
    if gradient.size > 1000:  # each element costs two evaluations of f
        return ""
    expected = np.zeros_like(gradient)
    for index in np.ndindex(*gradient.shape):
        direction = np.zeros_like(gradient)
        direction[index] = 1.0
        expected[index] = _central_difference(scalar, points, i, direction, step)
    worst = np.unravel_index(np.argmax(np.abs(gradient - expected)), gradient.shape)
    place = ", ".join(str(int(n)) for n in worst)
    return (
        f"\n  the worst element: input[{place}] = {points[i].numpy()[worst]:.6g}, "
        f"expected {expected[worst]:.6g}, got {gradient[worst]:.6g}"
    )


def _central_difference(
    scalar: Function, points: Sequence[Any], i: int, direction: Host, step: float
) -> float:
    centre = points[i].numpy()

    def at(offset: float) -> float:
        moved = list(points)
        moved[i] = Tensor(centre + offset * direction, device=points[i].device, dtype="float64")
        return float(scalar(*moved))

    return (at(step) - at(-step)) / (2 * step)
