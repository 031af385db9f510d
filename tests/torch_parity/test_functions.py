"""Single functions compared with PyTorch: values, gradients and schedules."""

from __future__ import annotations

import numpy as np
import pytest

import needle as ndl
from needle import optim

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
F = torch.nn.functional


def randn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


CONVOLUTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": (1, 2), "padding": (2, 0), "dilation": (1, 2)},
    {"dilation": 2, "padding": 3, "groups": 2},
    {"groups": 4, "stride": (2, 1), "padding": (0, 1)},
]
CASES = {
    **{
        f"conv2d_{i}": (
            [(2, 4, 7, 9), (8, 4 // options.get("groups", 1), 3, 2), (8,)],
            lambda x, w, b, o=options: ndl.conv2d(x, w, b, **o),
            lambda x, w, b, o=options: F.conv2d(x, w, b, **o),
        )
        for i, options in enumerate(CONVOLUTIONS)
    },
    "max_pool2d": (
        [(2, 3, 7, 8)],
        lambda x: ndl.max_pool2d(x, (3, 2), (2, 1), (1, 1)),
        lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 1)),
    ),
    "avg_pool2d": (
        [(2, 3, 7, 8)],
        lambda x: ndl.avg_pool2d(x, 3, 2, 1),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
    ),
    "adaptive_even": (
        [(2, 3, 6, 8)],
        lambda x: ndl.adaptive_avg_pool2d(x, (3, 2)),
        lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    ),
    "adaptive_uneven": (
        [(2, 3, 5, 7)],
        lambda x: ndl.adaptive_avg_pool2d(x, (3, 4)),
        lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    ),
    "batch_norm": (
        [(4, 3, 5, 2), (3,), (3,)],
        lambda x, w, b: ndl.batch_norm(x, w, b, eps=1e-3)[0],
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True, eps=1e-3),
    ),
    "layer_norm": (
        [(4, 3, 6), (6,), (6,)],
        lambda x, w, b: ndl.layer_norm(x, w, b, eps=1e-3),
        lambda x, w, b: F.layer_norm(x, (6,), w, b, eps=1e-3),
    ),
    "softmax": ([(3, 5, 2)], lambda x: ndl.softmax(x, axis=1), lambda x: F.softmax(x, 1)),
    "logsoftmax": ([(3, 5)], lambda x: ndl.logsoftmax(x), lambda x: F.log_softmax(x, 1)),
    "logsumexp": (
        [(3, 5, 2)],
        lambda x: ndl.logsumexp(x, axes=(0, 2)),
        lambda x: torch.logsumexp(x, (0, 2)),
    ),
    "cross_entropy": (
        [(3, 5)],
        lambda x: ndl.cross_entropy(x, [4, 0, 2], 0.3, "none"),
        lambda x: F.cross_entropy(
            x, torch.tensor([4, 0, 2]), label_smoothing=0.3, reduction="none"
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_value_gradient_and_second_gradient(name, device):
    """In float64: y, the gradient of <y, c>, and the gradient of <gradient, d>."""
    shapes, ours, theirs = CASES[name]
    values = [randn(*shape, seed=i) for i, shape in enumerate(shapes)]
    a = [ndl.Tensor(v, device=device, dtype="float64") for v in values]
    b = [torch.tensor(v, requires_grad=True) for v in values]
    y, expected = ours(*a), theirs(*b)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-11)
    c = randn(*expected.shape, seed=9)
    y.backward(ndl.Tensor(c, device=device, dtype="float64"), retain_graph=True)
    first = torch.autograd.grad(expected, b, torch.tensor(c), create_graph=True)
    grads = [t.grad for t in a]
    for mine, other in zip(grads, first, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.detach().numpy(), rtol=1e-8, atol=1e-10)
    d = [randn(*shape, seed=20 + i) for i, shape in enumerate(shapes)]
    scalar = sum(torch.sum(g * torch.tensor(v)) for g, v in zip(first, d, strict=True))
    if not scalar.requires_grad:
        return  # linear: nothing to differentiate again
    second = torch.autograd.grad(scalar, b, allow_unused=True)
    pieces = [
        (g * ndl.Tensor(v, device=device, dtype="float64")).sum()
        for g, v in zip(grads, d, strict=True)
    ]
    total = pieces[0]
    for piece in pieces[1:]:
        total = total + piece
    for t in a:
        t.grad = None
    total.backward(retain_graph=True)
    for t, other in zip(a, second, strict=True):
        if other is not None and np.abs(other.numpy()).max() > 0:
            np.testing.assert_allclose(t.grad.numpy(), other.numpy(), rtol=1e-7, atol=1e-9)
        else:
            assert t.grad is None or np.abs(t.grad.numpy()).max() < 1e-12


def test_one_cycle_and_step_schedules():
    ours = optim.SGD([ndl.nn.Parameter(ndl.init.ones(1))], lr=0.1)
    theirs = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    one = optim.OneCycleLR(ours, 0.5, 37, pct_start=0.25)
    other = torch.optim.lr_scheduler.OneCycleLR(theirs, 0.5, 37, pct_start=0.25)
    for step in range(36):
        assert ours.lr == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9), step
        theirs.step()
        one.step()
        other.step()


@pytest.mark.parametrize("name", ["cosine", "step", "multi-step"])
def test_schedules_equal_pytorchs(name):
    pairs = {
        "cosine": (
            lambda o: optim.CosineLR(o, 20, min_lr=0.01),
            lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20, eta_min=0.01),
        ),
        "step": (
            lambda o: optim.StepLR(o, 7, gamma=0.3),
            lambda o: torch.optim.lr_scheduler.StepLR(o, 7, gamma=0.3),
        ),
        "multi-step": (
            lambda o: optim.MultiStepLR(o, [5, 12], gamma=0.2),
            lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [5, 12], gamma=0.2),
        ),
    }
    ours = optim.SGD([ndl.nn.Parameter(ndl.init.ones(2))], lr=0.5)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.5)
    one, other = pairs[name][0](ours), pairs[name][1](theirs)
    for step in range(20):
        assert ours.lr == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9), step
        theirs.step()
        one.step()
        other.step()
