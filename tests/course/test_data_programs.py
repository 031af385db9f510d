"""Tests of datasets, transforms and loaders by exact numbers of the global generator."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle.backend_selection import BACKEND
from needle.data import (
    CIFAR10Dataset,
    DataLoader,
    Dataset,
    MNISTDataset,
    NDArrayDataset,
    RandomCrop,
    RandomFlipHorizontal,
)


def test_flip_draws_once_whatever_happens() -> None:
    image = np.random.RandomState(0).rand(5, 4, 3)
    for p in (0.0, 0.5, 1.0):
        np.random.seed(7)
        flip = RandomFlipHorizontal(p)
        got = [flip(image) for _ in range(8)]
        np.random.seed(7)
        for out in got:
            flipped = np.random.rand() < p
            np.testing.assert_array_equal(out, image[:, ::-1] if flipped else image)
        assert np.random.rand() == np.random.RandomState(7).rand(9)[-1]


@pytest.mark.parametrize("padding", [0, 1, 3])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_crop_draws_one_pair(padding: int, dtype: str) -> None:
    image = (np.random.RandomState(0).rand(5, 6, 3) * 255).astype(dtype)
    np.random.seed(9)
    crop = RandomCrop(padding=padding)
    got = [crop(image) for _ in range(10)]
    np.random.seed(9)
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    for out in got:
        down, right = np.random.randint(low=-padding, high=padding + 1, size=2)
        top, left = padding + down, padding + right
        np.testing.assert_array_equal(out, padded[top : top + 5, left : left + 6])
        assert out.dtype == dtype and out.shape == image.shape


def test_shuffling_draws_one_permutation_an_epoch() -> None:
    data = np.arange(23).astype("float32")
    loader = DataLoader(dataset=NDArrayDataset(data), batch_size=5, shuffle=True)
    np.random.seed(3)
    epochs = [[batch[0].numpy() for batch in loader] for _ in range(3)]
    np.random.seed(3)
    for batches in epochs:
        order = np.random.permutation(23)
        assert [len(b) for b in batches] == [5, 5, 5, 5, 3]
        np.testing.assert_array_equal(np.concatenate(batches), data[order])


def test_loader_without_shuffling() -> None:
    images, labels = np.random.rand(7, 2, 2).astype("float32"), np.arange(7)
    loader = DataLoader(NDArrayDataset(images, labels), 3)
    assert loader.batch_size == 3 and loader.shuffle is False and len(loader.dataset) == 7
    assert [list(part) for part in loader.ordering] == [[0, 1, 2], [3, 4, 5], [6]]
    for _ in range(2):
        iterator = iter(loader)
        first = next(iterator)
        assert isinstance(first, (tuple, list)) and len(first) == 2
        batches = [first, *iterator]
        for i, (X, y) in enumerate(batches):
            assert isinstance(X, ndl.Tensor) and X.device == ndl.default_device()
            np.testing.assert_array_equal(X.numpy(), images[3 * i : 3 * i + 3])
            np.testing.assert_array_equal(y.numpy(), labels[3 * i : 3 * i + 3])
        assert len(batches) == 3 and batches[0] != batches[1]
    with pytest.raises(StopIteration):
        next(iterator)
    one = next(iter(DataLoader(NDArrayDataset(images), batch_size=1)))
    assert one[0].shape == (1, 2, 2) and one[0].dtype == "float32"


class Squares(Dataset):
    """A dataset as in the homework, indexed by ints and slices."""

    def __init__(self, transforms: Any = None) -> None:
        super().__init__(transforms)
        self.values = np.arange(12, dtype="float32").reshape(6, 2)

    def __getitem__(self, index: Any) -> Any:
        return self.apply_transforms(self.values[index] ** 2), np.arange(6)[index]

    def __len__(self) -> int:
        return 6


def test_own_dataset() -> None:
    order: list[str] = []

    def note(name: str) -> Any:
        return lambda v: order.append(name) or v + 1

    dataset = Squares(transforms=[note("a"), note("b")])
    np.testing.assert_array_equal(dataset[2][0], np.array([16, 25]) + 2)
    assert order == ["a", "b"]
    X, y = next(iter(DataLoader(dataset, batch_size=4)))
    np.testing.assert_array_equal(X.numpy(), dataset.values[:4] ** 2 + 2)
    np.testing.assert_array_equal(y.numpy(), np.arange(4))
    assert order.count("a") >= 4
    assert Squares().apply_transforms(3) == 3


def test_transforms_run_sample_by_sample_from_the_stream(tmp_path: Path) -> None:
    images, _, paths = write_mnist(tmp_path, 6)
    dataset = MNISTDataset(*paths, transforms=[RandomFlipHorizontal(0.5), RandomCrop(2)])
    np.random.seed(1)
    (X, _), *_ = list(DataLoader(dataset, batch_size=6))
    np.random.seed(1)
    flip, crop = RandomFlipHorizontal(0.5), RandomCrop(2)
    scaled = (images / 255).astype("float32").reshape(-1, 28, 28, 1)
    expected = np.stack([crop(flip(image)) for image in scaled])
    np.testing.assert_allclose(X.numpy().reshape(expected.shape), expected, rtol=1e-6)


def write_mnist(folder: Path, count: int) -> tuple[Any, Any, tuple[str, str]]:
    random = np.random.RandomState(0)
    images = random.randint(256, size=(count, 28, 28)).astype(np.uint8)
    labels = random.randint(10, size=count).astype(np.uint8)
    paths = str(folder / "images.gz"), str(folder / "labels.gz")
    with gzip.open(paths[0], "wb") as file:
        file.write(struct.pack(">iiii", 2051, count, 28, 28) + images.tobytes())
    with gzip.open(paths[1], "wb") as file:
        file.write(struct.pack(">ii", 2049, count) + labels.tobytes())
    return images, labels, paths


def test_mnist(tmp_path: Path) -> None:
    images, labels, paths = write_mnist(tmp_path, 11)
    dataset = MNISTDataset(paths[0], paths[1])
    assert len(dataset) == 11
    image, label = dataset[3]
    assert image.dtype == np.float32 and int(label) == labels[3]
    np.testing.assert_allclose(np.ravel(image), images[3].ravel() / 255, rtol=1e-6)
    several, ids = dataset[2:5]
    np.testing.assert_array_equal(ids, labels[2:5])
    batch, _ = next(iter(DataLoader(dataset, batch_size=3)))
    assert np.shape(several)[1:] == batch.shape[1:]
    seen: list[Any] = []
    transformed = MNISTDataset(*paths, transforms=[lambda x: seen.append(x.shape) or x])
    transformed[0]
    assert seen == [(28, 28, 1)]


def test_cifar10(tmp_path: Path) -> None:
    random = np.random.RandomState(1)
    pixels = random.randint(256, size=(12, 3072)).astype(np.uint8)
    labels = [int(i) for i in random.randint(10, size=12)]
    names = [f"data_batch_{i}" for i in range(1, 6)]
    for i, name in enumerate([*names, "test_batch"]):
        rows = slice(2 * i, 2 * i + 2)
        with open(tmp_path / name, "wb") as file:
            pickle.dump({b"data": pixels[rows], b"labels": labels[rows]}, file)
    train = CIFAR10Dataset(str(tmp_path), train=True)
    test = CIFAR10Dataset(str(tmp_path), train=False)
    assert len(train) == 10 and len(test) == 2
    for dataset, index, row in [(train, 0, 0), (train, 7, 7), (test, 1, 11)]:
        item = dataset[index]
        assert isinstance(item, tuple) and item[0].shape == (3, 32, 32)
        assert item[0].dtype == np.float32 and int(item[1]) == labels[row]
        np.testing.assert_allclose(item[0].ravel(), pixels[row] / 255, rtol=1e-6)
    X, y = next(iter(DataLoader(train, batch_size=4)))
    assert X.shape == (4, 3, 32, 32) and X.dtype == "float32" and y.shape == (4,)
    assert isinstance(X.cached_data, ndl.autograd.NDArray)
    on_cpu = ndl.Tensor(X, device=ndl.cpu())
    assert on_cpu.device == ndl.cpu()
    assert BACKEND == "np" or on_cpu.cached_data.device == ndl.cpu()
