"""Reference results in NumPy float64: a loss, an epoch of a network, images.

Written from the formulas and independent of needle; the tests of this folder compare with them.
"""

from typing import Any

import numpy as np

from needle.backend_selection import BACKEND

Array = Any


def drawn(host: Array) -> Array:
    """Return a draw in the mode's dtype: float32 with needle's arrays, float64 with NumPy's."""
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
