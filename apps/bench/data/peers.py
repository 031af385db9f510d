"""The same work for PyTorch's DataLoader and grain, with NumPy, OpenCV and simplejpeg.

Data sets and transforms are what their users write: sample by sample, or whole batches at once
with torch's own operations. Nothing here is imported where PyTorch is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .pictures import CIFAR_MEAN, CIFAR_STD, MEAN, STD, files

SMALL_MEAN, SMALL_STD = np.float32(CIFAR_MEAN), np.float32(CIFAR_STD)
LARGE_MEAN, LARGE_STD = np.float32(MEAN), np.float32(STD)


class SmallPictures:
    """Crop with 4 pixels of padding, flip and normalise, one picture at a time, in NumPy."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels
        self.generator = np.random.default_rng()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> Any:
        return augment_small(self.images[index], self.generator), int(self.labels[index])


def augment_small(image: Any, generator: np.random.Generator) -> Any:
    """uint8 (32, 32, 3) -> float32 (3, 32, 32)."""
    padded = np.zeros((40, 40, 3), np.uint8)
    padded[4:36, 4:36] = image
    top, left = generator.integers(0, 9, 2)
    crop = padded[top : top + 32, left : left + 32]
    if generator.random() < 0.5:
        crop = crop[:, ::-1]
    values = (crop.astype(np.float32) / np.float32(255) - SMALL_MEAN) / SMALL_STD
    return np.ascontiguousarray(values.transpose(2, 0, 1))


class BatchedSmallPictures:
    """The same for whole batches, by torch's operations on the array of all pictures."""

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
        """uint8 (n, 3, 32, 32) -> float32 of that shape; the quickest of five ways tried."""
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
    """JPEG files by simplejpeg, then ``augment``, sample by sample."""

    def __init__(self, root: str, augment: Any) -> None:
        self.paths, self.augment = files(root), augment
        names = sorted({path.split("/")[-2] for path in self.paths})
        self.labels = [names.index(path.split("/")[-2]) for path in self.paths]
        self.generator = np.random.default_rng()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return self.augment(read_photo(self.paths[index]), self.generator), self.labels[index]


def read_photo(path: str) -> Any:
    """uint8 (H, W, 3)."""
    import simplejpeg

    with open(path, "rb", buffering=0) as file:
        return simplejpeg.decode_jpeg(file.read(), "RGB")


def resized(image: Any, size: int) -> Any:
    """By OpenCV, bilinear without antialiasing, on one thread."""
    import cv2

    cv2.setNumThreads(1)
    return cv2.resize(image, (size, size), interpolation=cv2.INTER_LINEAR)


def cropped(image: Any, size: int, generator: np.random.Generator) -> Any:
    """A window anywhere."""
    top = generator.integers(0, image.shape[0] - size + 1)
    left = generator.integers(0, image.shape[1] - size + 1)
    return image[top : top + size, left : left + size]


def coloured(image: Any, generator: np.random.Generator) -> Any:
    """Brightness and contrast changed by up to 0.2, by OpenCV."""
    import cv2

    contrast, brightness = 1 + generator.uniform(-0.2, 0.2, 2)
    return cv2.convertScaleAbs(image, alpha=contrast, beta=(brightness - 1) * 255)


def level_two(image: Any, generator: np.random.Generator) -> Any:
    """T2 of the loader study: uint8 (200, 200, 3)."""
    crop = cropped(resized(image, 256)[:, ::-1], 200, generator)
    return np.ascontiguousarray(coloured(crop, generator)[::-1])


def photo_to_floats(image: Any, generator: np.random.Generator) -> Any:
    """Resized to 256, cropped to 224, flipped, normalised: float32 (3, 224, 224)."""
    crop = cropped(resized(image, 256), 224, generator)
    if generator.random() < 0.5:
        crop = crop[:, ::-1]
    values = (crop.astype(np.float32) / np.float32(255) - LARGE_MEAN) / LARGE_STD
    return np.ascontiguousarray(values.transpose(2, 0, 1))


def torch_loader(dataset: Any, batch: int, workers: int, **options: Any) -> Any:
    """PyTorch's DataLoader, shuffled, its workers kept over epochs; one thread in each process."""
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
    """Workers begun by fork would all draw the same numbers."""
    import torch

    torch.set_num_threads(1)
    information = torch.utils.data.get_worker_info()
    information.dataset.generator = np.random.default_rng(information.seed)


def grain_loader(dataset: SmallPictures, batch: int, workers: int) -> Any:
    """grain's loader over the same samples."""
    import grain

    samples = grain.MapDataset.source(dataset).seed(7).shuffle().batch(batch)
    read = grain.ReadOptions(num_threads=0 if workers else 1, prefetch_buffer_size=8)
    loader = samples.to_iter_dataset(read)
    if workers:
        loader = loader.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    return loader


def torch_arrays(batch: Any) -> tuple[Any, Any]:
    """Images and labels of torch's batch, in NumPy."""
    return batch[0].numpy(), batch[1].numpy()
