"""Part 3 of the course: initial values, layers, optimisers, and an epoch of training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from toy_graph import DEVICE, tensor

from apps.course.compare import expect, expect_error
from apps.simple_ml import nn_epoch
from needle import Tensor, accelerated, init, nn, optim
from needle.errors import ShapeError
from needle.nn import Module, Parameter

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 3))


# ---- kaiming -------------------------------------------------------------------------------------


@pytest.mark.exercise("kaiming")
def test_kaiming_uniform() -> None:
    np.random.seed(0)
    drawn = np.random.rand(6, 5)
    np.random.seed(0)
    bound = math.sqrt(2) * math.sqrt(3 / 6)
    expect(
        "kaiming_uniform(6, 5)",
        init.kaiming_uniform(6, 5),
        (2 * drawn - 1) * bound,
        rtol=1e-5,
        given={"np.random.rand(6, 5)": drawn},
        atol=1e-6,
        mistakes={
            "the bound depends on fan_in, the first argument": (2 * drawn - 1) * math.sqrt(6 / 5)
        },
    )
    expect("its shape with shape=(2, 3, 5)", init.kaiming_uniform(6, 5, (2, 3, 5)).shape, (2, 3, 5))
    expect(
        "its range with nonlinearity='linear'",
        bool(np.abs(init.kaiming_uniform(3, 500, nonlinearity="linear").numpy()).max() <= 1),
        True,
    )
    with expect_error("kaiming_uniform(0, 3)", ShapeError, "fan_in must be at least 1"):
        init.kaiming_uniform(0, 3)


@pytest.mark.exercise("kaiming")
def test_kaiming_normal() -> None:
    np.random.seed(0)
    drawn = np.random.randn(8, 5)
    np.random.seed(0)
    expect(
        "kaiming_normal(8, 5)",
        init.kaiming_normal(8, 5),
        drawn * math.sqrt(2) / math.sqrt(8),
        given={"np.random.randn(8, 5)": drawn},
        rtol=1e-5,
        atol=1e-6,
    )


# ---- module-walk ---------------------------------------------------------------------------------


def parameter(value: float) -> Parameter:
    return Parameter(np.array([value]), device=DEVICE, dtype="float64")


class Inner(Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = parameter(1.0)
        self.register_buffer("mean", tensor([0.0], requires_grad=False))
        self.note = "no tensor"


class Outer(Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = parameter(2.0)
        self.inner = Inner()
        self.listed = [parameter(3.0), (Inner(), {"deep": parameter(4.0)})]
        self.again = self.inner
        self.same = self.first
        self.plain = tensor([5.0])


@pytest.mark.exercise("module-walk")
def test_parameters_are_found_in_order_and_once() -> None:
    names = [name for name, _ in Outer().named_parameters()]
    expected = ["first", "inner.weight", "listed.0", "listed.1.0.weight", "listed.1.1.deep"]
    mistakes = {
        "shared parameters appear twice": [*expected, "again.weight", "same"],
        "a plain Tensor is not a Parameter": [*expected, "plain"],
    }
    expect("the names of the parameters", names, expected, mistakes=mistakes)


@pytest.mark.exercise("module-walk")
def test_buffers_belong_to_the_state() -> None:
    found = list(Outer().state_dict())
    expected = [
        "first",
        "inner.weight",
        "inner.mean",
        "listed.0",
        "listed.1.0.weight",
        "listed.1.0.mean",
        "listed.1.1.deep",
    ]
    expect("the names in state_dict()", found, expected)
    model = Outer().eval()
    expect(
        "training of a module in a tuple in a list, after eval()",
        model.listed[1][0].training,
        False,
    )  # type: ignore[index]


# ---- layers --------------------------------------------------------------------------------------


@pytest.mark.exercise("linear")
def test_linear() -> None:
    layer = nn.Linear(3, 2, dtype="float64")
    weight, bias = layer.weight.numpy(), np.array([10.0, 20.0])
    layer.bias = tensor(bias.reshape(1, 2))
    given = {"x": X, "weight": weight, "bias": bias}
    expect("Linear(3, 2)(x)", layer(tensor(X)), X @ weight + bias, given=given)
    more = X.reshape(2, 2, 3)
    expect("of x (2, 2, 3)", layer(tensor(more)), more @ weight + bias)
    expect("of x (3,)", layer(tensor(X[0])), X[0] @ weight + bias)
    layer.bias = None
    expect("without bias", layer(tensor(X)), X @ weight)
    rule = "last axis must have in_features=3"
    with expect_error("Linear(3, 2) of x (3, 4)", ShapeError, rule):
        layer(tensor(X.T))


class Add(Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        return x + self.number


class Double(Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


@pytest.mark.exercise("compose")
def test_one_after_another_and_around() -> None:
    expect(
        "Sequential(Add(1), Double())(x)",
        nn.Sequential(Add(1), Double())(tensor(X)),
        (X + 1) * 2,
        given={"x": X},
        mistakes={"the last module is called first": X * 2 + 1},
    )
    expect("Sequential()(x)", nn.Sequential()(tensor(X)), X)
    expect("Residual(Double())(x)", nn.Residual(Double())(tensor(X)), X * 2 + X, given={"x": X})


@pytest.mark.exercise("dropout")
def test_dropout() -> None:
    layer, x = nn.Dropout(0.25), np.ones((4, 5))
    np.random.seed(0)
    kept = np.random.rand(4, 5) <= 0.75
    np.random.seed(0)
    mistakes = {
        "kept elements must be divided by 1 - p": kept * 1.0,
        "p is the probability of dropping, not of keeping": (~kept) / 0.75,
    }
    expect(
        "Dropout(0.25)(ones)",
        layer(tensor(x)),
        kept / 0.75,
        given={"kept": kept},
        mistakes=mistakes,
    )
    layer.eval()
    state = np.random.get_state()[2]
    expect("in evaluation", layer(tensor(x)), x)
    expect("in evaluation nothing is drawn", np.random.get_state()[2] == state, True)


# ---- normalisation -------------------------------------------------------------------------------


def normalised(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + eps), mean, var


@pytest.mark.exercise("normalise")
def test_normalisation_of_rows_and_of_channels() -> None:
    weight, bias, eps = np.array([1.0, 2.0, -1.0]), np.array([0.5, 0.0, 1.0]), 0.1
    for name, operation, axes in (
        ("layer_norm", accelerated.layer_norm, (1,)),
        ("batch_norm", accelerated.batch_norm, (0,)),
    ):
        y, mean, var = operation(X, weight, bias, eps)
        h, mu, spread = normalised(X, axes, eps)
        given = {"x": X, "weight": weight, "bias": bias, "eps": eps}
        unbiased = (X - mu) / np.sqrt(X.var(axes, ddof=1, keepdims=True) + eps) * weight + bias
        mistakes = {"the variance is the biased one, divided by the count": unbiased}
        expect(f"y of {name}", y, h * weight + bias, given=given, mistakes=mistakes)
        expect(f"mean of {name}", mean.reshape(-1), mu.reshape(-1))
        expect(f"variance of {name}", var.reshape(-1), spread.reshape(-1))
    far = np.array([[1e6, 1e6 + 1, 1e6 + 2]], dtype="float32")
    var = accelerated.layer_norm(far, np.ones(3, "float32"), np.zeros(3, "float32"), eps)[2]
    expect(
        "the variance of float32 numbers near 1e6",
        var,
        np.array([[2 / 3]]),
        rtol=1e-3,
        given={"x": far},
        mistakes={
            "mean(x*x) - mean(x)**2 cancels: subtract the mean first": (far * far).mean(
                1, keepdims=True
            )
            - far.mean(1, keepdims=True) ** 2
        },
    )


@pytest.mark.exercise("normalise-grad")
def test_gradients_of_layer_norm() -> None:
    weight, bias, eps = np.array([1.0, 2.0, -1.0]), np.zeros(3), 0.1
    grad = RNG.standard_normal(X.shape)
    _, mean, var = normalised(X, (1,), eps)
    found = accelerated.layer_norm_grad(grad, X, weight, mean, var, eps)

    def loss(x: Array, w: Array, b: Array) -> float:
        return float((grad * (normalised(x, (1,), eps)[0] * w + b)).sum())

    given = {"x": X, "weight": weight, "grad": grad}
    constant = {"mean and variance depend on x too": grad * weight / np.sqrt(var + eps)}
    for i, (name, point) in enumerate((("x", X), ("weight", weight), ("bias", bias))):
        wanted = np.zeros_like(point)
        for place in np.ndindex(*point.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [X, weight, bias]
                moved[i] = point.copy()
                moved[i][place] += step
                ends.append(loss(*moved))
            wanted[place] = (ends[0] - ends[1]) / 2e-6
        expect(
            f"the gradient by {name}",
            found[i],
            wanted,
            given=given,
            rtol=1e-5,
            atol=1e-7,
            mistakes=constant,
        )


# ---- optimisers ----------------------------------------------------------------------------------


@pytest.mark.exercise("sgd")
def test_sgd_step() -> None:
    p, g, v = np.array([1.0, -2.0]), np.array([0.5, 4.0]), np.array([0.1, 0.2])
    given = {"p": p.copy(), "grad": g.copy(), "velocity": v.copy(), "lr": 0.1}
    (new,) = accelerated.sgd_step([p], [g], [], 0.1, 0.0, 0.0, 0.5, False)
    expect(
        "without momentum, weight_decay=0.5",
        new,
        p - 0.1 * (g + 0.5 * p),
        given=given,
        mistakes={"weight decay is missing": p - 0.1 * g},
    )
    step = 0.9 * v + 0.75 * g
    (new,) = accelerated.sgd_step([p], [g], [v], 0.1, 0.9, 0.25, 0.0, False)
    expect("momentum 0.9, dampening 0.25", new, given["p"] - 0.1 * step, given=given)
    expect("the velocity, changed in place", v, step)
    v[:] = given["velocity"]
    (new,) = accelerated.sgd_step([p], [g], [v], 0.1, 0.9, 0.25, 0.0, True)
    expect("with nesterov", new, given["p"] - 0.1 * (g + 0.9 * step), given=given)
    expect("the parameter, which must not change", p, given["p"])
    expect("the gradient, which must not change", g, given["grad"])


@pytest.mark.exercise("sgd")
def test_sgd_goes_downhill() -> None:
    p = parameter(4.0)
    opt = optim.SGD([p], lr=0.1, momentum=0.9)
    for _ in range(300):
        p.grad = tensor(2 * (p.numpy() - 1.0), requires_grad=False)
        opt.step()
    expect("the minimum of (p - 1)**2 after 300 steps of SGD", p, np.array([1.0]), rtol=1e-3)


@pytest.mark.exercise("adam")
def test_adam_steps() -> None:
    for decoupled in (False, True):
        p, m, v = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
        want, wm, wv = p.copy(), m.copy(), v.copy()
        for step in (1, 2):
            g = np.array([0.5, 4.0]) * step
            (new,) = accelerated.adam_step(
                [p], [g], [m], [v], 0.1, 0.9, 0.99, 1e-8, 0.2, decoupled, step
            )
            old = want
            if decoupled:
                old, used = want * (1 - 0.1 * 0.2), g
            else:
                used = g + 0.2 * want
            wm, wv = 0.9 * wm + 0.1 * used, 0.99 * wv + 0.01 * used**2
            want = old - 0.1 * (wm / (1 - 0.9**step)) / (np.sqrt(wv / (1 - 0.99**step)) + 1e-8)
            mistakes = {
                "the moments lack the correction for their start at zero": old
                - 0.1 * wm / (np.sqrt(wv) + 1e-8)
            }
            expect(
                f"p after step {step}, decoupled={decoupled}",
                new,
                want,
                mistakes=mistakes,
                given={"p": p, "grad": g, "lr, betas, weight decay": "0.1, (0.9, 0.99), 0.2"},
            )
            p = np.asarray(new)
        expect("the first moment, changed in place", m, wm)
        expect("the second", v, wv)


@pytest.mark.exercise("clip-grad-norm")
def test_gradients_are_clipped_together() -> None:
    a, b, c = parameter(0.0), parameter(0.0), parameter(0.0)
    a.grad, b.grad = tensor([3.0]), tensor([4.0])
    kept = a.grad
    expect(
        "the norm before",
        float(optim.clip_grad_norm([a, b, c], 1.0)),
        5.0,
        given={"grads": "3, 4, None"},
    )
    expect(
        "a.grad",
        a.grad,
        np.array([3.0 / 5.000001]),
        given={"max_norm": 1.0},
        mistakes={"each gradient was clipped separately; the norm is joint": np.array([1.0])},
    )
    expect("the original gradient, which must not change", kept, np.array([3.0]))
    expect("a gradient that is None", c.grad, None)
    small = b.grad
    optim.clip_grad_norm([b], 100.0)
    expect("a small gradient stays the same object", b.grad is small, True)


@pytest.mark.exercise("schedules")
def test_rates_over_time() -> None:
    opt = optim.SGD([parameter(0.0)], lr=1.0)
    cosine = optim.CosineLR(opt, total_steps=4, min_lr=0.2)
    rates = [cosine.rate(step, 1.0) for step in (0, 1, 2, 4, 9)]
    half = (1 + math.cos(math.pi / 4)) / 2
    expect(
        "CosineLR from 1 to 0.2 in 4 steps, at steps 0, 1, 2, 4, 9",
        np.array(rates),
        np.array([1.0, 0.2 + 0.8 * half, 0.6, 0.2, 0.2]),
        mistakes={
            "after the last step the rate is constant": np.array(
                [1.0, 0.2 + 0.8 * half, 0.6, 0.2, 0.2 + 0.4 * (1 + math.cos(math.pi * 9 / 4))]
            )
        },
    )
    warm = optim.WarmUp(opt, total_steps=4, start_factor=0.2)
    rates = [warm.rate(step, 2.0) for step in (0, 1, 4, 9)]
    expect(
        "WarmUp from 0.2 * 2 to 2 in 4 steps, at 0, 1, 4, 9",
        np.array(rates),
        np.array([0.4, 0.8, 2.0, 2.0]),
    )


# ---- training ------------------------------------------------------------------------------------


def loss_and_gradients(x: Array, y: Array, w1: Array, w2: Array) -> tuple[float, Array, Array]:
    """Return loss and gradients of the network of nn_epoch, written with NumPy."""
    hidden = np.maximum(x @ w1, 0)
    logits = hidden @ w2
    e = np.exp(logits - logits.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    error = (p - np.eye(w2.shape[1])[y]) / len(x)
    by_w1 = x.T @ ((error @ w2.T) * (hidden > 0))
    return float(-np.log(p[np.arange(len(x)), y]).mean()), by_w1, hidden.T @ error


@pytest.mark.exercise("train-epoch")
def test_an_epoch_of_a_network() -> None:
    y = np.arange(7) % 3
    x = np.eye(3)[y] * 2 + RNG.standard_normal((7, 3)) * 0.3
    w1, w2 = RNG.standard_normal((3, 5)), RNG.standard_normal((5, 3))
    want1, want2 = w1, w2
    for rows in (slice(0, 4), slice(4, 7)):
        _, by_w1, by_w2 = loss_and_gradients(x[rows], y[rows], want1, want2)
        want1, want2 = want1 - 0.5 * by_w1, want2 - 0.5 * by_w2
    first, second = tensor(w1), tensor(w2)
    new1, new2 = nn_epoch(x, y, first, second, lr=0.5, batch=4)
    given = {"X": "7 rows", "batch": "4, so the second batch has 3 rows", "lr": 0.5}
    expect("W1 after an epoch", new1, want1, given=given, rtol=1e-5)
    expect("W2", new2, want2, given=given, rtol=1e-5)
    expect("the given W1, which must not change", first, w1)
    before = loss_and_gradients(x, y, w1, w2)[0]
    for _ in range(20):
        new1, new2 = nn_epoch(x, y, new1, new2, lr=0.5, batch=4)
    after = loss_and_gradients(x, y, new1.numpy(), new2.numpy())[0]
    expect(
        "the loss after 20 epochs is below a fifth of that before",
        after < before / 5,
        True,
        given={"before": before, "after": after},
    )
