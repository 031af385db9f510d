"""The definitions of the accelerated operations, compared with PyTorch and with small examples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from needle import accelerated
from needle.errors import ShapeError
from needle.shapes import Geometry

CONVOLUTIONS = [
    # x (N, H, W, C), kernel, out channels, stride, padding, dilation, groups
    ((1, 4, 4, 2), (3, 3), 3, (1, 1), (1, 1), (1, 1), 1),
    ((2, 9, 8, 4), (3, 2), 6, (2, 1), (1, 2), (1, 2), 2),
    ((2, 6, 5, 3), (2, 3), 3, (1, 3), (0, 1), (2, 1), 3),
    ((1, 7, 7, 2), (1, 1), 4, (3, 3), (0, 0), (1, 1), 1),
]
POOLS = [((3, 2), (2, 1), (1, 1)), ((2, 2), (2, 2), (0, 0)), ((3, 3), (1, 2), (1, 0))]


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def _first(a: np.ndarray) -> Any:
    torch = pytest.importorskip("torch")
    return torch.tensor(np.moveaxis(a, 3, 1).copy()).requires_grad_()


def _last(tensor: Any) -> np.ndarray:
    return np.moveaxis(tensor.detach().numpy(), 1, 3)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution_and_its_gradients_agree_with_pytorch(case: Any) -> None:
    torch = pytest.importorskip("torch")
    shape, kernel, channels, *settings = case
    geometry = Geometry(*settings)
    x, w = _random(*shape), _random(*kernel, shape[3] // settings[3], channels)
    y = accelerated.conv2d(x, w, geometry)
    grad = _random(*y.shape)
    tx, tw = _first(x), torch.tensor(w.transpose(3, 2, 0, 1).copy()).requires_grad_()
    ty = torch.nn.functional.conv2d(tx, tw, None, *settings)
    dx, dw = torch.autograd.grad(ty, (tx, tw), _first(grad))
    assert np.allclose(y, _last(ty))
    assert np.allclose(accelerated.conv2d_input_grad(grad, w, x.shape, geometry), _last(dx))
    dw_ours = accelerated.conv2d_weight_grad(grad, x, w.shape, geometry)
    assert np.allclose(dw_ours, dw.numpy().transpose(2, 3, 1, 0))


@pytest.mark.parametrize("windows", POOLS, ids=str)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pooling_and_its_gradient_agree_with_pytorch(kind: str, windows: Any) -> None:
    torch = pytest.importorskip("torch")
    x = _random(2, 7, 6, 3)
    y = getattr(accelerated, f"{kind}_pool2d")(x, *windows)
    grad, tx = _random(*y.shape), _first(x)
    ty = getattr(torch.nn.functional, f"{kind}_pool2d")(tx, *windows)
    (dx,) = torch.autograd.grad(ty, tx, _first(grad))
    source = x if kind == "max" else x.shape
    assert np.allclose(y, _last(ty))
    assert np.allclose(
        getattr(accelerated, f"{kind}_pool2d_grad")(grad, source, *windows), _last(dx)
    )


@pytest.mark.parametrize("kind", ["batch", "layer"])
def test_norms_and_their_gradients_agree_with_pytorch(kind: str) -> None:
    torch = pytest.importorskip("torch")
    x, w, b, grad = _random(6, 5) * 3 + 1, _random(5), _random(5) + 2, _random(6, 5)[::-1]
    y, mean, var = getattr(accelerated, f"{kind}_norm")(x, w, b, 1e-3)
    tx, tw, tb = (torch.tensor(a.copy()).requires_grad_() for a in (x, w, b))
    functional = torch.nn.functional
    if kind == "batch":
        ty = functional.batch_norm(tx, None, None, tw, tb, training=True, eps=1e-3)
        axis, kept = 0, (5,)
    else:
        ty = functional.layer_norm(tx, (5,), tw, tb, eps=1e-3)
        axis, kept = 1, (6, 1)
    assert np.allclose(y, ty.detach().numpy())
    assert np.allclose(mean, x.mean(axis).reshape(kept)) and mean.shape == kept
    assert np.allclose(var, x.var(axis).reshape(kept)) and var.shape == kept
    wanted = torch.autograd.grad(ty, (tx, tw, tb), torch.tensor(grad.copy()))
    got = getattr(accelerated, f"{kind}_norm_grad")(grad, x, w, mean, var, 1e-3)
    for ours, theirs in zip(got[:3], wanted):
        assert np.allclose(ours, theirs.numpy())


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_cross_entropy_and_its_gradient_agree_with_pytorch(smoothing: float) -> None:
    torch = pytest.importorskip("torch")
    logits, labels, grad = _random(5, 4) * 20, np.array([0, 3, 3, 1, 2]), _random(5)
    t = torch.tensor(logits).requires_grad_()
    loss = torch.nn.functional.cross_entropy(
        t, torch.tensor(labels), reduction="none", label_smoothing=smoothing
    )
    (slope,) = torch.autograd.grad(loss, t, torch.tensor(grad))
    assert np.allclose(accelerated.cross_entropy(logits, labels, smoothing), loss.detach().numpy())
    ours = accelerated.cross_entropy_grad(grad, logits, labels, smoothing)
    assert np.allclose(ours, slope.numpy())


def test_the_softmax_family_agrees_with_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x = _random(3, 4, 5) * 300
    for axis in (0, 1, 2, -1):
        t = torch.tensor(x)
        assert np.allclose(accelerated.softmax(x, axis), t.softmax(axis).numpy())
        assert np.allclose(accelerated.log_softmax(x, axis), t.log_softmax(axis).numpy())
    for axes in (0, (0, 2), (1, 2), None):
        dims = tuple(range(3)) if axes is None else axes
        for keepdims in (False, True):
            wanted = torch.logsumexp(torch.tensor(x), dims, keepdim=keepdims).numpy()
            assert np.allclose(accelerated.logsumexp(x, axes, keepdims), wanted)


def test_logsumexp_of_infinities() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 0.0], [-np.inf, 2.0]])
    with np.errstate(divide="ignore"):
        assert accelerated.logsumexp(x, 1, False).tolist() == [-np.inf, np.inf, 2.0]


def test_cross_entropy_ignores_impossible_classes_and_checks_labels() -> None:
    logits = np.array([[0.0, -np.inf, 0.0]])
    loss = accelerated.cross_entropy(logits, np.array([0]), 0.0)
    assert loss.tolist() == pytest.approx([math.log(2)])
    for bad in (-1, 3):
        with pytest.raises(ShapeError, match=r"labels must be in \[0, 3\)"):
            accelerated.cross_entropy(logits, np.array([bad]), 0.0)
        with pytest.raises(ShapeError, match="cross_entropy_grad: labels"):
            accelerated.cross_entropy_grad(np.ones(1), logits, np.array([bad]), 0.0)


def test_max_pool_by_hand_ties_go_to_the_first_and_never_to_padding() -> None:
    x = np.full((1, 2, 2, 1), -np.inf)
    windows = ((2, 2), (1, 1), (1, 1))
    grad = np.arange(1.0, 10.0).reshape(1, 3, 3, 1)
    assert (accelerated.max_pool2d(x, *windows) == -np.inf).all()
    got = accelerated.max_pool2d_grad(grad, x, *windows)[0, :, :, 0]
    # Windows 1, 2, 4, 5 read the first pixel first; 3 and 6 the second; 7 and 8 the third.
    assert got.tolist() == [[12.0, 9.0], [15.0, 9.0]]


def test_sgd_by_hand() -> None:
    p, g, v = np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([0.1, 0.2])
    (new,) = accelerated.sgd_step([p], [g], [v], 0.1, 0.9, 0.5, 0.01, False)
    # g' = (0.51, -0.98); v = 0.9 v + 0.5 g'
    assert v.tolist() == pytest.approx([0.345, -0.31])
    assert new.tolist() == pytest.approx([1 - 0.0345, 2 + 0.031])
    assert p.tolist() == [1.0, 2.0] and g.tolist() == [0.5, -1.0]


def _torch_steps(make: Any, p: np.ndarray, grads: list[np.ndarray]) -> np.ndarray:
    torch = pytest.importorskip("torch")
    t = torch.tensor(p).requires_grad_()
    optimizer = make(torch.optim, [t])
    for grad in grads:
        t.grad = torch.tensor(grad)
        optimizer.step()
    return t.detach().numpy()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_agrees_with_pytorch(momentum: float, nesterov: bool) -> None:
    if nesterov and not momentum:
        return
    p, grads = _random(4), [_random(4), _random(4) * 2]
    wanted = _torch_steps(
        lambda optim, ps: optim.SGD(
            ps, lr=0.1, momentum=momentum, weight_decay=0.01, nesterov=nesterov
        ),
        p,
        grads,
    )
    velocities = [np.zeros(4)] if momentum else []
    for grad in grads:
        (p,) = accelerated.sgd_step([p], [grad], velocities, 0.1, momentum, 0.0, 0.01, nesterov)
    assert np.allclose(p, wanted)


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_agrees_with_pytorch(decoupled: bool) -> None:
    p, grads = _random(4), [_random(4), _random(4) * 2, _random(4) - 1]
    name = "AdamW" if decoupled else "Adam"
    wanted = _torch_steps(
        lambda optim, ps: getattr(optim, name)(ps, lr=0.1, weight_decay=0.1), p, grads
    )
    m, v = [np.zeros(4)], [np.zeros(4)]
    for step, grad in enumerate(grads, 1):
        (p,) = accelerated.adam_step([p], [grad], m, v, 0.1, 0.9, 0.999, 1e-8, 0.1, decoupled, step)
    assert np.allclose(p, wanted)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax_and_argmin_take_the_first_and_nan_wins(name: str) -> None:
    hosts = [
        np.array([[1, 3, 3], [2, 2, 2]]),
        np.array([[1.0, np.nan, 5.0], [-np.inf, 0, -np.inf]]),
    ]
    for host in hosts:
        for axis in (0, 1, -1):
            for keepdims in (False, True):
                got = getattr(accelerated, name)(host, axis, keepdims)
                wanted = getattr(np, name)(host, axis=axis, keepdims=keepdims)
                assert got.dtype == np.int64 and got.shape == wanted.shape
                assert (got == wanted).all()


def test_rows_by_hand() -> None:
    a, index = np.array([[1, 2], [3, 4], [5, 6]]), np.array([2, 0, 2])
    assert accelerated.gather(a, index).tolist() == [[5, 6], [1, 2], [5, 6]]
    out = np.zeros((3, 2), int)
    accelerated.scatter(out, index, a)
    assert out.tolist() == [[3, 4], [0, 0], [5, 6]]
    accelerated.scatter_add(out, index, a)
    assert out.tolist() == [[6, 8], [0, 0], [11, 14]]
    assert accelerated.one_hot(np.array([1, 0]), 3, "float32").tolist() == [[0, 1, 0], [1, 0, 0]]
