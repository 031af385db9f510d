"""What a GPU must do as a whole: gradients, augmentation, loading, training, memory.

``make test-cuda`` runs this on a GPU after the conformance suite; where there is none, ``make
test`` runs it on the emulated one, with fewer steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import needle
from needle import data, nn
from needle.backend_selection import BACKEND
from needle.data import transforms as T
from needle.testing import check_gradients
from tests.cuda_on_cpu import emulated
from tests.cuda_on_cpu.test_backend import train

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="plain NumPy arrays have no backends")


class Place(NamedTuple):
    """A device to test, and how many steps of training it has time for."""

    device: Any
    steps: int


@pytest.fixture(scope="module")
def place() -> Place:
    """The first GPU, else the emulated one."""
    if needle.cuda().enabled():
        return Place(needle.cuda(), 1000)
    if emulated.module is None:
        pytest.skip(f"{needle.cuda().why()}; and the emulator (target cuda_on_cpu) is not built")
    return Place(needle.device(emulated.NAME), 4)


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


def test_a_lenet_step_is_the_cpus(place: Place) -> None:
    losses, weights = train(place.device)
    want_losses, want_weights = train(needle.cpu_numpy())
    assert losses == pytest.approx(want_losses, rel=1e-5)
    for got, want in zip(weights, want_weights, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_steps_leave_no_memory_behind(place: Place) -> None:
    device = place.device
    model = nn.Sequential(
        nn.Linear(8, 16, device=device), nn.ReLU(), nn.Linear(16, 4, device=device)
    )
    optimizer = needle.optim.Adam(model.parameters(), lr=1e-3)
    x = needle.Tensor(np.ones((4, 8), "float32"), device=device)
    y = needle.Tensor(np.arange(4), device=device)
    held: list[int] = []
    for step in range(place.steps):
        loss = nn.SoftmaxLoss()(model(x), y)
        optimizer.reset_grad()
        loss.backward()
        optimizer.step()
        if step in (1, place.steps - 1):
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
