"""The data of the studies: folders of JPEG files, and 32 x 32 pictures in memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

import needle.data as data
from apps.bench.harness.settings import Settings

CLASSES = 4
SIZE = (375, 500)  # size of a generated photograph
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def photo_folder(settings: Settings, count: int) -> str:
    """Return a folder with ``count`` JPEG files in class folders; create it if it is missing.

    The files are separate copies of the given photographs, or generated ones.
    """
    root = Path(settings.folder) / f"photos-{count}"
    if root.is_dir():
        return str(root)
    partial = root.with_suffix(".partial")
    for i in range(CLASSES):
        (partial / f"class{i}").mkdir(parents=True, exist_ok=True)
    sources = photographs(settings)
    for i in range(count):
        target = partial / f"class{i % CLASSES}" / f"{i:05d}.jpg"
        if sources:
            shutil.copyfile(sources[i % len(sources)], target)
        else:
            target.write_bytes(made_up_photo(i, SIZE if not settings.quick else (60, 80)))
    partial.rename(root)
    return str(root)


def photographs(settings: Settings) -> list[Path]:
    """Return the given photographs, in order; empty if no folder was given."""
    return sorted(Path(settings.photos).rglob("*.jpg")) if settings.photos else []


def files(root: str) -> list[str]:
    """Return all JPEG files below a folder, in ImageFolder's order."""
    return sorted(map(str, Path(root).rglob("*.jpg")))


def made_up_photo(seed: int, size: tuple[int, int]) -> bytes:
    """Return a JPEG of smooth shapes and grain, about as large as that of a photograph."""
    import simplejpeg

    height, width = size
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    waves = [
        np.sin(x * generator.uniform(0.005, 0.1) + y * generator.uniform(0.005, 0.1) + phase)
        for phase in (0.0, 2.0, 4.0)
    ]
    grain = generator.normal(0, 12, (height, width, 1))
    pixels = np.stack(waves, axis=-1) * 90 + 128 + grain
    encoded: bytes = simplejpeg.encode_jpeg(pixels.clip(0, 255).astype(np.uint8), quality=90)
    return encoded


def small_pictures(settings: Settings) -> tuple[Any, Any]:
    """Return contiguous uint8 (N, 32, 32, 3) and int64 labels: CIFAR-10 or random ones."""
    count = settings.pick(50_000, 256)
    if settings.cifar:
        train = data.CIFAR10(settings.cifar, dtype="uint8", layout="HWC")
        return np.ascontiguousarray(train.images[:count]), train.labels[:count]
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return images, generator.integers(0, 10, count)
