"""Test exact initial values: each tensor takes one draw from the global generator."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle.backend_selection import BACKEND
from tests.course.reference import drawn

CASES: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "rand": (
        lambda **o: ndl.init.rand(3, 4, low=-2, high=5, **o),
        lambda: drawn(np.random.rand(3, 4)) * 7 - 2,
    ),
    "randn": (
        lambda **o: ndl.init.randn(5, mean=2, std=0.5, **o),
        lambda: drawn(np.random.randn(5)) * 0.5 + 2,
    ),
    "randb": (
        lambda **o: ndl.init.randb(40, p=0.3, dtype="float32", **o),
        lambda: drawn(np.random.rand(40)) <= 0.3,
    ),
    "xavier_uniform": (
        lambda **o: ndl.init.xavier_uniform(3, 5, gain=1.5, **o),
        lambda: uniform(1.5 * np.sqrt(6 / 8), 3, 5),
    ),
    "xavier_normal": (
        lambda **o: ndl.init.xavier_normal(3, 5, gain=0.33, **o),
        lambda: drawn(np.random.randn(3, 5)) * 0.33 * np.sqrt(2 / 8),
    ),
    "kaiming_uniform": (
        lambda **o: ndl.init.kaiming_uniform(3, 5, **o),
        lambda: uniform(np.sqrt(6 / 3), 3, 5),
    ),
    "kaiming_uniform, linear": (
        lambda **o: ndl.init.kaiming_uniform(3, 5, nonlinearity="linear", **o),
        lambda: uniform(1, 3, 5),
    ),
    "kaiming_uniform of a shape": (
        lambda **o: ndl.init.kaiming_uniform(27, 36, shape=(3, 3, 3, 4), **o),
        lambda: uniform(np.sqrt(6 / 27), 3, 3, 3, 4),
    ),
    "kaiming_normal": (
        lambda **o: ndl.init.kaiming_normal(3, 5, nonlinearity="relu", **o),
        lambda: drawn(np.random.randn(3, 5)) * np.sqrt(2 / 3),
    ),
    "kaiming_normal, tanh": (
        lambda **o: ndl.init.kaiming_normal(3, 5, nonlinearity="tanh", **o),
        lambda: drawn(np.random.randn(3, 5)) * 5 / 3 / np.sqrt(3),
    ),
    "constant": (lambda **o: ndl.init.constant(2, 3, c=4.5, **o), lambda: np.full((2, 3), 4.5)),
    "zeros": (lambda **o: ndl.init.zeros(2, **o), lambda: np.zeros(2)),
    "ones without axes": (lambda **o: ndl.init.ones(**o), lambda: np.ones(())),
    "one_hot": (
        lambda **o: ndl.init.one_hot(4, ndl.Tensor([[3, 0], [0, 1]], **o), **o),
        lambda: np.eye(4)[[[3, 0], [0, 1]]],
    ),
}


def uniform(bound: float, *shape: int) -> Any:
    return (2 * drawn(np.random.rand(*shape)) - 1) * bound


@pytest.mark.parametrize("name", CASES)
def test_init(name: str, device: Any) -> None:
    make, expected = CASES[name]
    np.random.seed(42)
    tensor, state = make(device=device), np.random.get_state()[2]
    np.random.seed(42)
    want = expected()
    assert tensor.shape == want.shape
    np.testing.assert_allclose(tensor.numpy(), want, rtol=3e-7, atol=2e-7)
    assert np.random.get_state()[2] == state
    assert tensor.dtype == "float32" and not tensor.requires_grad
    assert tensor.device == device


def test_options_of_every_initialiser(device: Any) -> None:
    for make in (
        ndl.init.rand,
        ndl.init.randn,
        ndl.init.constant,
        ndl.init.ones,
        ndl.init.zeros,
        ndl.init.randb,
        ndl.init.xavier_uniform,
        ndl.init.xavier_normal,
        ndl.init.kaiming_uniform,
        ndl.init.kaiming_normal,
    ):
        tensor = make(2, 3, device=device, dtype="float64", requires_grad=True)
        assert tensor.device == device and tensor.dtype == "float64" and tensor.requires_grad
        assert tensor.shape == (2, 3)
    like = ndl.Tensor(np.ones((2, 3)), device=device, dtype="float64")
    for made, value in ((ndl.init.zeros_like(like), 0), (ndl.ones_like(like), 1)):
        assert made.device == device and made.dtype == "float64"
        assert (made.numpy() == value).all() and made.shape == (2, 3)
    assert ndl.init.randb(3).dtype == "bool"


def test_resnet9_draws_in_forward_order() -> None:
    from apps.models import ResNet9

    np.random.seed(3)
    model = ResNet9()
    np.random.seed(3)
    shapes = []
    convolutions = [(3, 16, 7), (16, 32, 3), (32, 32, 3), (32, 32, 3), (32, 64, 3), (64, 128, 3)]
    for inputs, outputs, kernel in [*convolutions, (128, 128, 3), (128, 128, 3)]:
        area = kernel * kernel * inputs
        shapes.append(uniform(np.sqrt(6 / area), kernel, kernel, inputs, outputs))
        shapes.append(uniform(1 / np.sqrt(area), outputs))
        shapes += [np.ones(outputs), np.zeros(outputs)]
    for inputs, outputs in [(128, 128), (128, 10)]:
        shapes.append(uniform(np.sqrt(6 / inputs), inputs, outputs))
        shapes.append(uniform(np.sqrt(6 / outputs), outputs, 1).reshape(1, outputs))
    parameters = model.parameters()
    assert len(parameters) == len(shapes)
    for parameter, expected in zip(parameters, shapes, strict=True):
        np.testing.assert_allclose(parameter.numpy(), expected, rtol=1e-5, atol=1e-7)
    assert sum(int(np.prod(p.shape)) for p in parameters) == 431946


def test_mode_of_the_draws() -> None:
    """Test rounding to float32: before scaling on needle's arrays, after it on NumPy's."""
    np.random.seed(0)
    exact = np.random.randn(1000)
    np.random.seed(0)
    ours = ndl.init.randn(1000, std=1.1).numpy()
    rounded_first = exact.astype("float32") * np.float32(1.1)
    rounded_last = (exact * 1.1).astype("float32")
    assert (rounded_first != rounded_last).any()
    np.testing.assert_array_equal(ours, rounded_first if BACKEND == "nd" else rounded_last)
