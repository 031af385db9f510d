"""Pictures of one's own as a data set: --data PATH. Called by sources.py and train.py.

PATH is a folder with one folder per class, or with the splits ``train`` and ``test`` (or ``val``),
each with one folder per class; a packed file, or a folder with ``train.arrow`` and ``test.arrow``;
or a URL below which apps/upload.py has put the splits.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from needle import data
from needle.errors import DataError

TRAIN_NAMES = ("train", "training")
TEST_NAMES = ("test", "val", "valid", "validation")
TEST_SHARE = 0.2
MOST_CHECKED = 20_000
UNEQUAL = 10
"""Classes whose sizes differ by more than this factor are reported."""
OVERVIEW, SPLIT = "pictures.png", "split.csv"
CELL, COLUMNS, ROWS = 64, 10, 12


def as_place(name: str) -> str | None:
    """Return a URL as it is, an existing file or folder as an absolute path, else None."""
    if "://" in name:
        return name
    path = Path(name)
    return str(path.resolve()) if path.exists() or len(path.parts) > 1 else None


def open_own(place: str, train: bool) -> Any:
    """Return one split of the pictures at ``place`` as a dataset of (H, W, 3) uint8 images.

    It has ``classes``, and ``unreadable``, the files that were left out. Where there is one set of
    class folders only, a fifth of each class is the test split; which pictures these are depends on
    their names alone. DataError if there is no such place, or if its splits have different classes.
    """
    root = Path(place)
    if "://" in place:
        name = TRAIN_NAMES[0] if train else TEST_NAMES[0]
        return data.open_remote(f"{place.rstrip('/')}/{name}", layout="HWC", dtype="uint8")
    if root.is_file():
        return _part(data.PackedDataset(root), train)
    if not root.is_dir():
        raise DataError(f"--data: {place} does not exist; give a folder of pictures")
    found = [_split_of(root, names) for names in (TRAIN_NAMES, TEST_NAMES)]
    if found[0] and found[1]:
        splits = [_open(path) for path in found if path]
        _check_classes(root, splits[0].classes, splits[1].classes)
        return _readable(splits[0 if train else 1])
    return _readable(_part(_open(found[0] or found[1] or root), train))


def _split_of(root: Path, names: Sequence[str]) -> Path | None:
    """Return the folder with class folders, or the packed file, of a split, if there is one."""
    folders = [root / name for name in names]
    found = [path for path in folders if any(each.is_dir() for each in path.glob("*"))]
    found += [path for path in (root / f"{name}.arrow" for name in names) if path.is_file()]
    return found[0] if found else None


def _open(path: Path) -> Any:
    if path.is_file():
        return data.PackedDataset(path)
    return data.ImageFolder(path, layout="HWC", dtype="uint8", scaled_decode=True)


def _check_classes(root: Path, train: Sequence[str], test: Sequence[str]) -> None:
    if tuple(train) != tuple(test):
        apart = ", ".join(sorted(set(train) ^ set(test)))
        raise DataError(
            f"--data: the splits of {root} must have the same classes, only one of them has "
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
    """Return a Subset that knows its classes and, if the dataset does, its labels and paths."""
    part: Any = data.Subset(dataset, places)
    part.classes = dataset.classes
    for name in ("labels", "paths"):
        if hasattr(dataset, name):
            values = getattr(dataset, name)
            setattr(part, name, np.array([values[int(place)] for place in places]))
    return part


def _readable(dataset: Any) -> Any:
    """Return the dataset without the files whose header cannot be read.

    Only files of a folder are looked at, and only the first 20 000.
    """
    folder = getattr(dataset, "dataset", dataset)
    if not isinstance(folder, data.ImageFolder):
        return dataset
    paths = [str(dataset.paths[i]) for i in range(len(dataset))]
    bad = [i for i, path in enumerate(paths[:MOST_CHECKED]) if not _has_header(folder.root / path)]
    if not bad:
        return dataset
    good = chosen(dataset, np.setdiff1d(np.arange(len(paths)), bad))
    good.unreadable = [paths[i] for i in bad]
    return good


def _has_header(path: Path) -> bool:
    try:
        with Image.open(path):
            return True
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError):
        return False


def remarks(train: Any, test: Any) -> list[str]:
    """Return lines that describe the pictures, and warnings of what is probably a mistake."""
    lines = [f"{len(train.classes)} classes: {_listed(train.classes)}"]
    unreadable = [path for part in (train, test) for path in getattr(part, "unreadable", ())]
    if unreadable:
        lines.append(f"warning: {len(unreadable)} files cannot be read: {_listed(unreadable)}")
    suspects = {name.lower() for name in train.classes} & {*TRAIN_NAMES, *TEST_NAMES}
    if suspects:
        lines.append(
            f"warning: {_listed(sorted(suspects))} became classes but seem to be splits; name the "
            "splits train and test"
        )
    if hasattr(train, "labels"):
        counts = np.bincount(train.labels, minlength=len(train.classes))
        least, most = int(counts.argmin()), int(counts.argmax())
        if counts[most] > UNEQUAL * counts[least]:
            lines.append(
                f"warning: the classes are unequal: {counts[most]:,} pictures of "
                f"{train.classes[most]}, {counts[least]:,} of {train.classes[least]}"
            )
    return lines


def _listed(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(str(name) for name in names[:most]) + (", ..." if len(names) > most else "")


def write_overview(folder: Path, train: Any, test: Any) -> str:
    """Write a sheet of training pictures, a row for each class, and the list of both splits.

    Return a line that names the files and gives the sizes of the pictures.
    """
    names, labels = train.classes[:ROWS], getattr(train, "labels", None)
    sheet = Image.new("RGB", (COLUMNS * CELL, max(1, len(names)) * CELL), "white")
    sizes = []
    for row in range(len(names)):
        members = np.arange(len(train)) if labels is None else np.flatnonzero(labels == row)
        for column, place in enumerate(members[:: max(1, len(members) // COLUMNS)][:COLUMNS]):
            picture = Image.fromarray(np.asarray(train[int(place)][0]).squeeze()).convert("RGB")
            sizes.append(picture.size)
            picture.thumbnail((CELL - 2, CELL - 2))
            sheet.paste(picture, (column * CELL, row * CELL))
    sheet.save(folder / OVERVIEW)
    written = OVERVIEW
    if hasattr(train, "paths") and hasattr(test, "paths"):
        written += f" and {SPLIT}"
        with open(folder / SPLIT, "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(("split", "file"))
            for split, part in (("train", train), ("test", test)):
                table.writerows((split, part.paths[i]) for i in range(len(part)))
    small, large = min(sizes), max(sizes)
    return (
        f"pictures of {small[0]} x {small[1]} to {large[0]} x {large[1]} pixels; see {written} in "
        f"{folder}"
    )
