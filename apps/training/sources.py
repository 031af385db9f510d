"""Data sets by name. Called by run.py, upload.py and the predictor.

The loader prepares training images anew in every epoch; test images are prepared once, as arrays.
needle.data reads the files. A new data set is one row of SOURCES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needle import data
from needle.data.transforms.executors import device_executor
from needle.errors import DataError, unknown_name

from .own_pictures import open_own

Images = NDArray[np.float32]
CHUNK = 2000
FEW = 32  # how many large pictures of different sizes are in memory at once
WIDEST_FRAME = 4


@dataclass(frozen=True)
class Source:
    """A data set: how to open it, the mean and standard deviation of its pixels, and its recipe."""

    open: Callable[[Path, bool, bool], Any]
    """(data_dir, train, download) -> dataset of (H, W, C) images, with ``classes``."""
    size: tuple[int, int] | None
    """(height, width) of the images; None if they differ: each is resized to the model's size."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    recipe: str
    """The recipe that applies if none is given."""

    @property
    def channels(self) -> int:
        """The number of channels of an image."""
        return len(self.mean)

    def pixels(self, images: Images) -> Images:
        """Return normalised images (N, H, W, C) as pixels in 0..1 again."""
        return images * np.array(self.std, np.float32) + np.array(self.mean, np.float32)


@dataclass(frozen=True)
class Split:
    """Normalised float32 images (N, H, W, C) and int64 labels (N,)."""

    images: Images
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


SOURCES: dict[str, Source] = {
    "digits": Source(
        lambda root, train, download: data.Digits(train, layout="HWC"),
        size=(8, 8),
        mean=(0.305,),
        std=(0.376,),
        recipe="lenet5-digits",
    ),
    "mnist": Source(
        lambda root, train, download: data.MNIST(root, train, download, layout="HWC"),
        size=(28, 28),
        mean=(0.1307,),
        std=(0.3081,),
        recipe="lenet5-mnist",
    ),
    "fashion-mnist": Source(
        lambda root, train, download: data.FashionMNIST(root, train, download, layout="HWC"),
        size=(28, 28),
        mean=(0.2860,),
        std=(0.3530,),
        recipe="lenet5-fashion-mnist",
    ),
    "cifar10": Source(
        lambda root, train, download: data.CIFAR10(root, train, download, layout="HWC"),
        size=(32, 32),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        recipe="resnet9-cifar10",
    ),
    # The user's own pictures at data_dir, normalised with ImageNet's mean and deviation.
    "pictures": Source(
        lambda root, train, download: open_own(str(root), train),
        size=None,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        recipe="resnet20-pictures",
    ),
}


def find_source(name: str) -> Source:
    """Return the row of SOURCES; UnknownNameError if there is none."""
    if name not in SOURCES:
        raise unknown_name("data set", name, SOURCES)
    return SOURCES[name]


PLACES = ("builtin", "folder", "packed")
"""The places of a data set: its published files, or the copies that apps/upload.py wrote into the
data folder. A URL to which apps/upload.py wrote the copies is possible too."""


def open_source(name: str, place: str, data_dir: Path, train: bool, download: bool) -> Any:
    """Return a split of a data set from ``place``; every place has the same (H, W, C) images.

    UnknownNameError if the place is unknown. DataError if the data is missing; it says how to make
    it.
    """
    source, split = find_source(name), "train" if train else "test"
    if place == "builtin":
        return source.open(data_dir, train, download)
    if source.size is None:
        return open_own(place, train)
    mode = "L" if source.channels == 1 else "RGB"
    if "://" in place:
        return data.open_remote(f"{place.rstrip('/')}/{split}", layout="HWC", mode=mode)
    if place not in PLACES:
        raise unknown_name("source", place, [*PLACES, "s3://bucket/prefix", "http://host/path"])
    here = data_dir / f"{name}-{place}"
    if not here.exists():
        raise DataError(
            f"--source {place}: {here} does not exist; make it with python -m needle upload --data "
            f"{name} --to {place}"
        )
    if place == "packed":
        return data.PackedDataset(here / f"{split}.arrow")
    return data.ImageFolder(here / split, layout="HWC", mode=mode)


def limited(dataset: Any, count: int) -> Any:
    """Return ``count`` samples of the dataset (0: all), balanced over the classes if possible.

    The dataset must know its labels for that. DataError if ``count`` is less than the number of
    classes.
    """
    if not 0 < count < len(dataset):
        return dataset
    if count < len(dataset.classes):
        raise DataError(
            f"--limit: must be at least one sample of each of {len(dataset.classes)} classes, got "
            f"{count}; give a larger number"
        )
    labels = getattr(dataset, "labels", None)
    return data.Subset(dataset, _spread(len(dataset), count, labels))


