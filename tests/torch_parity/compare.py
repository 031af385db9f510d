"""Compares a function of needle with PyTorch's in float64: values, first and second gradients."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import needle as ndl

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
F = torch.nn.functional


def compare(
    values: Sequence[Any],
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    device: Any,
    order: int = 2,
) -> None:
    """Assert equal y, gradients of <y, c>, and gradients of <gradient, d>, for random c and d.

    All of ``values``, the floating inputs, get a gradient. With ``order`` 1 there are no second
    ones.
    """
    random = np.random.default_rng(9)
    a = [ndl.Tensor(v, device=device, dtype="float64") for v in values]
    b = [torch.tensor(v, requires_grad=True, dtype=torch.float64) for v in values]
    y, expected = ours(*a), theirs(*b)
    assert y.shape == tuple(expected.shape)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-11)
    if not expected.requires_grad:
        assert not y.requires_grad
        return
    c = random.standard_normal(y.shape)
    y.backward(ndl.Tensor(c, device=device, dtype="float64"), retain_graph=True)
    first = torch.autograd.grad(expected, b, torch.tensor(c), create_graph=True, allow_unused=True)
    grads = [t.grad for t in a]
    for mine, other in zip(grads, first, strict=True):
        wanted = np.zeros(mine.shape) if other is None else other.numpy(force=True)
        np.testing.assert_allclose(mine.numpy(), wanted, rtol=1e-8, atol=1e-10)
    d = [random.standard_normal(np.shape(v)) for v in values]
    pairs = [(g * torch.tensor(v)).sum() for g, v in zip(first, d) if _is_node(g)]
    if not pairs or order == 1:
        return  # linear, so there is no second gradient
    second = torch.autograd.grad(sum(pairs), b, allow_unused=True)
    total: Any = 0.0
    for g, v in zip(grads, d, strict=True):
        total = total + (g * ndl.Tensor(v, device=device, dtype="float64")).sum()
    for t in a:
        t.grad = None
    if total.requires_grad:
        total.backward(retain_graph=True)
    for t, other in zip(a, second, strict=True):
        wanted = np.zeros(t.shape) if other is None else other.numpy(force=True)
        got = np.zeros(t.shape) if t.grad is None else t.grad.numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-9)


def compare_functions(
    name: str, values: Sequence[Any], device: Any, *args: Any, order: int = 2, **options: Any
) -> None:
    """Compare the functions of this name; PyTorch takes arrays of the arguments as tensors."""
    compare(
        values,
        lambda *a: getattr(ndl, name)(*a, *args, **options),
        lambda *b: getattr(F, name)(
            *b, *map(_given, args), **{key: _given(value) for key, value in options.items()}
        ),
        device,
        order,
    )


def _given(value: Any) -> Any:
    return torch.tensor(value) if isinstance(value, np.ndarray) else value


def _is_node(gradient: Any) -> bool:
    return gradient is not None and bool(gradient.requires_grad)
