"""needle's loaders as the studies use them, through the public names of ``needle.data``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import needle.data as data

from .pictures import CIFAR_MEAN, CIFAR_STD, MEAN, STD

ONE_THREAD = {"NEEDLE_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
TWO_THREADS = {"NEEDLE_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"}
SEED = 7

RESIZE = data.Resize((256, 256))
CROP = data.RandomCrop(size=200)
FLIPS = data.RandomFlipHorizontal(p=1), data.RandomFlipVertical(p=1)
COLOUR = data.RandomBrightnessContrast(p=1)
T1 = [RESIZE, CROP]
T2 = [RESIZE, FLIPS[0], CROP, COLOUR, FLIPS[1]]
T3 = [*T2, data.Resize((280, 280)), CROP]
T4 = [*T3, FLIPS[0], COLOUR, FLIPS[1], data.Resize((280, 280))]
LEVELS: dict[str, list[Any]] = {"T1": T1, "T2": T2, "T3": T3, "T4": T4}

JPEG_TO_FLOATS = [
    data.Resize((256, 256)),
    data.RandomCrop(size=224),
    data.RandomFlipHorizontal(),
    data.ToFloat(),
    data.Normalize(MEAN, STD),
    data.ToCHW(),
]
SMALL_TO_FLOATS = [
    data.RandomCrop(padding=4),
    data.RandomFlipHorizontal(),
    data.ToFloat(),
    data.Normalize(CIFAR_MEAN, CIFAR_STD),
    data.ToCHW(),
]


def photo_loader(
    root: str, transforms: Sequence[Any], batch: int, workers: int, **options: Any
) -> Any:
    """Return a loader of the photographs in a folder, shuffled."""
    photos = data.ImageFolder(root, dtype="uint8", layout="HWC")
    return data.DataLoader(
        photos,
        batch,
        shuffle=True,
        seed=SEED,
        num_workers=workers,
        transforms=transforms,
        **options,
    )


def small_loader(images: Any, labels: Any, batch: int, workers: int, engine: str | None) -> Any:
    """Return a loader of small pictures, cropped, flipped and normalised, as float32 NCHW."""
    pictures = data.ImageArrays(images, labels, dtype="uint8", layout="HWC")
    return data.DataLoader(
        pictures,
        batch,
        shuffle=True,
        seed=SEED,
        num_workers=workers,
        engine=engine,
        transforms=SMALL_TO_FLOATS,
    )


def tensors(batch: Any) -> tuple[Any, Any]:
    """Return the parts of a batch of Tensors as NumPy arrays that share their memory."""
    return np.from_dlpack(batch[0].realize_cached_data()), batch[1].numpy()


def arrays(batch: Any) -> tuple[Any, Any]:
    """Return the parts of a batch of NumPy arrays."""
    return batch[0], batch[1]


def numpy_batches() -> None:
    """Make loaders in this process return NumPy arrays instead of Tensors."""
    data.collate.set_tensor_type(None)


class Payloads:
    """A data set of ``count`` samples, all the same array of ``size`` bytes."""

    def __init__(self, size: int, count: int) -> None:
        self.size, self.count = size, count
        self._array: Any = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if self._array is None:
            self._array = np.arange(self.size // 4, dtype=np.int32)
        return self._array


class SlowProcessIds:
    """A data set whose samples take 10 ms and are (index, process id of the worker)."""

    def __init__(self, count: int, seconds: float = 0.01) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        import os
        import time

        time.sleep(self.seconds)
        return np.int64(index), np.int64(os.getpid())


class Paths:
    """A data set that holds a list of paths and returns their lengths."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return max(len(self.paths), 64)

    def __getitem__(self, index: int) -> Any:
        path = self.paths[index] if len(self.paths) else ""
        return np.int64(len(path)), np.int64(index)


class Numbers:
    """A data set of a million samples and more; each is its index."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return np.float32(index), np.int64(index)
