"""The catalogue of the objects of a data set in a store, read from needle-index.json or a listing.

``upload`` writes the index last. It has the order of the samples, their classes and the MD5 of each
object. The index is untrusted input, so it is checked. remote_images.py and remote_packed.py read
the objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.datasets.image_folder import OTHER_IMAGES, check_classes, warn_of_others
from ..data.formats.decoding import EXTENSIONS
from ..data.formats.files import MAX_BYTES, MAX_METADATA, check_list, is_hidden
from ..data.formats.string_table import StringTable
from ..errors import DataError
from .protocols import MD5
from .retry import Damaged, ObjectMissing
from .store import Store, Wanted

INDEX = "needle-index.json"
VERSION = 1
KINDS = ("images", "packed")
PACKED = ".arrow"
MAX_INDEX = MAX_METADATA
"""Maximum size of an index in bytes: 600 000 images, or shards with any number of samples."""
MIN_ROW = 40
"""Minimum size of an index row in bytes, so that empty rows do not fill the memory."""
MAX_SAMPLES = 1 << 48
INVALID = (RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Catalogue:
    """A table of a data set's objects, in order, as arrays that pickle without a copy.

    kind: "images", one object per sample in folders named after their class, or "packed", files
    written by ``pack``. numbers: int64 ``(n,)``, the class of each image or the sample count of
    each file. tags: the MD5 ("md5:...", from the index) or ETag ("etag:...") of each object.
    """

    kind: str
    classes: tuple[str, ...] | None
    layout: str | None
    names: StringTable
    sizes: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    tags: StringTable

    def __len__(self) -> int:
        return len(self.names)

    def wanted(self, place: int, sample: int | None = None) -> Wanted:
        """Return the request for an object."""
        kind, _, value = self.tags[place].partition(":")
        tag = {kind: value} if value else {}
        return Wanted(self.names[place], int(self.sizes[place]), sample=sample, **tag)  # type: ignore[arg-type]

    def key(self, url: str, place: int) -> str:
        """Return the object's cache key, which changes with its content."""
        return f"{url}{self.names[place]}\n{self.sizes[place]}\n{self.tags[place]}"


def read_catalogue(store: Store, extensions: Sequence[str] = EXTENSIONS) -> Catalogue:
    """Return the catalogue from the index or a listing; raise DataError if there is no data set."""
    check_list("RemoteImageFolder", "extensions", extensions)
    try:
        (found,) = store.get([Wanted(INDEX, most=MAX_INDEX, parse=_parsed)])
    except ObjectMissing:
        return _from_listing(store, tuple(ending.lower() for ending in extensions))
    return found  # type: ignore[no-any-return]


def to_index(
    kind: str,
    classes: Sequence[str] | None,
    layout: str | None,
    rows: Iterable[tuple[str, int, str, int]],
) -> bytes:
    """Return the index of the objects (name, size, MD5, number), one per line."""
    head = {"needle": VERSION, "kind": kind, "classes": classes, "layout": layout}
    lines = ",\n".join(json.dumps(row) for row in rows)
    return f'{json.dumps(head)[:-1]}, "objects": [\n{lines}\n]}}\n'.encode()


def _parsed(content: bytes) -> Catalogue:
    """Return the catalogue; raise Damaged for an invalid index, so that it is fetched again."""
    try:
        if content.count(b"[") > len(content) // MIN_ROW + 3:
            raise ValueError("it has more rows than its bytes can hold")
        return _from_index(json.loads(content))
    except (AttributeError, ArithmeticError, LookupError, *INVALID) as error:
        what = f"{type(error).__name__}: {error!s:.200}"
        raise Damaged(f"not an index of a data set ({what})") from None


def _from_index(found: dict[str, Any]) -> Catalogue:
    if found["needle"] != VERSION:
        raise ValueError(
            f"it has version {found['needle']}, but this version of needle reads {VERSION}"
        )
    kind, classes, rows = found["kind"], found["classes"], found["objects"]
    if kind not in KINDS or not rows:
        raise ValueError(f"it has {len(rows)} objects of kind {kind!r}")
    names, sizes, digests, numbers = zip(*rows)
    for name, size, digest, number in rows:
        unsafe = name.startswith("/") or ".." in name.split("/")
        if unsafe or not MD5.fullmatch(digest) or min(size, number) < 0:
            raise ValueError(f"an object is {name!r}, {size}, {digest!r}, {number}")
        if size > MAX_BYTES and kind == "images":
            raise ValueError(
                f"{name!r} has {size} bytes, but an image may have at most {MAX_BYTES}"
            )
    different = len(set(names))
    if different < len(names) and different < len(set(map(tuple, rows))):
        raise ValueError("an object is listed twice, with different contents or classes")
    if sum(numbers) > MAX_SAMPLES:
        raise ValueError(f"it has {sum(numbers)} samples, more than {MAX_SAMPLES}")
    if kind == "images" and max(numbers) >= len(classes):
        raise ValueError(f"it has {len(classes)} classes and an image of class {max(numbers)}")
    return Catalogue(
        kind,
        None if classes is None else tuple(map(str, classes)),
        found["layout"],
        StringTable(names),
        np.array(sizes, np.int64),
        np.array(numbers, np.int64),
        StringTable(f"md5:{digest}" for digest in digests),
    )


def _from_listing(store: Store, endings: tuple[str, ...]) -> Catalogue:
    """Return the catalogue of the images ``CLASS/**/NAME.jpg`` in the order of ImageFolder."""
    rows, others, folders, packed = [], list[str](), set[str](), False
    for row in store.listing():
        packed |= row.name.endswith(PACKED)
        name, inside, _ = row.name.partition("/")
        if inside and not is_hidden(row.name):
            folders.add(name)
            if row.name.lower().endswith(endings):
                rows.append((name, row))
            elif row.name.lower().endswith(OTHER_IMAGES):
                others.append(row.name)
    if not rows:
        hint = (
            f"packed files need {INDEX}, which data.upload() writes"
            if packed
            else (f"it must have {INDEX}, or images ({', '.join(endings)}) in one folder per class")
        )
        raise DataError(f"{store.url}: there is no data set; {hint}")
    rows.sort(key=lambda each: (each[0], each[1].name))
    classes = sorted({name for name, _ in rows})
    check_classes("RemoteImageFolder", store.url, sorted(folders.difference(classes)), endings)
    warn_of_others(store.url, others)
    number = {name: i for i, name in enumerate(classes)}
    return Catalogue(
        "images",
        tuple(classes),
        None,
        StringTable(row.name for _, row in rows),
        np.array([row.size for _, row in rows], np.int64),
        np.array([number[name] for name, _ in rows], np.int64),
        StringTable(f"etag:{row.etag}" for _, row in rows),
    )
