"""The course's MLP with residual blocks on MNIST: the model, an epoch and the whole training.

Import it as ``apps.mlp_resnet`` or, with apps/ on the path, as ``mlp_resnet``. As a program it
trains on the files in ``data``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

import needle as ndl

if __package__:
    from .models import MLPResNet, ResidualBlock
    from .simple_ml import epoch_general_cifar10
else:
    from models import MLPResNet, ResidualBlock
    from simple_ml import epoch_general_cifar10

__all__ = ["MLPResNet", "ResidualBlock", "epoch", "train_mnist"]


def epoch(
    dataloader: Iterable[Any], model: ndl.nn.Module, opt: ndl.optim.Optimizer | None = None
) -> tuple[float, float]:
    """Return (error rate, mean loss) of one pass over the loader, which trains with an optimiser.

    Seeds NumPy's global generator with 4 first.
    """
    accuracy, loss = epoch_general_cifar10(dataloader, model, opt=opt)
    return 1 - accuracy, loss


def train_mnist(
    batch_size: int = 100,
    epochs: int = 10,
    optimizer: type[ndl.optim.Optimizer] = ndl.optim.Adam,
    lr: float = 0.001,
    weight_decay: float = 0.001,
    hidden_dim: int = 100,
    data_dir: str = "data",
) -> tuple[float, float, float, float]:
    """Return (training error, training loss, test error, test loss) after ``epochs`` epochs.

    data_dir: folder of MNIST's four files under their published names, gzipped.
    """
    np.random.seed(4)
    train, test = (
        ndl.data.MNISTDataset(
            os.path.join(data_dir, f"{name}-images-idx3-ubyte.gz"),
            os.path.join(data_dir, f"{name}-labels-idx1-ubyte.gz"),
        )
        for name in ("train", "t10k")
    )
    model = MLPResNet(28 * 28, hidden_dim)
    opt = optimizer(model.parameters(), lr=lr, weight_decay=weight_decay)
    training = ndl.data.DataLoader(train, batch_size, shuffle=True)
    history = [epoch(training, model, opt) for _ in range(epochs)]
    return *history[-1], *epoch(ndl.data.DataLoader(test, batch_size), model)


if __name__ == "__main__":
    print(train_mnist())