def _spread(length: int, count: int, labels: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return ``count`` indices: the first of each class or, without labels, evenly spaced ones."""
    if labels is None:
        return np.arange(count) * length // count
    by_class = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    place_in_class = np.arange(length) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(by_class[np.argsort(place_in_class, kind="stable")[:count]])


def open_split(source: Source, dataset: Any, image_size: tuple[int, int]) -> Split:
    """Return a whole dataset as arrays, fitted to ``image_size`` and normalised."""
    fit = _fit(source, dataset, image_size)
    chunk_size = CHUNK if source.size else FEW
    normalize = data.Normalize(source.mean, source.std)
    images = np.empty((len(dataset), *image_size, source.channels), np.float32)
    labels = np.empty(len(dataset), np.int64)
    for start in range(0, len(dataset), chunk_size):
        stop = start + chunk_size
        chunk, labels[start:stop] = _rows(dataset, start, stop)
        fitted = np.stack(chunk if fit is None else [fit(image) for image in chunk])
        images[start:stop] = normalize(fitted)
    return Split(images, labels)


def _rows(dataset: Any, start: int, stop: int) -> tuple[Any, Any]:
    """Return float32 images in 0..1 and labels, fetched together if the dataset can."""
    found = dataset.fetch(np.arange(start, min(stop, len(dataset))))
    if found is None:
        found = dataset[start:stop]
    images, labels = zip(*found) if isinstance(found, list) else found
    if all(image.dtype == np.uint8 for image in images):
        images = [image.astype(np.float32) / np.float32(255) for image in images]
    return images, labels


def _fit(source: Source, dataset: Any, wanted: tuple[int, int]) -> data.Transform | None:
    """Return the transform that gives a dataset's images one size; None if none is needed."""
    if source.size is None:
        return data.Resize(wanted)
    return fitting(tuple(dataset[0][0].shape[:2]), wanted)


def fitting(size: tuple[int, int], wanted: tuple[int, int]) -> data.Transform | None:
    """Return the transform from images of ``size`` to images of ``wanted``; None if they are equal.

    A small even difference is padded with zeros (28 -> 32, as in LeCun et al. 1998); other images
    are resized.
    """
    if size == wanted:
        return None
    rows, columns = wanted[0] - size[0], wanted[1] - size[1]
    frame = (rows // 2, columns // 2)
    if rows % 2 == columns % 2 == 0 and min(frame) >= 0 and max(frame) <= WIDEST_FRAME:
        return data.Pad(frame)
    return data.Resize(wanted)


@dataclass(frozen=True)
class Workers:
    """The workers that prepare training batches; the batches do not depend on them.

    count: 0 means the program itself. engine: "processes" or "threads"; None: the loader chooses.
    """

    count: int = 0
    engine: str | None = None


def training_loader(
    source: Source,
    dataset: Any,
    image_size: tuple[int, int],
    batch_size: int,
    seed: int,
    device: Any,
    augment: Sequence[data.Transform] = (),
    workers: Workers | None = None,
    sampler: data.Sampler | None = None,
    drop_last: bool = False,
) -> data.DataLoader:
    """Return a loader of shuffled, augmented batches.

    sampler: the sampler of one of several processes; its batches mark the valid samples.

    Order and random numbers depend on (seed, epoch) only. Pixels stay bytes in memory; one pass
    fits, augments, normalises and transposes a batch to channels first, on the device if it can.
    """
    fit = _fit(source, dataset, image_size)
    before = () if fit is None else (fit,)
    normalize = data.Normalize(source.mean, source.std)
    workers = workers or Workers()
    return data.DataLoader(
        dataset,
        batch_size,
        shuffle=sampler is None,
        sampler=sampler,
        drop_last=drop_last,
        transforms=[*before, *augment, data.ToFloat(), normalize, data.ToCHW()],
        seed=seed,
        device=device,
        augment="worker" if device_executor(device.name) is None else "device",
        num_workers=workers.count,
        engine=workers.engine,
    )


def evaluation_loader(
    split: Split, batch_size: int, device: Any, sampler: data.Sampler | None = None
) -> data.DataLoader:
    """Return a loader of all samples, once and in order; several processes pass a sampler."""
    plain = data.ArrayDataset(_channels_first(split.images), split.labels)
    return data.DataLoader(plain, batch_size, device=device, sampler=sampler)


def _channels_first(images: Images) -> Images:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
