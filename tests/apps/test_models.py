"""The models: found by name, of the published size, trainable on both devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from apps.models import MODELS, MLPResNet, ResNet9, build_model, find_model
from needle import nn
from needle.errors import UnknownNameError

ROOT = Path(__file__).resolve().parents[2]


def size(model: nn.Module) -> int:
    return sum(int(np.prod(p.shape)) for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "options", "parameters"),
    [
        ("lenet5", {}, 61_706),
        ("lenet5", {"in_channels": 3, "num_classes": 100}, 61_706 + 2 * 150 + 90 * 85),
        ("resnet9", {}, 431_946),
        ("mlp_resnet", {}, 78_500 + 3 * (5_050 + 100 + 5_100 + 200) + 1_010),
    ],
)
def test_sizes(name: str, options: dict[str, int], parameters: int) -> None:
    assert size(build_model(name, **options)) == parameters


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_step_lowers_the_loss(name: str, device: Any) -> None:
    np.random.seed(0)
    channels, (height, width) = 2, find_model(name).image_size
    model = build_model(name, in_channels=channels, num_classes=4, device=device)
    images = needle.Tensor(
        np.random.randn(6, channels, height, width), device=device, dtype="float32"
    )
    labels = needle.Tensor(np.arange(6) % 4, device=device, dtype="int64")
    optimizer = needle.optim.SGD(model.parameters(), lr=0.001)
    losses = []
    for _ in range(3):
        logits = model(images)
        assert tuple(logits.shape) == (6, 4)
        loss = nn.CrossEntropyLoss()(logits, labels)
        optimizer.reset_grad()
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
        losses.append(loss.numpy().item())
    assert losses[2] < losses[0]


def test_resnet9_is_made_in_forward_order() -> None:
    """A seed gives the course's numbers: each weight is drawn when the forward pass meets it."""
    np.random.seed(3)
    shapes = [tuple(p.shape) for p in ResNet9().parameters() if len(p.shape) > 1]
    convolutions = [(7, 7, 3, 16), (3, 3, 16, 32), *[(3, 3, 32, 32)] * 2, (3, 3, 32, 64)]
    convolutions += [(3, 3, 64, 128), *[(3, 3, 128, 128)] * 2]
    assert [s for s in shapes if len(s) == 4] == convolutions
    np.random.seed(3)
    first = nn.Conv(3, 16, 7, stride=4)
    np.random.seed(3)
    assert np.array_equal(ResNet9().parameters()[0].numpy(), first.weight.numpy())


def test_the_course_calls_them_by_position() -> None:
    assert size(ResNet9(needle.cpu(), "float32")) == 431_946
    small = MLPResNet(10, 8, 2, 3, nn.LayerNorm1d, 0.0)
    assert tuple(small(needle.Tensor(np.ones((2, 10)), device=needle.cpu())).shape) == (2, 3)


def test_unknown_model() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'lenet'; known: .*'lenet5'"):
        build_model("lenet")


def test_importable_without_the_folder_name() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT / 'apps'}"}
    code = "import models; print(models.build_model('lenet5'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and "LeNet5" in done.stdout, done.stderr
