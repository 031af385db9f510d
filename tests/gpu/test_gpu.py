"""Run whole programs on a GPU: gradients, augmentation, loading, training, memory.

``make test-cuda`` runs them on a GPU after the conformance suite. Without a GPU, ``make test-all``
runs them on the emulated one, with fewer steps.
"""

from typing import Any

import numpy as np
import pytest

import needle
from apps.models import build_model
from needle import data, nn
from needle.backend_selection import BACKEND
from needle.data import transforms as T
from needle.testing import check_gradients
from tests.gpu.place import Place
from tests.small_training import Training

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="plain NumPy arrays have no backends")


def loss_of(kernel: Any, x: Any) -> Any:
    y = needle.ops.conv2d(x, kernel, stride=2, padding=1)
    y = needle.ops.max_pool2d(needle.tanh(y), 2)
    labels = needle.Tensor(np.array([1, 0]), device=x.device)
    return nn.SoftmaxLoss()(y.reshape((2, y.shape[1] * y.shape[2] * y.shape[3])), labels)


def test_gradients(place: Place) -> None:
    random = np.random.default_rng(0)
    kernel, x = random.standard_normal((3, 2, 3, 3)), random.standard_normal((2, 2, 8, 8))
    check_gradients(loss_of, kernel, x, device=place.device)
    check_gradients(
        lambda a, b: (a @ b).exp().sum(), kernel[0, 0], x[0, 0, :3], device=place.device
    )


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_augmented_batches_are_the_cpus(place: Place, dtype: str) -> None:
    images = np.random.default_rng(1).integers(0, 256, (12, 20, 17, 3)).astype(np.uint8)
    chain = [
        T.RandomCrop(2, fill=1.0),
        T.RandomFlipHorizontal(),
        T.RandomAffine(20.0, 0.1, (0.8, 1.2), 5.0),
        T.RandomResizedCrop((14, 15)),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.Cutout(4),
        T.ToFloat(),
        T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),
        T.ToCHW(),
    ]
    if dtype == "float32":
        images = (images / np.float32(255)).astype(np.float32)
    found = []
    for augment, workers in (("worker", 0), ("device", 0), ("device", 2)):
        with data.DataLoader(
            data.ArrayDataset(images, np.arange(12)),
            5,
            shuffle=True,
            seed=3,
            num_workers=workers,
            transforms=chain,
            augment=augment,
            device=place.device,
        ) as loader:
            found.append([[field.numpy() for field in batch] for batch in loader])
    for other in found[1:]:
        for ours, theirs in zip(other, found[0], strict=True):
            for a, b in zip(ours, theirs, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)


def test_a_training_is_the_cpus(place: Place) -> None:
    run, wanted = (Training(each, captured=False) for each in (place.device, needle.cpu_numpy()))
    losses, want_losses = ([loss.item() for loss in each.steps(2)] for each in (run, wanted))
    assert losses == pytest.approx(want_losses, rel=1e-5)
    for got, want in zip(run.state(), wanted.state(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


class Block(nn.Module):
    """ResNet's residual block with stride two."""

    def __init__(self, channels: int, device: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1, bias=False, device=device)
        self.bn = nn.BatchNorm2d(channels, activation="relu", device=device)
        self.shortcut = nn.Conv2d(channels, channels, 1, stride=2, bias=False, device=device)

    def forward(self, x: needle.Tensor) -> needle.Tensor:
        return self.bn(self.conv(x), self.shortcut(x))


def resnet_losses(device: Any, whole: bool) -> list[float]:
    """Return the losses of a few steps of ResNet-20 at CIFAR's size (``whole``) or a small net."""
    np.random.seed(0)
    size, batch = (32, 64) if whole else (6, 4)
    model = (
        build_model("resnet20", device=device)
        if whole
        else nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, device=device),
            nn.ReLU(),
            Block(4, device),
            nn.Flatten(),
            nn.Linear(4 * 9, 10, device=device),
        )
    )
    optimizer = needle.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = np.random.rand(batch, 3, size, size).astype("float32")
    x = needle.Tensor(images, device=device)
    y = needle.Tensor(np.arange(batch) % 10, device=device)
    losses = []
    for _ in range(10 if whole else 2):
        loss = nn.SoftmaxLoss()(model(x), y)
        optimizer.reset_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.numpy()))
    return losses


def test_a_resnet_trains_as_on_the_cpu(place: Place) -> None:
    """After ten steps losses agree to 1e-3: steps amplify the rounding of reordered sums."""
    whole = place.device.name == "cuda"
    reference = needle.cpu() if needle.cpu().enabled() else needle.cpu_numpy()
    losses, want = resnet_losses(place.device, whole), resnet_losses(reference, whole)
    assert losses == pytest.approx(want, rel=1e-3)
    assert losses[0] == pytest.approx(want[0], rel=1e-5)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_steps_leave_no_memory_behind(place: Place, captured: bool) -> None:
    device = place.device
    model = nn.Sequential(
        nn.Linear(8, 16, device=device), nn.ReLU(), nn.Linear(16, 4, device=device)
    )
    optimizer = needle.optim.Adam(model.parameters(), lr=1e-3)
    x = needle.Tensor(np.ones((4, 8), "float32"), device=device)
    y = needle.Tensor(np.arange(4), device=device)
    held: list[int] = []

    def step() -> None:
        loss = nn.SoftmaxLoss()(model(x), y)
        optimizer.reset_grad()
        loss.backward()
        optimizer.step()

    taken = needle.capture(step, state=[model, optimizer, x, y]) if captured else step
    settled = 3 if captured else 1  # recorded once, then replayed with each set of buffers
    for number in range(place.steps + settled):
        taken()
        if number in (settled, place.steps + settled - 1):
            stats = device.memory_stats()
            held.append(stats["in_use"] + stats["cached"])
    assert held[0] == held[1]


def test_out_of_memory_is_survived(place: Place) -> None:
    kept = []
    with pytest.raises(MemoryError, match=r"the GPU has no \d+ bytes left, \d+ bytes are"):
        for _ in range(64):
            kept.append(place.device.empty((1 << 32,), "float64"))
    kept.clear()
    place.device.empty_cache()
    ones = place.device.ones(1000)
    assert float((ones + ones).sum().numpy()) == 2000
