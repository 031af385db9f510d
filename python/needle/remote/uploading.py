"""Upload of a data set to a store, where RemoteImageFolder or RemotePacked reads it.

Objects that already exist with the same content are not sent again. The index is written last,
which completes the data set.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..data.datasets.combinations import Subset
from ..data.datasets.packed_writing import pack
from ..data.formats.decoding import pillow
from ..data.formats.progress import progress_bar
from ..errors import DataError, StoreError
from .catalogue import INDEX, MAX_INDEX, MIN_ROW, PACKED, to_index
from .retry import ObjectMissing, Retry
from .store import Store, md5_of

SHARD_BYTES = 8 << 20
"""Approximate bytes of a shard, so that one range request fetches it."""
IMAGES_AT_ONCE, SHARDS_AT_ONCE = 64, 8
"""Number of objects encoded, compared and sent together."""

Made = tuple[str, bytes, int]
"""The name, the content, and the class of an image or the sample count of a shard."""
Row = tuple[str, int, str, int]


def upload(
    dataset: Any,
    url: str | os.PathLike[str],
    *,
    packed: bool = False,
    samples_per_shard: int | None = None,
    encode: str | None = None,
    retry: Retry | None = None,
    progress: bool = True,
) -> str:
    """Write all samples of a map dataset to ``s3://bucket/prefix`` or a folder; return the address.

    By default each image becomes an object in the folder of its class: the unchanged file from an
    ``ImageFolder``, or a PNG of an image (uint8, or floats in 0..1) from any other dataset of
    (image, label) with ``classes``. packed: write files of ``samples_per_shard`` samples (None: a
    few megabytes each) as ``pack`` does; encode: as in ``pack``, by default "keep" for image files,
    else "raw". After an interruption, a second call sends only the missing objects, if the store
    returns the MD5 of an object as its ETag. retry: attempts and timeouts. progress: show a
    progress bar on a terminal, if tqdm is installed. A local folder gets the same layout, so that a
    web server can serve it. Raises TypeError or DataError for samples that are not images,
    StoreError if the store refuses them.
    """
    store, total = Store(url, retry), len(dataset)
    if not total:
        raise DataError(
            f"upload: the dataset must have at least one sample, got none for {store.url}"
        )
    if store.url.startswith(("http://", "https://")):
        raise StoreError(
            f"upload: a web server cannot be written to; give s3://bucket/prefix or a folder, got "
            f"{store.url}"
        )
    if not packed:
        _check_index(store, total * MIN_ROW)  # fails before anything is uploaded
    encode = encode or ("keep" if hasattr(dataset, "encoded") else "raw")
    made = _packed(dataset, samples_per_shard, encode) if packed else _images(dataset)
    with progress_bar(progress, total, f"uploading to {store.url}", " samples") as bar:

        def done(number: int) -> None:
            if bar is not None:
                bar.update(number if packed else 1)

        rows = _send(store, made, SHARDS_AT_ONCE if packed else IMAGES_AT_ONCE, done)
    classes = getattr(dataset, "classes", None)
    names = None if classes is None else [str(name) for name in classes]
    layout = getattr(dataset, "layout", None) if packed and encode == "raw" else "HWC"
    index = to_index("packed" if packed else "images", names, layout, rows)
    _check_index(store, len(index))
    store.put([(INDEX, index)])
    return store.url


def _check_index(store: Store, size: int) -> None:
    if size > MAX_INDEX:
        raise DataError(
            f"upload: the index of {store.url} may have at most {MAX_INDEX} bytes, got at least "
            f"{size}; give packed=True, or fewer images"
        )


def _send(
    store: Store, made: Iterator[Made], at_once: int, done: Callable[[int], None]
) -> list[Row]:
    """Put the missing objects, calling ``done`` after each; return the rows of the index."""
    there = _etags(store)
    rows: list[Row] = []
    while group := list(islice(made, at_once)):
        numbers, new = {name: number for name, _, number in group}, []
        for name, content, number in group:
            rows.append((name, len(content), md5_of(content), number))
            if there.get(name) == rows[-1][2]:
                done(number)
            else:
                new.append((name, content))
        store.put(new, lambda name: done(numbers[name]))  # noqa: B023 - called before the next
    return rows


def _etags(store: Store) -> dict[str, str]:
    """Return the ETag of each object in the store; empty for a new data set."""
    try:
        return {row.name: row.etag for row in store.listing()}
    except ObjectMissing:
        return {}


# ---- one object per image ------------------------------------------------------------------------


def _images(dataset: Any) -> Iterator[Made]:
    """Yield (name, content, class) of each sample."""
    classes = getattr(dataset, "classes", None)
    if classes is None:
        raise TypeError(
            f"upload: images go into one folder per class, got {type(dataset).__name__} without "
            f"classes; set dataset.classes, or give packed=True"
        )
    folders = [str(name).replace("/", "-") or "-" for name in classes]
    if len(set(folders)) != len(folders):
        raise DataError(f"upload: classes must have different names, got {', '.join(folders)}")
    if hasattr(dataset, "encoded") and hasattr(dataset, "paths"):
        for i in range(len(dataset)):
            content, label = dataset.encoded(i)
            yield dataset.paths[i].replace(os.sep, "/"), content, label
        return
    digits = len(str(len(dataset) - 1))
    for i in range(len(dataset)):
        pixels, label = _pixels(dataset, i)
        if not 0 <= label < len(folders):
            raise DataError(
                f"upload: the label of sample {i} must be the number of one of {len(folders)} "
                f"classes, got {label}"
            )
        yield f"{folders[label]}/{i:0{digits}}.png", _png(pixels), label


def _pixels(dataset: Any, index: int) -> tuple[Any, int]:
    """Return uint8 ``(H, W)`` or ``(H, W, 3)``, and the label."""
    try:
        image, label = dataset[index]
        image = np.asarray(image)
        if getattr(dataset, "layout", "HWC") == "CHW":
            image = image.transpose(1, 2, 0)
        if image.dtype.kind == "f":
            image = np.rint(image * 255)
            if not ((image >= 0) & (image <= 255)).all():
                raise ValueError("its values must be in 0..1")
            image = image.astype(np.uint8)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
            raise ValueError(f"it is {image.dtype} {image.shape}")
        return (image[..., 0] if image.shape[2] == 1 else image), int(label)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"upload: sample {index} must be (image, label) with an image uint8 or float "
            f"(H, W, 1 | 3): {error}; give packed=True for other samples"
        ) from error


def _png(pixels: Any) -> bytes:
    out = io.BytesIO()
    pillow("upload").fromarray(pixels).save(out, "PNG", compress_level=6)
    return out.getvalue()


# ---- packed --------------------------------------------------------------------------------------


def _packed(dataset: Any, samples_per_shard: int | None, encode: str) -> Iterator[Made]:
    """Yield (name, content, samples) of each shard."""
    total = len(dataset)
    with tempfile.TemporaryDirectory(prefix="needle-upload-") as folder:

        def packed_file(start: int, stop: int) -> bytes:
            path = Path(folder) / "part"
            part = Subset(dataset, np.arange(start, stop))
            pack(part, path, encode=encode, progress=False)
            return path.read_bytes()

        size = samples_per_shard or _samples_of(packed_file(0, min(total, 16)), min(total, 16))
        for number, start in enumerate(range(0, total, size)):
            stop = min(start + size, total)
            yield f"shard-{number:05}{PACKED}", packed_file(start, stop), stop - start


def _samples_of(content: bytes, samples: int) -> int:
    """Return the sample count of a shard of ``SHARD_BYTES``, estimated from a few samples."""
    return max(1, SHARD_BYTES * samples // len(content))
