"""write_tar_shards, which writes a data set as tar files in WebDataset's layout, for TarShards."""

from __future__ import annotations

import io
import json
import operator
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...dtypes import unmasked
from ...errors import DataError, check_at_least
from .decoding import pillow
from .files import check_list

KEY = "__key__"
"""The field that holds a sample's name; no member may have it as its extension."""


def write_tar_shards(
    dataset: Any,
    pattern: str | os.PathLike[str],
    samples_per_shard: int = 1000,
    *,
    fields: Sequence[str] = ("png", "cls"),
) -> list[Path]:
    """Write samples, which are tuples with one value per field, to tar files; return their paths.

    pattern: the pattern of the file names, such as "train-%06d.tar". fields: the file extension of
    each field. "png" and "jpg" (quality 95) need uint8 ``(H, W, 3)`` or ``(H, W, 1)``, "cls" an
    int, "txt" text, "json" a JSON value, "npy" an array, others bytes. Each tar file is written
    atomically. Raises DataError if a value is invalid for its field.
    """
    check_list("write_tar_shards", "fields", fields)
    check_at_least("write_tar_shards", "samples_per_shard", samples_per_shard, 1)
    if os.fspath(pattern) == _named(pattern, 0) or _named(pattern, 0) == _named(pattern, 1):
        raise ValueError(
            f"write_tar_shards: pattern must have a placeholder for the number, got {pattern!r}; "
            f"write 'train-%06d.tar'"
        )
    valid = all(each not in ("", KEY) and not set(";/") & set(each) for each in fields)
    if not valid or len({each.lower() for each in fields}) < len(fields):
        raise ValueError(
            f"write_tar_shards: fields must be different file extensions, got {tuple(fields)}; "
            f"they name the members of a sample"
        )
    paths = []
    for number, first in enumerate(range(0, len(dataset), samples_per_shard)):
        paths.append(Path(_named(pattern, number)))
        end = min(first + samples_per_shard, len(dataset))
        _write(dataset, paths[-1], range(first, end), fields)
    return paths


def _named(pattern: str | os.PathLike[str], number: int) -> str:
    try:
        return os.fspath(pattern) % number
    except TypeError:
        return os.fspath(pattern)


def _write(dataset: Any, path: Path, indices: range, fields: Sequence[str]) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        with tarfile.open(part, "w") as tar:
            for i in indices:
                for extension, content in zip(fields, _contents(dataset[i], i, fields)):
                    info = tarfile.TarInfo(f"{i:09d}.{extension}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _contents(sample: Any, index: int, fields: Sequence[str]) -> list[bytes]:
    if not isinstance(sample, (tuple, list)) or len(sample) != len(fields):
        raise DataError(
            f"write_tar_shards: sample {index} must be a tuple of {', '.join(fields)}, got "
            f"{type(sample).__name__} of {len(sample) if hasattr(sample, '__len__') else 1}"
        )
    contents = []
    for extension, value in zip(fields, sample):
        writer = WRITERS.get(extension.rpartition(".")[2].lower(), _as_they_are)
        try:
            contents.append(writer(value))
        except (TypeError, ValueError, AttributeError, OSError) as error:
            raise DataError(
                f"write_tar_shards: sample {index} cannot be written as .{extension} "
                f"({type(error).__name__}: {error}); images are uint8 (H, W, 3) or (H, W, 1)"
            ) from error
    return contents


def _image(form: str) -> Callable[[Any], bytes]:
    def write(value: Any) -> bytes:
        pixels = unmasked("write_tar_shards", value)
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
            raise TypeError(f"{pixels.dtype} {pixels.shape}")
        stream = io.BytesIO()
        image = pillow("write_tar_shards").fromarray(
            pixels[..., 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels)
        )
        image.save(stream, form, quality=95)
        return stream.getvalue()

    return write


def _array(value: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, unmasked("write_tar_shards", value), allow_pickle=False)
    return stream.getvalue()


def _as_they_are(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError("it must be bytes")
    return bytes(value)


WRITERS: dict[str, Callable[[Any], bytes]] = {
    "png": _image("PNG"),
    "jpg": _image("JPEG"),
    "jpeg": _image("JPEG"),
    "cls": lambda value: str(operator.index(value)).encode(),
    "txt": lambda value: value.encode(),
    "json": lambda value: json.dumps(value).encode(),
    "npy": _array,
}
"""Functions that encode a value as the bytes of a member, keyed by extension."""
