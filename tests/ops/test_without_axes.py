"""Call every op that accepts a 0-d tensor with one.

NumPy's arithmetic returns scalars for 0-d arrays. The result of an op, and its gradients, must be
arrays of the input's dtype nevertheless.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle.autograd import NDArray
from needle.errors import IndexingError

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    name: getattr(ndl, name)
    for name in (
        "exp log tanh relu leaky_relu negate sqrt abs sin cos sigmoid gelu erf logsumexp "
        "summation mean var max min flip"
    ).split()
}
FUNCTIONS |= {
    "a + a": lambda a: a + a,
    "1 - a": lambda a: 1 - a,
    "a / a": lambda a: a / (a + 1),
    "a ** 2": lambda a: a**2,
    "2 ** a": lambda a: 2**a,
    "maximum": lambda a: ndl.maximum(a, a * 2),
    "where": lambda a: ndl.where(a > 0, a, a * 2),
    "clip": lambda a: ndl.clip(a, 0, 1),
    "stack": lambda a: ndl.stack([a, a], 0).sum(),
    "reshape": lambda a: a.reshape((1, 1)),
    "broadcast_to": lambda a: a.broadcast_to((2, 3)).sum(),
    "getitem": lambda a: a[None, ...].sum(),
    "axis 0 of sum": lambda a: a.sum(0),
    "axis -1 of mean": lambda a: a.mean(-1, keepdims=True),
    "axis 0 of max": lambda a: a.max(0),
    "axes (-1,) of min": lambda a: a.min((-1,)),
    "axis 0 of var": lambda a: a.var(0),
    "axis 0 of prod": lambda a: a.prod(0),
    "axis -1 of norm": lambda a: a.norm(axes=-1),
    "axis 0 of softmax": lambda a: ndl.softmax(a, 0),
    "axis -1 of logsoftmax": lambda a: ndl.logsoftmax(a, axis=-1),
    "axis -1 of logsumexp": lambda a: ndl.logsumexp(a, -1),
    "axis 0 of flip": lambda a: ndl.flip(a, 0),
    "axis 0 of squeeze": lambda a: a.squeeze(0),
    "axis 0 of transpose": lambda a: a.transpose(0, -1),
    "permute": lambda a: ndl.permute(a, range(a.ndim)),
    "dilate": lambda a: ndl.dilate(a, (1,), 1),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_0d(name: str, dtype: str, device: Any) -> None:
    a = ndl.Tensor(np.array(0.7), dtype=dtype, device=device)
    b = ndl.Tensor(np.array([0.7]), dtype=dtype, device=device)
    out, like = FUNCTIONS[name](a), FUNCTIONS[name](b)
    assert isinstance(out.realize_cached_data(), NDArray) and out.dtype == dtype
    np.testing.assert_allclose(out.numpy().ravel(), like.numpy().ravel(), rtol=1e-6)
    for _ in range(2):
        out.backward()
        like.backward()
        assert isinstance(a.grad.realize_cached_data(), NDArray)
        assert a.grad.shape == () and a.grad.dtype == dtype
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy()[0], rtol=1e-6, atol=1e-7)
        out, like = a.grad, b.grad


@pytest.mark.parametrize("axis", [1, -2])
def test_0d_has_no_other_axis(axis: int, device: Any) -> None:
    a = ndl.Tensor(np.array(0.7), device=device)
    for call in (ndl.summation, ndl.max, ndl.softmax, ndl.squeeze, ndl.flip, ndl.mean):
        with pytest.raises(IndexingError, match=f"axis {axis} is out of range"):
            call(a, axis)


def test_0d_whole_numbers(device: Any) -> None:
    a = ndl.Tensor(np.array(3), dtype="int64", device=device)
    np.testing.assert_allclose(ndl.logsumexp(a).numpy(), 3.0)
    np.testing.assert_allclose(ndl.gelu(a).numpy(), 2.9959502, rtol=1e-6)
