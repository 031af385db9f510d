"""The work that the benchmark times: a row for each piece, the same for every contestant."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

import needle
from apps.models import LeNet5
from needle import nn

Step = Callable[[], Any]

torch: Any = None
if importlib.util.find_spec("torch") is not None:
    import torch


def contestants() -> list[str]:
    """Return needle's usable devices, then PyTorch if it is installed."""
    devices = [d.name for d in needle.all_devices() if d.enabled() and d.name != "cuda"]
    return sorted(devices) + (["torch"] if torch is not None else [])


def tensor(contestant: str, array: Any) -> Any:
    """Return the array as a tensor without gradient."""
    if contestant == "torch":
        return torch.from_numpy(array)
    return needle.Tensor(
        array, device=needle.device(contestant), dtype=array.dtype.name, requires_grad=False
    )


def elementwise(contestant: str) -> Step:
    """Return a call of relu(a * b + a) on 4 million numbers."""
    a, b = (tensor(contestant, random(2000, 2000, seed=seed)) for seed in (0, 1))
    relu = torch.relu if contestant == "torch" else needle.relu
    return lambda: relu(a * b + a)


def matmul(contestant: str) -> Step:
    """Return a call of a product of two 512 x 512 matrices."""
    a, b = (tensor(contestant, random(512, 512, seed=seed)) for seed in (0, 1))
    return lambda: a @ b


def conv2d(contestant: str) -> Step:
    """Return a convolution of 32 images of 32 x 32 x 32 with 64 filters of 3 x 3."""
    x = tensor(contestant, random(32, 32, 32, 32))
    weight = tensor(contestant, random(64, 32, 3, 3))
    if contestant == "torch":
        return lambda: torch.nn.functional.conv2d(x, weight, padding=1)
    return lambda: needle.conv2d(x, weight, padding=1)


def lenet_step(contestant: str) -> Step:
    """Return a training step of LeNet-5 on 64 images: forward, backward and SGD."""
    images = tensor(contestant, random(64, 1, 32, 32))
    labels = tensor(contestant, np.arange(64) % 10)
    np.random.seed(0)
    if contestant == "torch":
        model = importlib.import_module("apps.bench.against.torch_models").lenet5()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        loss_function, reset = torch.nn.CrossEntropyLoss(), optimizer.zero_grad
    else:
        model = LeNet5(device=needle.device(contestant))
        optimizer = needle.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, dampening=0.0)
        loss_function, reset = nn.CrossEntropyLoss(), optimizer.reset_grad

    def step() -> None:
        loss = loss_function(model(images), labels)
        reset()
        loss.backward()
        optimizer.step()

    return step


def random(*shape: int, seed: int = 0) -> Any:
    """Return float32 normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


WORK: dict[str, Callable[[str], Step]] = {
    "relu(a * b + a), 2000 x 2000": elementwise,
    "a @ b, 512 x 512": matmul,
    "conv2d, 32 x 32 x 32 x 32 by 64 of 3 x 3": conv2d,
    "LeNet-5 training step, 64 images": lenet_step,
}
