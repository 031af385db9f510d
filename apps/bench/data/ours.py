"""needle's loaders as the studies use them, through the public names of ``needle.data``."""

from __future__ import annotations

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


def photo_loader(root: str, batch: int, workers: int, **options: Any) -> Any:
    """Return a loader of the photographs in a folder, shuffled, as float32 NCHW."""
    photos = data.ImageFolder(root, dtype="uint8", layout="HWC")
    return loader(photos, batch, workers, transforms=JPEG_TO_FLOATS, **options)


def loader(dataset: Any, batch: int, workers: int = 0, **options: Any) -> Any:
    """Return a loader of shuffled batches."""
    return data.DataLoader(dataset, batch, shuffle=True, seed=SEED, num_workers=workers, **options)


def tensors(batch: Any) -> tuple[Any, Any]:
    """Return the parts of a batch of Tensors as NumPy arrays that share their memory."""
    return np.from_dlpack(batch[0].realize_cached_data()), batch[1].numpy()
