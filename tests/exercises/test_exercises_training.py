"""Part 3 of the course: normalisation, optimisers and training."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from by_hand import numerical, outcome, softmax_of
from test_exercises_nn import RNG, Array, X, parameter
from toy_graph import tensor

from apps.course.compare import expect
from apps.simple_ml import nn_epoch
from needle import accelerated, optim

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
        mistakes = {
            "the variance is the biased one, divided by the count": unbiased,
            "eps is missing": (X - mu) / np.sqrt(spread) * weight + bias,
            "eps stands under the root": (X - mu) / (np.sqrt(spread) + eps) * weight + bias,
            "the root is missing: divide by the standard deviation": (X - mu)
            / (spread + eps)
            * weight
            + bias,
            "weight is missing": h + bias,
            "bias is missing": h * weight,
            "the moments are those of all numbers: use axes": normalised(X, (0, 1), eps)[0] * weight
            + bias,
        }
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
@pytest.mark.parametrize("name", ["layer_norm", "batch_norm"])
def test_gradients_of_normalisation(name: str) -> None:
    axes = (1,) if name == "layer_norm" else (0,)
    weight, bias, eps = np.array([1.0, 2.0, -1.0]), np.zeros(3), 0.1
    grad = RNG.standard_normal(X.shape)
    h, mean, var = normalised(X, axes, eps)
    function = accelerated.layer_norm_grad if axes == (1,) else accelerated.batch_norm_grad
    found = function(grad, X, weight, mean, var, eps)

    def moved(i: int) -> Callable[[Array], Array]:
        """Return the layer as a function of x, weight or bias alone."""

        def y(point: Array) -> Array:
            x, w, b = (point if i == j else each for j, each in enumerate((X, weight, bias)))
            return normalised(x, axes, eps)[0] * w + b

        return y

    def by_x(g: Array, deviation: Array, h: Array, average: Callable[..., Array]) -> Array:
        total = average(g, axes, keepdims=True) + h * average(g * h, axes, keepdims=True)
        return (g - total) / deviation

    given = {"x": X, "weight": weight, "grad": grad}
    deviation, bare, g = np.sqrt(var + eps), np.sqrt(var), grad * weight
    other = (1 - axes[0],)
    mistakes = [
        {
            "mean and variance depend on x too": g / deviation,
            "the variance depends on x too": (g - g.mean(axes, keepdims=True)) / deviation,
            "weight is missing": by_x(grad, deviation, h, np.mean),
            "eps is missing": by_x(g, bare, (X - mean) / bare, np.mean),
            "means over the axes, not sums": by_x(g, deviation, h, np.sum),
            "the root is missing: divide by the standard deviation": by_x(
                g, var + eps, (X - mean) / (var + eps), np.mean
            ),
            "the means are over the wrong axis: use axes": (
                g - g.mean(other, keepdims=True) - h * (g * h).mean(other, keepdims=True)
            )
            / deviation,
        },
        {
            "y depends on the weight by the normalised x, not by x": (grad * X).sum(0),
            "a sum over all axes except the last": (grad * h).sum(1),
        },
        {
            "a sum over all axes except the last": grad.sum(1),
        },
    ]
    for i, (variable, point) in enumerate((("x", X), ("weight", weight), ("bias", bias))):
        expect(
            f"the gradient of {name} by {variable}",
            found[i],
            numerical(moved(i), point, grad),
            given=given,
            rtol=1e-5,
            atol=1e-7,
            mistakes=mistakes[i],
        )


# ---- optimisers ----------------------------------------------------------------------------------


@pytest.mark.exercise("sgd")
def test_sgd_step() -> None:
    p, g, v = np.array([1.0, -2.0]), np.array([0.5, 4.0]), np.array([0.1, 0.2])
    given = {"p": p.copy(), "grad": g.copy(), "velocity": v.copy(), "lr": 0.1}
    old, slope, before = p.copy(), g.copy(), v.copy()
    (new,) = accelerated.sgd_step([p], [g], [], 0.1, 0.0, 0.0, 0.5, False)
    changed = {"the parameter was changed in place; return a new array": p.copy()}
    expect("p afterwards, which must not change", p, old, mistakes=changed)
    changed = {"the gradient was changed in place by the weight decay": g.copy()}
    expect("grad afterwards, which must not change", g, slope, mistakes=changed)
    mistakes = {
        "weight decay is missing": old - 0.1 * slope,
        "the step goes along the gradient, not against it": old + 0.1 * (slope + 0.5 * old),
        "the learning rate is missing": old - (slope + 0.5 * old),
    }
    right = old - 0.1 * (slope + 0.5 * old)
    expect("without momentum, weight_decay=0.5", new, right, given=given, mistakes=mistakes)
    step = 0.9 * before + 0.75 * slope
    (new,) = accelerated.sgd_step([p], [g], [v], 0.1, 0.9, 0.25, 0.0, False)
    mistakes = {
        "dampening is missing: (1 - dampening) * g": old - 0.1 * (0.9 * before + slope),
        "momentum is missing": old - 0.1 * slope,
    }
    right = old - 0.1 * step
    expect("momentum 0.9, dampening 0.25", new, right, given=given, mistakes=mistakes)
    kept = {"the velocity must be updated in place: velocity[...] = ...": before}
    expect("the velocity, changed in place", v, step, mistakes=kept)
    v[:] = before
    (new,) = accelerated.sgd_step([p], [g], [v], 0.1, 0.9, 0.25, 0.0, True)
    mistakes = {
        "nesterov was not looked at": old - 0.1 * step,
    }
    right = old - 0.1 * (slope + 0.9 * step)
    expect("with nesterov", new, right, given=given, mistakes=mistakes)
    expect("p afterwards, which must not change", p, old)
    expect("grad afterwards, which must not change", g, slope)


@pytest.mark.exercise("adam")
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_steps(decoupled: bool) -> None:
    p, m, v = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for step in (1, 2):
        g, old, wm, wv = np.array([0.5, 4.0]) * step, p.copy(), m.copy(), v.copy()
        given = {"p": old, "grad": g.copy(), "first moment": wm, "second moment": wv}
        given["lr, betas, eps, weight decay"] = "0.1, (0.9, 0.99), 0.1, 0.2"
        (new,) = accelerated.adam_step(
            [p], [g], [m], [v], 0.1, 0.9, 0.99, 0.1, 0.2, decoupled, step
        )
        used = g if decoupled else g + 0.2 * old
        start = old * (1 - 0.1 * 0.2) if decoupled else old
        wm, wv = 0.9 * wm + 0.1 * used, 0.99 * wv + 0.01 * used**2
        mean, spread = wm / (1 - 0.9**step), wv / (1 - 0.99**step)
        later = wm / (1 - 0.9 ** (step + 1)), wv / (1 - 0.99 ** (step + 1))
        root = np.sqrt(spread)
        mistakes = {
            "the moments lack the correction for their start at zero": start
            - 0.1 * wm / (np.sqrt(wv) + 0.1),
            "eps is added to the root, not under it": start - 0.1 * mean / np.sqrt(spread + 0.1),
            "eps is missing": start - 0.1 * mean / root,
            "the root is missing": start - 0.1 * mean / (spread + 0.1),
            "the step goes along the gradient, not against it": start + 0.1 * mean / (root + 0.1),
            "step counts from 1: beta ** step": start - 0.1 * later[0] / (np.sqrt(later[1]) + 0.1),
        }
        if decoupled:
            mistakes["weight decay is missing: p is multiplied by 1 - lr * weight_decay"] = (
                old - 0.1 * mean / (root + 0.1)
            )
            mistakes["lr multiplies weight_decay"] = old * 0.8 - 0.1 * mean / (root + 0.1)
        what = f"p after step {step}, decoupled={decoupled}"
        changed = {"the parameter was changed in place; return a new array": p.copy()}
        expect("p afterwards, which must not change", p, old, mistakes=changed)
        kept = {
            "the moments must be updated in place: first[...] = ...": given["first moment"],
        }
        if decoupled:
            text = "decoupled was not looked at: weight decay is not part of the gradient"
            kept[text] = 0.9 * given["first moment"] + 0.1 * (g + 0.2 * old)
        else:
            text = "weight decay is missing: it is part of the gradient"
            kept[text] = 0.9 * given["first moment"] + 0.1 * g
        expect("the first moment", m, wm, given=given, mistakes=kept)
        kept = {
            "the moments must be updated in place: second[...] = ...": given["second moment"],
            "the second moment needs the square of the gradient": 0.99 * given["second moment"]
            + 0.01 * used,
        }
        expect("the second moment", v, wv, given=given, mistakes=kept)
        right = start - 0.1 * mean / (root + 0.1)
        expect(what, new, right, given=given, mistakes=mistakes)
        p = np.asarray(new)


@pytest.mark.exercise("clip-grad-norm")
def test_gradients_are_clipped_together() -> None:
    a, b, c = parameter(0.0), parameter(0.0), parameter(0.0)
    a.grad, b.grad = tensor([3.0]), tensor([4.0])
    kept = a.grad
    given = {"grads": "3, 4", "max_norm": 100.0}
    norm = float(optim.clip_grad_norm([a, b], 100.0))
    mistakes = {
        "the root is missing": 25.0,
    }
    expect("the norm that is returned", norm, 5.0, given=given, mistakes=mistakes)
    grown = {"gradients below max_norm are not scaled up to it": np.array([60.0])}
    expect("a.grad, below max_norm", a.grad, np.array([3.0]), mistakes=grown, rtol=1e-5)
    expect("a.grad is the same object as before", a.grad is kept, True)
    given = {"grads": "3, 4, None", "max_norm": 1.0}
    norm = outcome(lambda: float(optim.clip_grad_norm([a, b, c], 1.0)), AttributeError, TypeError)
    mistakes = {"the norm before clipping must be returned, not the one after": 1.0}
    if isinstance(norm, str):
        mistakes = {"a gradient may be None: leave it out": norm}
    expect("the norm that is returned", norm, 5.0, given=given, mistakes=mistakes)
    changed = {"the gradient was changed in place; replace it": kept.numpy()}
    expect("the original gradient of a", kept, np.array([3.0]), mistakes=changed)
    mistakes = {
        "each gradient was clipped separately; the norm is joint": np.array([1.0]),
        "nothing was clipped": np.array([3.0]),
    }
    right = np.array([3.0 / 5.000001])
    expect("a.grad", a.grad, right, given=given, mistakes=mistakes)
    expect("a gradient that is None", c.grad, None)
    tiny = parameter(0.0)
    tiny.grad = tensor([4e-6])
    optim.clip_grad_norm([tiny], 1e-6)
    plain = {"1e-6 is missing in the factor max_norm / (norm + 1e-6)": np.array([1e-6])}
    what = "the gradient 4e-6 clipped to 1e-6"
    expect(what, tiny.grad, np.array([0.8e-6]), mistakes=plain, atol=1e-12)
    b.grad = tensor([math.nan])
    a.grad = tensor([3.0])
    optim.clip_grad_norm([a, b], 1.0)
    hidden = {"the norm is NaN, and a comparison with NaN is false": np.array([3.0])}
    expect("a.grad, if b.grad is NaN", a.grad, np.array([math.nan]), mistakes=hidden)


@pytest.mark.exercise("schedules")
def test_rates_over_time() -> None:
    opt = optim.SGD([parameter(0.0)], lr=1.0)
    cosine = optim.CosineLR(opt, total_steps=4, min_lr=0.2)
    rates = [cosine.rate(step, 1.0) for step in (0, 1, 2, 4, 9)]
    half = (1 + math.cos(math.pi / 4)) / 2
    shares = np.array([0.0, 0.25, 0.5, 1.0, 1.0])
    expect(
        "CosineLR from 1 to 0.2 in 4 steps, at steps 0, 1, 2, 4, 9",
        np.array(rates),
        np.array([1.0, 0.2 + 0.8 * half, 0.6, 0.2, 0.2]),
        mistakes={
            "after the last step the rate is constant": np.array(
                [1.0, 0.2 + 0.8 * half, 0.6, 0.2, 0.2 + 0.4 * (1 + math.cos(math.pi * 9 / 4))]
            ),
            "pi is missing: half a cosine goes from 0 to pi": 0.2 + 0.4 * (1 + np.cos(shares)),
            "a straight line, not a cosine": 1.0 - 0.8 * shares,
            "from the end to the start: the rate must fall": 0.2
            + 0.4 * (1 - np.cos(shares * math.pi)),
        },
    )
    warm = optim.WarmUp(opt, total_steps=4, start_factor=0.2)
    rates = [warm.rate(step, 2.0) for step in (0, 1, 4, 9)]
    expect(
        "WarmUp from 0.2 * 2 to 2 in 4 steps, at 0, 1, 4, 9",
        np.array(rates),
        np.array([0.4, 0.8, 2.0, 2.0]),
        mistakes={
            "after the last step the rate is constant": np.array([0.4, 0.8, 2.0, 4.0]),
            "the rate begins at start_factor * base_lr, not at 0": np.array([0.0, 0.5, 2.0, 2.0]),
        },
    )


# ---- training ------------------------------------------------------------------------------------


def gradients_of(
    x: Array, y: Array, w1: Array, w2: Array, relu: bool = True
) -> tuple[Array, Array]:
    """Return the gradients of the network of nn_epoch, written with NumPy."""
    hidden = np.maximum(x @ w1, 0 if relu else -np.inf)
    logits = hidden @ w2
    error = (softmax_of(logits) - np.eye(w2.shape[1])[y]) / len(x)
    by_w1 = x.T @ ((error @ w2.T) * ((hidden > 0) | (not relu)))
    return by_w1, hidden.T @ error


@pytest.mark.exercise("train-epoch")
def test_an_epoch_of_a_network() -> None:
    y = np.arange(7) % 3
    x = np.eye(3)[y] * 2 + RNG.standard_normal((7, 3)) * 0.3
    w1, w2 = RNG.standard_normal((3, 5)), RNG.standard_normal((5, 3))
    want1, want2 = w1, w2
    for rows in (slice(0, 4), slice(4, 7)):
        by_w1, by_w2 = gradients_of(x[rows], y[rows], want1, want2)
        want1, want2 = want1 - 0.5 * by_w1, want2 - 0.5 * by_w2
    first, second = tensor(w1), tensor(w2)
    one, all_rows, stale = (
        gradients_of(x[rows], y[rows], w1, w2)[0]
        for rows in (slice(0, 4), slice(0, 7), slice(4, 7))
    )
    mistakes = {
        "the last batch is missing: it may be shorter": w1 - 0.5 * one,
        "all rows were one batch": w1 - 0.5 * all_rows,
        "each batch starts from the weights that the one before has made": w1 - 0.5 * (one + stale),
    }
    for text, lr, relu in (
        ("the step goes along the gradient, not against it", -0.5, True),
        ("the learning rate is not used", 1.0, True),
        ("relu is missing: the logits are relu(X W1) W2", 0.5, False),
    ):
        moved1, moved2 = w1, w2
        for rows in (slice(0, 4), slice(4, 7)):
            by_w1, by_w2 = gradients_of(x[rows], y[rows], moved1, moved2, relu)
            moved1, moved2 = moved1 - lr * by_w1, moved2 - lr * by_w2
        mistakes[text] = moved1
    new1, new2 = nn_epoch(x, y, first, second, lr=0.5, batch=4)
    changed = {"the given weights were changed; return new ones": first.numpy()}
    expect("the given W1, which must not change", first, w1, mistakes=changed)
    expect("the type of the new W1", type(new1).__name__, "Tensor")
    given = {"X": "7 rows", "batch": "4, so the second batch has 3 rows", "lr": 0.5}
    expect("W1 after an epoch", new1, want1, given=given, rtol=1e-5, mistakes=mistakes)
    same = {"W2 has not changed": w2}
    expect("W2 after an epoch", new2, want2, given=given, rtol=1e-5, mistakes=same)
    expect("the given W2, which must not change", second, w2)
