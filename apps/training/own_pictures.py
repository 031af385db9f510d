"""The user's own pictures as a data set: --data PATH. Called by sources.py and train.py.

PATH is a folder with one folder per class, or with the splits ``train`` and ``test`` (or ``val``),
each with one folder per class; a packed file, or a folder with ``train.arrow`` and ``test.arrow``;
or a URL or folder to which ``needle.data.upload`` has written one data set or its splits.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needle import data
from needle.data.formats.decoding import decode
from needle.data.formats.files import is_hidden
from needle.errors import DataError, StoreError

TRAIN_NAMES = ("train", "training")
TEST_NAMES = ("test", "testing", "val", "valid", "validation")
TEST_SHARE = 0.2
MOST_CHECKED = 20_000
INDEX = "needle-index.json"


def as_place(name: str) -> str | None:
    """Return a URL as it is, an existing file or folder as an absolute path, else None."""
    if "://" in name:
        return name
    path = Path(name)
    return str(path.resolve()) if path.exists() or len(path.parts) > 1 else None


def open_own(place: str, train: bool) -> Any:
    """Return one split of the pictures at ``place`` as a dataset of (H, W, 3) uint8 images.

    Its attributes are ``classes`` and ``unreadable``, the files that were left out. If there is
    only one set of pictures, a fifth of each class becomes the test split; which pictures are
    chosen depends on their names alone. DataError if there are no pictures of two classes at least,
    or if the splits have different classes.
    """
    if "://" not in place and not Path(place).exists():
        raise DataError(f"--data: {place} does not exist; give a folder of pictures")
    found = [_split_of(place, names) for names in (TRAIN_NAMES, TEST_NAMES)]
    if found[0] is not None and found[1] is not None:
        _check_classes(place, found[0].classes, found[1].classes)
        split = found[0 if train else 1]
    else:
        whole = next((each for each in found if each is not None), None)
        split = _part(_open(place) if whole is None else whole, train)
    if len(split.classes) < 2:
        raise DataError(
            f"--data: {place} must have at least two classes, got {', '.join(split.classes)} "
            "alone; put the pictures of each class into a folder of its own, and give the folder "
            "that holds these folders"
        )
    if not len(split):
        raise DataError(
            f"--data: {place} must have a class of two pictures or more, since a fifth of each "
            "class is the test split, got one picture in each; add pictures, or the folders train "
            "and test"
        )
    return _readable(split)


def _split_of(place: str, names: Sequence[str]) -> Any:
    """Return the dataset of the split with one of these names, None if there is none."""
    if "://" in place:
        for name in names:
            try:
                found = _stored(f"{place.rstrip('/')}/{name}")
            except (DataError, StoreError):  # a web server has no listings, so each name is tried
                continue
            return _packed(found)
        return None
    if not Path(place).is_dir():
        return None
    there = {each.name.lower(): each for each in sorted(Path(place).iterdir())}
    found = [there[name] for name in names if _has_classes(there.get(name))]
    found += [there[f"{name}.arrow"] for name in names if f"{name}.arrow" in there]
    return _open(str(found[0])) if found else None


def _has_classes(path: Path | None) -> bool:
    if path is None or not path.is_dir():
        return False
    inside = any(each.is_dir() and not is_hidden(each.name) for each in path.iterdir())
    return inside or (path / INDEX).exists()


def _open(place: str) -> Any:
    """Return the data set in a file or folder or at a URL."""
    if Path(place).is_file():
        return _packed(data.PackedDataset(place))
    if "://" not in place and not (Path(place) / INDEX).exists():
        try:
            return data.ImageFolder(place, layout="HWC", dtype="uint8", scaled_decode=True)
        except DataError as error:
            raise DataError(
                f"--data: {error}; put the pictures of each class into a folder of its own (the "
                "files of mnist and cifar10 are read with --data NAME --data-dir FOLDER)"
            ) from error
    return _packed(_stored(place))


def _stored(url: str) -> Any:
    return data.open_remote(url, layout="HWC", dtype="uint8", scaled_decode=True)


# ---- packed files --------------------------------------------------------------------------------


def _packed(dataset: Any) -> Any:
    """Return a packed dataset with images as bytes in three channels, and with ``classes``."""
    if hasattr(dataset, "labels"):
        return dataset  # each sample is an encoded picture
    first = dataset[0]
    image = np.asarray(first[0]) if isinstance(first, tuple) and len(first) == 2 else np.zeros(0)
    if image.ndim not in (2, 3) or np.ndim(first[1]) != 0:
        raise DataError(
            "--data: the samples of a packed file must be tuples of a picture and the number of "
            "its class; pack an ImageFolder, for example"
        )
    first_axis = dataset.layout == "CHW"
    if dataset.layout is None and image.ndim == 3:  # arrays of unknown origin
        first_axis = image.shape[0] in (1, 3) and image.shape[2] not in (1, 3)
    if image.dtype != np.uint8 or image.shape[2:] != (3,) or first_axis:
        dataset.transforms = [partial(as_colour, channels_first=first_axis)]
        dataset.layout = "HWC"
        dataset[0]  # raises an error unless these are pictures
    if (labels := _packed_labels(dataset)) is not None:
        dataset.labels = labels
    if dataset.classes is None and labels is not None:
        dataset.classes = tuple(str(number) for number in range(int(labels.max()) + 1))
    if dataset.classes is None:
        raise DataError("--data: the packed files do not name their classes; pack them again")
    return dataset


def _packed_labels(dataset: Any) -> NDArray[np.int64] | None:
    """Return the label of each sample; None if the samples are not in a file of moderate size."""
    arrays = dataset.in_memory()
    if arrays is not None:
        return np.asarray(arrays[1], np.int64)
    if not isinstance(dataset, data.PackedDataset) or len(dataset) > MOST_CHECKED:
        return None
    return np.array([dataset[i][1] for i in range(len(dataset))], np.int64)


def as_colour(image: NDArray[Any], channels_first: bool) -> NDArray[np.uint8]:
    """Return a grey or coloured image, bytes or floats in 0..1, as (H, W, 3) uint8."""
    image = image[..., None] if image.ndim == 2 else image
    image = image.transpose(1, 2, 0) if channels_first else image
    if image.shape[2] not in (1, 3):
        raise DataError(f"--data: pictures must have 1 or 3 channels, got the shape {image.shape}")
    if image.dtype != np.uint8:
        if not 0 <= image.min() <= image.max() <= 1:
            raise DataError(
                "--data: packed floats must lie in 0..1, got "
                f"{image.min():g} to {image.max():g}; pack them as bytes, before Normalize"
            )
        image = np.round(image * 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(image, (*image.shape[:2], 3)))


# ---- splits --------------------------------------------------------------------------------------


def _check_classes(place: str, train: Sequence[str], test: Sequence[str]) -> None:
    if tuple(train) != tuple(test):
        apart = ", ".join(sorted(set(train) ^ set(test)))
        raise DataError(
            f"--data: the splits of {place} must have the same classes, but only one of them has "
            f"{apart}; add the class folders to the other"
        )


def _part(dataset: Any, train: bool) -> Any:
    """Return the training or test part of a dataset that is not split."""
    labels = getattr(dataset, "labels", np.zeros(len(dataset), np.int64))
    names = getattr(dataset, "paths", range(len(dataset)))
    order = np.array([zlib.crc32(str(name).encode()) for name in names])
    test = np.zeros(len(dataset), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = round(TEST_SHARE * len(members)) or int(len(members) > 1)
        test[members[np.argsort(order[members], kind="stable")[:count]]] = True
    return chosen(dataset, np.flatnonzero(test != train))


def chosen(dataset: Any, places: Any) -> Any:
    """Return a Subset that has ``paths`` if the dataset has them."""
    part: Any = data.Subset(dataset, places)
    if hasattr(dataset, "paths"):
        part.paths = np.array([dataset.paths[int(place)] for place in places])
    return part


def _readable(dataset: Any) -> Any:
    """Return the dataset without the files that cannot be decoded.

    Only the files of a folder are checked, and only the first 20 000.
    """
    folder = getattr(dataset, "dataset", dataset)
    if type(folder) is not data.ImageFolder:
        return dataset
    paths = [str(dataset.paths[i]) for i in range(len(dataset))]
    files = [folder.root / path for path in paths[:MOST_CHECKED]]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        good = np.array([*threads.map(_is_picture, files), *[True] * len(paths[MOST_CHECKED:])])
    if good.all():
        return dataset
    if not good.any():
        raise DataError(f"--data: no picture in {folder.root} can be read; see {files[0]}")
    rest = chosen(dataset, np.flatnonzero(good))
    rest.unreadable = [paths[i] for i in np.flatnonzero(~good)]
    return rest


def _is_picture(path: Path) -> bool:
    """Return True if the file can be decoded; JPEGs are tried at an eighth of their size."""
    try:
        decode(path, at_least=(1, 1))
    except (DataError, OSError):
        return False
    return True
