"""Functions of the course's homework: reading MNIST, losses, epochs over images and text.

Import it as ``apps.simple_ml`` or, with apps/ on the path, as ``simple_ml``. All functions that
train or evaluate seed NumPy's global generator with 4 first and use the device of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import needle as ndl
from needle import data as ndl_data
from needle import nn
from needle.data.datasets.mnist import read_pair

Array = np.ndarray[Any, Any]
LossFunction = Callable[..., Any]
"""``nn.SoftmaxLoss``, another loss class, or an instance of one."""


# ---- arrays: the first homework ------------------------------------------------------------------


def parse_mnist(image_filename: str, label_filename: str) -> tuple[Array, Array]:
    """Return float32 images (N, 784) in 0..1 and uint8 labels (N,) from IDX files (also .gz)."""
    images, labels = read_pair(image_filename, label_filename)
    return images.reshape(len(images), -1).astype("float32") / np.float32(255), labels


def softmax_loss(Z: ndl.Tensor, y_one_hot: ndl.Tensor) -> ndl.Tensor:
    """Return the mean over rows of log(sum(exp(z))) - z_y for Z and y_one_hot, (N, C)."""
    total = ndl.summation(ndl.logsumexp(Z, axes=(1,))) - ndl.summation(Z * y_one_hot)
    return total / Z.shape[0]


def _softmax_loss_of_labels(Z: ndl.Tensor, y: Array) -> ndl.Tensor:
    one_hot = np.eye(Z.shape[1])[y.astype(np.int64)]
    return softmax_loss(Z, ndl.Tensor(one_hot, device=Z.device, dtype=Z.dtype, requires_grad=False))


def nn_epoch(
    X: Array, y: Array, W1: ndl.Tensor, W2: ndl.Tensor, lr: float = 0.1, batch: int = 100
) -> tuple[ndl.Tensor, ndl.Tensor]:
    """Return W1 and W2 after one epoch of gradient descent for the logits relu(X W1) W2.

    Batches are taken in the order of the rows; the given weights are not changed. X: (N, D). y:
    (N,) labels. W1: (D, H). W2: (H, C).
    """
    ### BEGIN YOUR SOLUTION [train-epoch]
    for start in range(0, len(X), batch):
        rows = ndl.Tensor(X[start : start + batch], device=W1.device, dtype=W1.dtype)
        logits = ndl.matmul(ndl.relu(ndl.matmul(rows, W1)), W2)
        _softmax_loss_of_labels(logits, y[start : start + batch]).backward()
        W1 = ndl.Tensor(W1.data - lr * W1.grad.data)
        W2 = ndl.Tensor(W2.data - lr * W2.grad.data)
    return W1, W2
    ### END YOUR SOLUTION


def loss_err(h: ndl.Tensor, y: Array) -> tuple[Array, float]:
    """Return the softmax loss, as an array, and the error rate of logits h (N, C)."""
    wrong = np.mean(h.numpy().argmax(axis=1) != y)
    return _softmax_loss_of_labels(h, y).numpy(), float(wrong)


# ---- images --------------------------------------------------------------------------------------


def epoch_general_cifar10(
    dataloader: Iterable[Any],
    model: nn.Module,
    loss_fn: LossFunction = nn.SoftmaxLoss,
    opt: ndl.optim.Optimizer | None = None,
) -> tuple[float, float]:
    """Return (accuracy, mean loss) of one pass over the loader, which trains with an optimiser."""
    np.random.seed(4)
    model.train(opt is not None)
    loss_of, device, score = _instance(loss_fn), _device(model), _Score()
    for X, y in dataloader:
        X, y = ndl.Tensor(X, device=device), ndl.Tensor(y, device=device)
        logits = model(X)
        loss = loss_of(logits, y)
        if opt is not None:
            _descend(opt, loss, clip=None)
        score.add(logits, y, loss)
    return score.result()


def train_cifar10(
    model: nn.Module,
    dataloader: Iterable[Any],
    n_epochs: int = 1,
    optimizer: type[ndl.optim.Optimizer] = ndl.optim.Adam,
    lr: float = 0.001,
    weight_decay: float = 0.001,
    loss_fn: LossFunction = nn.SoftmaxLoss,
) -> tuple[float, float]:
    """Return (accuracy, mean loss) of the last of ``n_epochs`` epochs of training."""
    np.random.seed(4)
    opt = optimizer(model.parameters(), lr=lr, weight_decay=weight_decay)
    history = [epoch_general_cifar10(dataloader, model, loss_fn, opt) for _ in range(n_epochs)]
    return history[-1]


def evaluate_cifar10(
    model: nn.Module, dataloader: Iterable[Any], loss_fn: LossFunction = nn.SoftmaxLoss
) -> tuple[float, float]:
    """Return (accuracy, mean loss) of the model in evaluation mode."""
    np.random.seed(4)
    return epoch_general_cifar10(dataloader, model, loss_fn)


# ---- text ----------------------------------------------------------------------------------------


def epoch_general_ptb(
    data: Array,
    model: nn.Module,
    seq_len: int = 40,
    loss_fn: LossFunction = nn.SoftmaxLoss,
    opt: ndl.optim.Optimizer | None = None,
    clip: float | None = None,
    device: Any = None,
    dtype: Any = "float32",
) -> tuple[float, float]:
    """Return (accuracy, mean loss) over all words of one pass, which trains with an optimiser.

    data: (rows, batch_size) from ``batchify``, processed in sequences of seq_len steps. The state
    is carried from one sequence to the next without its graph. clip: maximum norm of the gradient.
    """
    np.random.seed(4)
    model.train(opt is not None)
    loss_of, score = _instance(loss_fn), _Score()
    device, h = _device(model) if device is None else device, None
    for start in range(0, len(data) - 1, seq_len):
        x, y = ndl_data.get_batch(data, start, seq_len, device=device, dtype=dtype)
        logits, h = model(x, h)
        loss = loss_of(logits, y)
        if opt is not None:
            _descend(opt, loss, clip)
        h = tuple(each.detach() for each in h) if isinstance(h, tuple) else h.detach()
        score.add(logits, y, loss)
    return score.result()


def train_ptb(
    model: nn.Module,
    data: Array,
    seq_len: int = 40,
    n_epochs: int = 1,
    optimizer: type[ndl.optim.Optimizer] = ndl.optim.SGD,
    lr: float = 4.0,
    weight_decay: float = 0.0,
    loss_fn: LossFunction = nn.SoftmaxLoss,
    clip: float | None = None,
    device: Any = None,
    dtype: Any = "float32",
) -> tuple[float, float]:
    """Return (accuracy, mean loss) of the last of ``n_epochs`` epochs of training."""
    np.random.seed(4)
    opt = optimizer(model.parameters(), lr=lr, weight_decay=weight_decay)
    options = {"opt": opt, "clip": clip, "device": device, "dtype": dtype}
    history = [epoch_general_ptb(data, model, seq_len, loss_fn, **options) for _ in range(n_epochs)]
    return history[-1]


def evaluate_ptb(
    model: nn.Module,
    data: Array,
    seq_len: int = 40,
    loss_fn: LossFunction = nn.SoftmaxLoss,
    device: Any = None,
    dtype: Any = "float32",
) -> tuple[float, float]:
    """Return (accuracy, mean loss) of the model in evaluation mode."""
    np.random.seed(4)
    return epoch_general_ptb(data, model, seq_len, loss_fn, device=device, dtype=dtype)


# ---- shared by all epochs ------------------------------------------------------------------------


class _Score:
    """The number of correct answers and the sum of losses over rows."""

    def __init__(self) -> None:
        self.right, self.loss, self.rows = 0, 0.0, 0

    def add(self, logits: ndl.Tensor, y: ndl.Tensor, loss: ndl.Tensor) -> None:
        """Add a batch; ``loss`` is its mean loss."""
        rows = y.shape[0]
        self.right += int(np.sum(logits.numpy().argmax(axis=1) == y.numpy()))
        self.loss += float(loss.numpy().reshape(())) * rows
        self.rows += rows

    def result(self) -> tuple[float, float]:
        """Return (accuracy, mean loss)."""
        return self.right / self.rows, self.loss / self.rows


def _descend(opt: ndl.optim.Optimizer, loss: ndl.Tensor, clip: float | None) -> None:
    opt.reset_grad()
    loss.backward()
    if clip is not None:
        opt.clip_grad_norm(clip)
    opt.step()


def _instance(loss_fn: LossFunction) -> LossFunction:
    made: LossFunction = loss_fn() if isinstance(loss_fn, type) else loss_fn
    return made


def _device(model: nn.Module) -> Any:
    parameters = model.parameters()
    return parameters[0].device if parameters else None
