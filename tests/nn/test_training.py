"""Training works: the loss falls, and the same seed gives the same losses."""

import numpy as np
import pytest

import needle as ndl
from needle import nn


def train(device, make_optimizer, steps=25):
    np.random.seed(0)
    model = nn.Sequential(
        nn.Conv(1, 4, 3, device=device),
        nn.BatchNorm2d(4, device=device),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(64, 3, device=device),
    )
    ids = np.arange(24) % 3
    images = np.random.randn(24, 1, 8, 8).astype("float32") * 0.3
    images[np.arange(24), 0, ids * 2] += 1.0  # the class is the index of the bright row
    x = ndl.Tensor(images, device=device, dtype="float32", requires_grad=False)
    optimizer, loss_of, losses = make_optimizer(model.parameters()), nn.CrossEntropyLoss(), []
    schedule = ndl.optim.CosineLR(optimizer, steps)
    for _ in range(steps):
        loss = loss_of(model(x), ids)
        optimizer.reset_grad()
        loss.backward()
        optimizer.clip_grad_norm(5.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.numpy().reshape(())))
    model.eval()
    right = model(x).numpy().argmax(1) == ids
    return losses, right.mean()


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda ps: ndl.optim.SGD(ps, lr=0.1, momentum=0.9),
        lambda ps: ndl.optim.SGD(ps, lr=0.05, momentum=0.9, nesterov=True),
        lambda ps: ndl.optim.Adam(ps, lr=0.02),
        lambda ps: ndl.optim.AdamW(ps, lr=0.02),
    ],
    ids=["sgd", "nesterov", "adam", "adamw"],
)
def test_the_loss_falls_and_runs_repeat(make_optimizer, device):
    losses, accuracy = train(device, make_optimizer)
    assert losses[-1] < 0.2 * losses[0] and accuracy == 1.0
    assert train(device, make_optimizer)[0] == losses
