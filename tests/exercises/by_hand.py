"""Helpers that several exercises' tests share: errors as results, finite differences, softmax."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def outcome(function: Callable[[], Any], *kinds: type[Exception]) -> Any:
    """Return the function's result, or the name of the error if it is one of these kinds."""
    try:
        return function()
    except NotImplementedError:  # the exercise is still open
        raise
    except kinds as error:
        return type(error).__name__


def numerical(f: Any, x: Array, out_grad: Array, step: float = 1e-6) -> Array:
    """Return the gradient of sum(out_grad * f(x)) by central differences."""
    grad = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * step
            ends.append(float((out_grad * f(moved)).sum()))
        grad[place] = (ends[0] - ends[1]) / (2 * step)
    return grad


def softmax_of(a: Array, axis: int = -1) -> Array:
    e = np.exp(a - a.max(axis, keepdims=True))
    result: Array = e / e.sum(axis, keepdims=True)
    return result
