"""A small network and its training step, eager or captured, for devices with recorded graphs."""

from collections.abc import Callable
from typing import Any

import numpy as np

import needle
from needle import nn


class Training:
    """A network with all operations that need temporaries. options: of ``needle.capture``."""

    def __init__(
        self,
        device: Any,
        captured: bool,
        noise: nn.Module | None = None,
        adam: bool = False,
        images: tuple[int, ...] = (4, 1, 6, 6),
        **options: Any,
    ) -> None:
        np.random.seed(0)
        self.device, self.images = device, images
        self.model = nn.Sequential(
            nn.Conv(1, 3, 3, device=device),
            nn.ReLU(),
            nn.BatchNorm2d(3, device=device),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.25) if noise is None else noise,
            nn.Linear(3 * images[2] * images[3] // 4, 10, device=device),
        )
        parameters = self.model.parameters()
        self.optimizer: Any = (
            needle.optim.Adam(parameters, lr=0.01)
            if adam
            else needle.optim.SGD(parameters, lr=0.05, momentum=0.9)
        )
        self.loss = nn.SoftmaxLoss()
        state = [self.model, self.optimizer]
        self.step: Any = (
            needle.capture(self.train, state=state, **options) if captured else self.train
        )

    def train(self, x: needle.Tensor, y: needle.Tensor) -> needle.Tensor:
        self.optimizer.reset_grad()
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def steps(self, count: int, between: Callable[[], Any] = list) -> list[needle.Tensor]:
        """Return the losses, kept on the device."""
        np.random.seed(1)
        found, disturbing = [], []
        for _ in range(count):
            images = np.random.rand(*self.images).astype("float32")
            x = needle.Tensor(images, device=self.device)
            y = needle.Tensor(np.random.randint(0, 10, len(images)), device=self.device)
            found.append(self.step(x, y))
            disturbing.append(between())
        return found

    def state(self) -> list[np.ndarray]:
        grads = [p.grad.numpy() for p in self.model.parameters()]
        return [*(value.numpy() for value in self.model.state_dict().values()), *grads]


def assert_same(a: Training, b: Training, losses: Any) -> None:
    """Assert that two runs with these losses have the same bits."""
    for one, other in zip(*losses, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    for left, right in zip(a.state(), b.state(), strict=True):
        np.testing.assert_array_equal(left, right)
