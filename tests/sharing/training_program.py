"""A program that trains LeNet-5 on a few images and prints its accuracy on the test set.

Arguments: digits or a folder with MNIST, learning rate, epochs, and a server's socket or "alone".
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import needle as ndl
from apps.models.small import LeNet5
from needle import nn
from needle.sharing import GlobalDataLoader

BATCH = 32


def data_set(where: str, train: bool) -> Any:
    """Return images (H, W, 1), and the transforms that make them 32 x 32 for the network."""
    if where == "digits":
        return ndl.data.Digits(train, layout="HWC"), [ndl.data.Resize((32, 32)), ndl.data.ToCHW()]
    found = ndl.data.MNIST(where, train, layout="HWC", dtype="uint8")
    return found, [ndl.data.Pad(2), ndl.data.ToFloat(), ndl.data.ToCHW()]


def accuracy(model: Any, where: str) -> float:
    """Return the accuracy on the test set."""
    dataset, transforms = data_set(where, False)
    options = {"transforms": transforms, "device": ndl.cpu()}
    right = total = 0
    model.eval()
    with ndl.no_grad():
        for images, labels in ndl.data.DataLoader(dataset, 250, **options):
            found = model(images).numpy().argmax(axis=1)
            right, total = right + int((found == labels.numpy()).sum()), total + len(found)
    return right / total


def train(where: str, rate: float, epochs: int, server: str) -> float:
    """Return the accuracy after so many epochs."""
    np.random.seed(1)
    model, loss_of = LeNet5(device=ndl.cpu()), nn.SoftmaxLoss()
    optimizer = ndl.optim.Adam(model.parameters(), lr=rate)
    dataset, transforms = data_set(where, True)
    options = {"shuffle": True, "seed": 0, "transforms": transforms, "device": ndl.cpu()}
    loader: Any
    if server == "alone":
        loader = ndl.data.DataLoader(dataset, BATCH, **options)
    else:
        loader = GlobalDataLoader(server, BATCH, **options)
    for epoch in range(epochs):
        # small last steps reduce the variance of the result
        optimizer.lr = rate * (1 - epoch / epochs)
        for images, labels in loader:
            loss = loss_of(model(images), labels)
            optimizer.reset_grad()
            loss.backward()
            optimizer.step()
    loader.close()
    return accuracy(model, where)


if __name__ == "__main__":
    print(train(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
