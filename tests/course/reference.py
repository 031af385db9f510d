"""Reference results in plain NumPy float64: layers, optimisers, convolution.

Written from the formulas and independent of needle; the tests of this folder compare with them.
Images are NCHW here unless a name says otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from needle.backend_selection import BACKEND

Array = Any

SINGLE = {"rtol": 2e-5, "atol": 2e-5}
"""The tolerance of float32 compared with float64, over a few hundred operations."""


def drawn(host: Array) -> Array:
    """Return a draw in the dtype of the mode: float32 for needle's arrays, float64 for NumPy's."""
    return np.asarray(host, "float32") if BACKEND == "nd" else np.asarray(host)


def softmax_loss(logits: Array, labels: Array) -> tuple[float, Array]:
    """Return the mean cross entropy and its gradient for the logits."""
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = shifted / shifted.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels]).mean()
    gradient = probabilities.copy()
    gradient[rows, labels] -= 1
    return float(loss), gradient / len(labels)


def digits(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Return images with one bright block per class, and noise."""
    random = np.random.RandomState(seed)
    y = random.randint(10, size=count).astype(np.uint8)
    X = random.rand(count, 100).astype("float32") * 0.3
    for row, label in enumerate(y):
        X[row, 10 * label : 10 * label + 10] += 0.5
    return X, y


def nn_epoch_by_hand(
    X: Array, y: Array, W1: Array, W2: Array, lr: float, batch: int
) -> tuple[Array, Array]:
    """Return the weights of relu(X W1) W2 after one epoch of gradient descent."""
    for start in range(0, len(X), batch):
        x, labels = X[start : start + batch], y[start : start + batch].astype(int)
        hidden = np.maximum(x @ W1, 0)
        _, slope = softmax_loss(hidden @ W2, labels)
        back = slope @ W2.T * (hidden > 0)
        W1, W2 = W1 - lr * x.T @ back, W2 - lr * hidden.T @ slope
    return W1, W2


def dampened_sgd(
    value: Array, gradients: list[Array], lr: float, momentum: float, weight_decay: float
) -> Array:
    """Do an SGD step: u = m u + (1 - m)(g + wd p); p -= lr u."""
    velocity = np.zeros_like(value)
    for gradient in gradients:
        velocity = momentum * velocity + (1 - momentum) * (gradient + weight_decay * value)
        value = value - lr * velocity
    return value


def adam(
    value: Array,
    gradients: list[Array],
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Array:
    """Do a step of bias-corrected Adam with L2 in the gradient and eps outside the root."""
    first, second = np.zeros_like(value), np.zeros_like(value)
    for t, gradient in enumerate(gradients, 1):
        total = gradient + weight_decay * value
        first = beta1 * first + (1 - beta1) * total
        second = beta2 * second + (1 - beta2) * total**2
        corrected, spread = first / (1 - beta1**t), second / (1 - beta2**t)
        value = value - lr * corrected / (np.sqrt(spread) + eps)
    return value


def conv_nhwc(x: Array, w: Array, stride: int, padding: int) -> Array:
    """Return the convolution of x (N, H, W, I) and w (K, K, I, O) as a sum over the taps."""
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    kernel = w.shape[0]
    high = (x.shape[1] - kernel) // stride + 1
    wide = (x.shape[2] - kernel) // stride + 1
    out = np.zeros((x.shape[0], high, wide, w.shape[3]))
    for i in range(kernel):
        for j in range(kernel):
            window = x[:, i : i + stride * high : stride, j : j + stride * wide : stride]
            out += window @ w[i, j]
    return out


def batch_norm_rows(x: Array, eps: float = 1e-5) -> tuple[Array, Array, Array]:
    """Return x (N, C) normalised over N, with its mean and biased variance."""
    mean, var = x.mean(0), x.var(0)
    return (x - mean) / np.sqrt(var + eps), mean, var


def batch_norm_images(x: Array, eps: float = 1e-5) -> tuple[Array, Array, Array]:
    """Return x (N, C, H, W) normalised over N, H and W."""
    rows = x.transpose(0, 2, 3, 1).reshape(-1, x.shape[1])
    y, mean, var = batch_norm_rows(rows, eps)
    shape = (x.shape[0], x.shape[2], x.shape[3], x.shape[1])
    return y.reshape(shape).transpose(0, 3, 1, 2), mean, var
