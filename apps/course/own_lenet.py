"""``python -m apps.course.own_lenet``: train a LeNet with this tree's code.

It prints one line of JSON with the filters of the first layer (6, 5, 5), the losses, the test
accuracy, a digit and its feature maps. If the training met an empty exercise, the line has only
``open``, the tag of this exercise. ``portrait`` starts the program in a process with the NumPy
backend, which needs no compiler.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

import needle
from apps.models.small import LeNet5
from needle import data, nn, optim

from .outcome import open_tag

BATCHES, BATCH, SECONDS = 400, 32, 12.0
"""The training ends after BATCHES batches or SECONDS seconds, whichever comes first.

The limit of time is for a tree without compiled kernels, which is slow."""
SHOWN = 3
"""The test sample whose feature maps are shown."""


def enlarged(images: Any) -> Any:
    """Return 8 x 8 images enlarged to LeNet's 32 x 32 by nearest-neighbour upsampling."""
    return np.asarray(images, dtype="float32").repeat(4, axis=2).repeat(4, axis=3)


def trained(batches: int = BATCHES, seconds: float = SECONDS) -> dict[str, Any]:
    """Train for a number of batches or seconds; return the values that the page shows."""
    np.random.seed(0)
    (images, labels), (tests, wanted) = data.Digits(train=True)[:], data.Digits(train=False)[:]
    x, y = enlarged(images), np.asarray(labels)
    losses: list[float] = []
    model, loss_of = LeNet5(), nn.SoftmaxLoss()
    optimiser = optim.Adam(model.parameters(), lr=3e-3)
    order, begun = np.random.default_rng(0), time.perf_counter()
    while len(losses) < batches and time.perf_counter() - begun < seconds:
        rows = order.choice(len(x), BATCH, replace=False)
        optimiser.reset_grad()
        loss = loss_of(model(constant(x[rows])), constant(y[rows]))
        loss.backward()
        optimiser.step()
        losses.append(round(float(loss.numpy()), 4))
    model.eval()
    found = model(constant(enlarged(tests))).numpy().argmax(axis=1)
    weights = next(p.numpy() for p in model.parameters() if len(p.shape) == 4)  # (5, 5, 1, 6)
    filters = weights[:, :, 0, :].transpose(2, 0, 1)
    return {
        "filters": filters.round(4).tolist(),
        "losses": losses,
        "accuracy": float((found == np.asarray(wanted)).mean()),
        "digit": np.asarray(tests)[SHOWN, 0].round(3).tolist(),
        "maps": answers_of(filters, enlarged(tests)[SHOWN, 0]).round(3).tolist(),
    }


def constant(values: Any) -> needle.Tensor:
    """Return values as a tensor without a gradient."""
    return needle.Tensor(values, requires_grad=False)


def answers_of(filters: Any, image: Any) -> Any:
    """Return the feature maps (F, 14, 14) of filters (F, 5, 5) and an image (32, 32).

    They are the output of convolution, ReLU and 2 x 2 max pooling.
    """
    windows = np.lib.stride_tricks.sliding_window_view(image, filters.shape[1:])
    answers = np.maximum(np.einsum("hwij,fij->fhw", windows, filters), 0)
    return answers.reshape(len(filters), 14, 2, 14, 2).max(axis=(2, 4))


def main() -> None:
    """Print the result, or the open exercise that stopped the training."""
    try:
        found = trained()
    except NotImplementedError as error:
        tag = open_tag(error)
        if not tag:
            raise
        found = {"open": tag}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
