"""An overview of the user's pictures: remarks, a contact sheet, the split. Called by train.py."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from needle import data
from needle.data.formats.files import is_hidden

UNEQUAL = 10
"""Class sizes that differ by more than this factor are reported."""
SPLIT_NAME = re.compile(
    r"(train|test)(ing)?([\W_\d].*)?|val(id|idation)?([\W_\d].*)?", re.IGNORECASE
)
OVERVIEW, SPLIT = "pictures.png", "split.csv"
CELL, COLUMNS, ROWS = 64, 10, 12
LABEL, MOST_LETTERS = 120, 18
"""Width in pixels of the column of class names, and width of a name in letters."""


def remarks(train: Any, test: Any) -> list[str]:
    """Return lines that describe the pictures and warn of probable mistakes."""
    unreadable = [path for part in (train, test) for path in getattr(part, "unreadable", ())]
    lines = [f"{len(train.classes)} classes: {_listed(train.classes)}"]
    if unreadable:
        lines.append(f"warning: {len(unreadable)} files cannot be read: {_listed(unreadable)}")
    return [*lines, *_split_remarks(train), *_size_remarks(train, test)]


def _split_remarks(train: Any) -> list[str]:
    """Return warnings about splits that were taken for classes."""
    named = [name for name in train.classes if SPLIT_NAME.fullmatch(name)]
    if named:
        return [
            f"warning: {_listed(named)} became classes but seem to be splits; name the splits "
            "train and test"
        ]
    folder = getattr(train, "dataset", train)
    if type(folder) is not data.ImageFolder:
        return []
    inside = [_folders(folder.root / name) for name in train.classes]
    if inside[0] and inside.count(inside[0]) == len(inside):
        return [
            f"warning: each class has the folders {_listed(inside[0])}; if these are the classes, "
            f"{_listed(train.classes)} are splits: name them train and test"
        ]
    holders = [
        name
        for name, folders in zip(train.classes, inside)
        if any(SPLIT_NAME.fullmatch(each) for each in folders)
    ]
    if holders:
        place = folder.root / holders[0]
        return [f"warning: the class {holders[0]} has splits inside; perhaps give --data {place}"]
    return []


def _folders(path: Path) -> list[str]:
    folders = (each.name for each in path.iterdir() if each.is_dir())
    return sorted(name for name in folders if not is_hidden(name))


def _size_remarks(train: Any, test: Any) -> list[str]:
    """Return the sizes of the classes, and warnings about small ones."""
    if not (hasattr(train, "labels") and hasattr(test, "labels")):
        return []
    classes = train.classes
    counts, tested = (np.bincount(part.labels, minlength=len(classes)) for part in (train, test))
    lines = [
        "training and test pictures: "
        + _listed([f"{n} {a:,} + {b:,}" for n, a, b in zip(classes, counts, tested)], ROWS)
    ]
    empty = [name for name, count in zip(classes, counts) if not count]
    if empty:
        lines.append(f"warning: no training pictures of {_listed(empty)}; remove the folders")
    untested = [name for name, a, b in zip(classes, counts, tested) if a and not b]
    if untested:
        lines.append(f"warning: no test pictures of {_listed(untested)}; their accuracy is unknown")
    least, most = int(np.where(counts, counts, counts.max()).argmin()), int(counts.argmax())
    if counts[most] > UNEQUAL * counts[least]:
        lines.append(
            f"warning: the classes are unequal: {counts[most]:,} pictures of {classes[most]}, "
            f"{counts[least]:,} of {classes[least]}"
        )
    return lines


def _listed(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(str(name) for name in names[:most]) + (", ..." if len(names) > most else "")


def write_overview(folder: Path, train: Any, test: Any) -> str:
    """Write a contact sheet of training pictures, one row per class, and the list of both splits.

    Return a line that names the files and gives the sizes of the pictures.
    """
    names, labels = train.classes[:ROWS], getattr(train, "labels", None)
    names = ("all classes",) if labels is None else names
    sheet = Image.new("RGB", (LABEL + COLUMNS * CELL, len(names) * CELL), "white")
    sizes = []
    for row, name in enumerate(names):
        ImageDraw.Draw(sheet).text((8, row * CELL + CELL // 2 - 6), name[:MOST_LETTERS], "black")
        members = np.arange(len(train)) if labels is None else np.flatnonzero(labels == row)
        for column, place in enumerate(members[:: max(1, len(members) // COLUMNS)][:COLUMNS]):
            picture = Image.fromarray(np.asarray(train[int(place)][0]))
            sizes.append(picture.size)
            picture.thumbnail((CELL - 2, CELL - 2))
            sheet.paste(picture, (LABEL + column * CELL, row * CELL))
    sheet.save(folder / OVERVIEW)
    written = OVERVIEW + (f" and {SPLIT}" if _write_split(folder / SPLIT, train, test) else "")
    small, large = (f"{width} x {height}" for width, height in (min(sizes), max(sizes)))
    extent = small if small == large else f"{small} to {large}"
    return f"pictures of {extent} pixels; see {written} in {folder}"


def _write_split(path: Path, train: Any, test: Any) -> bool:
    """Write the files of each split, or its sample numbers; return False if neither is known."""
    kind = "file" if hasattr(train, "paths") else "sample"
    names = "paths" if kind == "file" else "indices"
    if not (hasattr(train, names) and hasattr(test, names)):
        return False
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("split", kind))
        for split, part in (("train", train), ("test", test)):
            table.writerows((split, getattr(part, names)[i]) for i in range(len(part)))
    return True
