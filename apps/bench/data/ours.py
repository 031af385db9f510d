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


class Paths:
    """A data set that holds a list of paths and returns their lengths."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return max(len(self.paths), 64)

    def __getitem__(self, index: int) -> Any:
        path = self.paths[index] if len(self.paths) else ""
        return np.int64(len(path)), np.int64(index)
