"""Samples taken apart for packing: for each field its column, and the bytes that are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..formats.arrow_columns import Column
from ..formats.decoding import simplejpeg


def columns_and_bytes(
    dataset: Any, encode: str, quality: int
) -> Iterator[tuple[str, list[tuple[Column, Any]]]]:
    """Each sample as its structure and, for each field, the column and the bytes to write."""
    if encode == "keep" and not hasattr(dataset, "encoded"):
        raise TypeError(
            f"pack: encode='keep' needs a dataset of image files with encoded(index), got "
            f"{type(dataset).__name__}; use 'raw' or 'jpeg'"
        )
    for i in range(len(dataset)):
        sample = dataset.encoded(i) if encode == "keep" else dataset[i]
        structure, names, fields = _taken_apart(sample)
        try:
            values = [_value(name, field) for name, field in zip(names, fields)]
        except (TypeError, OverflowError) as error:
            raise TypeError(f"pack: sample {i}: {error}") from None
        if encode == "jpeg":
            values = _as_jpeg(values, quality, i)
        elif encode == "keep":
            values[0] = (Column(names[0], "image"), values[0][1])
        yield structure, values


def _taken_apart(sample: Any) -> tuple[str, list[str], list[Any]]:
    if isinstance(sample, dict):
        if not all(isinstance(key, str) for key in sample):
            raise TypeError(f"pack: the keys of a dict must be text, got {list(sample)}")
        return "dict", list(sample), list(sample.values())
    if isinstance(sample, (tuple, list)):
        kind = "tuple" if isinstance(sample, tuple) else "list"
        return kind, [str(i) for i in range(len(sample))], list(sample)
    return "single", ["0"], [sample]


def _value(name: str, field: Any) -> tuple[Column, Any]:
    """The column that a value calls for, and its bytes."""
    if isinstance(field, str):
        return Column(name, "text"), field.encode()
    if isinstance(field, bytes):
        return Column(name, "bytes"), field
    if isinstance(field, (bool, int, float)) and not isinstance(field, np.generic):
        kind = type(field).__name__
        dtype = {"bool": "bool", "float": "float64"}.get(kind, "int64")
        return Column(name, "number", dtype, python=kind), np.array(field, dtype).tobytes()
    found = np.asarray(field)
    if found.dtype.kind not in "biufc":
        raise TypeError(
            f"field {name!r} must be an array of numbers, a number, text or bytes, got "
            f"{type(field).__name__}; turn it into one of them"
        )
    found = found.astype(found.dtype.newbyteorder("<"), order="C", copy=False)
    kind = "array" if found.ndim else "number"
    return Column(name, kind, found.dtype.name, found.shape), found.tobytes()


def _as_jpeg(values: list[tuple[Column, Any]], quality: int, index: int) -> list[Any]:
    """``values`` with every uint8 ``(H, W, 1 | 3)`` compressed."""
    library = simplejpeg()
    if library is None:
        raise ImportError(
            "pack: writing JPEG needs simplejpeg, which is not installed; "
            "pip install 'needle[images]' or pip install simplejpeg"
        )
    found, images = [], 0
    for column, content in values:
        pixels = column.kind == "array" and column.dtype == "uint8" and len(column.shape) == 3
        if pixels and column.shape[2] in (1, 3) and 0 not in column.shape:
            mode, space = ("RGB", "RGB") if column.shape[2] == 3 else ("L", "GRAY")
            image = np.frombuffer(content, np.uint8).reshape(column.shape)
            content = library.encode_jpeg(image, quality=quality, colorspace=space)
            column, images = Column(column.name, "image", mode=mode), images + 1
        found.append((column, content))
    if not images:
        raise TypeError(
            f"pack: sample {index}: encode='jpeg' needs an image as uint8 (H, W, 3) or (H, W, 1), "
            f"got {', '.join(words(column) for column, _ in values)}; open the dataset with "
            f"dtype='uint8', layout='HWC'"
        )
    return found


def words(column: Column) -> str:
    """What a column holds, for messages."""
    if column.kind in ("number", "array"):
        return f"{column.dtype} {column.shape}"
    return f"{column.kind} ({column.mode})" if column.kind == "image" else column.kind
