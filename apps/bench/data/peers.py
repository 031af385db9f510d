"""The contestants of needle's loaders: PyTorch's DataLoader with NumPy, OpenCV and simplejpeg.

Data sets and transforms are written as users write them: sample by sample, or in whole batches with
torch's own operations. This module is imported only if PyTorch is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .pictures import CIFAR_MEAN, CIFAR_STD, MEAN, STD, files

SMALL_MEAN, SMALL_STD = np.float32(CIFAR_MEAN), np.float32(CIFAR_STD)
LARGE_MEAN, LARGE_STD = np.float32(MEAN), np.float32(STD)


class SmallPictures:
    """A data set that crops (padding 4), flips and normalises one picture at a time in NumPy."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels
        self.generator = np.random.default_rng()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> Any:
        return augment_small(self.images[index], self.generator), int(self.labels[index])


def augment_small(image: Any, generator: np.random.Generator) -> Any:
    """Return float32 (3, 32, 32) from uint8 (32, 32, 3)."""
    padded = np.zeros((40, 40, 3), np.uint8)
    padded[4:36, 4:36] = image
    top, left = generator.integers(0, 9, 2)
    crop = padded[top : top + 32, left : left + 32]
    if generator.random() < 0.5:
        crop = crop[:, ::-1]
    values = (crop.astype(np.float32) / np.float32(255) - SMALL_MEAN) / SMALL_STD
    return np.ascontiguousarray(values.transpose(2, 0, 1))


class BatchedSmallPictures:
    """A loader that crops, flips and normalises whole batches with torch's operations."""

    def __init__(self, images: Any, labels: Any, batch: int) -> None:
        import torch

        self.batch = batch
        self.images = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
        self.labels = torch.from_numpy(labels)
        self.mean = torch.tensor(CIFAR_MEAN)[:, None, None]
        self.std = torch.tensor(CIFAR_STD)[:, None, None]

    def __iter__(self) -> Iterator[Any]:
        import torch

        for chosen in torch.randperm(len(self.labels)).split(self.batch):
            yield self.augmented(self.images[chosen]), self.labels[chosen]

    def augmented(self, images: Any) -> Any:
        """Return float32 from uint8 (n, 3, 32, 32); the fastest of five variants tried."""
        import torch

        count = len(images)
        padded = torch.nn.functional.pad(images, (4, 4, 4, 4))
        down, right = torch.randint(0, 9, (2, count, 1))
        flip = torch.rand(count, 1) < 0.5
        columns = torch.arange(32).expand(count, 32)
        columns = torch.where(flip, 31 - columns, columns) + right
        rows = (torch.arange(32) + down) * 40
        places = (rows[:, :, None] + columns[:, None, :]).view(count, 1, 32 * 32)
        crops = padded.view(count, 3, 40 * 40).gather(2, places.expand(count, 3, 32 * 32))
        return crops.view(images.shape).float().div_(255).sub_(self.mean).div_(self.std)


class Photos:
    """A data set of JPEG files as float32 (3, 224, 224), with OpenCV and simplejpeg."""

    def __init__(self, root: str) -> None:
        self.paths = files(root)
        names = sorted({path.split("/")[-2] for path in self.paths})
        self.labels = [names.index(path.split("/")[-2]) for path in self.paths]
        self.generator = np.random.default_rng()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return photo_to_floats(read_photo(self.paths[index]), self.generator), self.labels[index]


def read_photo(path: str) -> Any:
    """Return a decoded JPEG file, uint8 (H, W, 3)."""
    import simplejpeg

    with open(path, "rb", buffering=0) as file:
        return simplejpeg.decode_jpeg(file.read(), "RGB")


def resized(image: Any, size: int) -> Any:
    """Resize with OpenCV, bilinear without antialiasing, on one thread."""
    import cv2

    cv2.setNumThreads(1)
    return cv2.resize(image, (size, size), interpolation=cv2.INTER_LINEAR)


def photo_to_floats(image: Any, generator: np.random.Generator) -> Any:
    """Resize to 256, crop to 224, flip and normalise; return float32 (3, 224, 224)."""
    top, left = generator.integers(0, 256 - 224 + 1, 2)
    crop = resized(image, 256)[top : top + 224, left : left + 224]
    if generator.random() < 0.5:
        crop = crop[:, ::-1]
    values = (crop.astype(np.float32) / np.float32(255) - LARGE_MEAN) / LARGE_STD
    return np.ascontiguousarray(values.transpose(2, 0, 1))


def torch_loader(dataset: Any, batch: int, workers: int, **options: Any) -> Any:
    """Return PyTorch's DataLoader: shuffled, with persistent workers of one thread each."""
    import torch

    torch.set_num_threads(1)
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=batch,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        worker_init_fn=own_generator,
        **options,
    )


def own_generator(worker: int) -> None:
    """Seed a worker; forked workers would otherwise draw the same numbers."""
    import torch

    torch.set_num_threads(1)
    information = torch.utils.data.get_worker_info()
    information.dataset.generator = np.random.default_rng(information.seed)


def torch_arrays(batch: Any) -> tuple[Any, Any]:
    """Return the images and labels of a torch batch as NumPy arrays."""
    return batch[0].numpy(), batch[1].numpy()
