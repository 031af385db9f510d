"""The columns of a packed file: conversion of samples to columns and back, and the metadata.

A file has a single record batch, so that each column is contiguous and images of equal size can be
gathered from the mapped file. Column kinds, and their Arrow types:

* "number": a primitive column;  "array": fixed-size binary, C order, all samples of one shape;
* "varied": large binary, and ``NAME.shape``, fixed-size binary of int64, the shape of each sample;
* "image": large binary, each an image file such as a JPEG;  "text": large string;  "bytes".

The last column, ``needle.crc32``, holds a checksum of each sample's bytes, taken in column order.
Called by datasets/packed_writing.py and datasets/packed_reading.py.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from ...dtypes import unmasked
from .decoding import simplejpeg

VERSION = 1
METADATA, METADATA_CHECK = b"needle", b"needle.crc32"
CHECKSUMS = "needle.crc32"
KINDS = ("number", "array", "varied", "image", "text", "bytes")
STRUCTURES = ("single", "tuple", "list", "dict")
MAX_WIDTH = 2**31 - 1
"""Maximum bytes of a value in a fixed-size binary column."""


@dataclass(frozen=True)
class Column:
    """One field of the samples, stored as a column.

    dtype: NumPy's name of the dtype, for numbers and arrays. shape: the shape of an "array"; for a
    "varied" column only the rank counts. python: "int", "float" or "bool" if numbers are returned
    as Python numbers. mode: "RGB" or "L", the mode in which images are decoded. oriented: False if
    images stay as they are stored, regardless of their EXIF orientation.
    """

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    python: str = ""
    mode: str = "RGB"
    oriented: bool = True

    @property
    def width(self) -> int:
        """The number of bytes of one number or array."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=object))

    @cached_property
    def shape_bytes(self) -> bytes:
        """The shape as bytes, as it enters checksums."""
        return np.array(self.shape, "<i8").tobytes()


Value = tuple[Column, Any]
"""A field of a sample: its column and the bytes to write."""


@dataclass(frozen=True)
class Description:
    """The metadata of a packed file, which ``pack`` writes and ``PackedDataset`` checks."""

    length: int
    structure: str
    columns: tuple[Column, ...]
    layout: str | None = None
    classes: tuple[str, ...] | None = None

    def to_metadata(self) -> dict[bytes, bytes]:
        """Return the metadata of the Arrow schema, with its own checksum."""
        text = json.dumps({"version": VERSION, **asdict(self)}).encode()
        return {METADATA: text, METADATA_CHECK: str(zlib.crc32(text)).encode()}

    @classmethod
    def from_metadata(cls, metadata: dict[bytes, bytes] | None) -> Description:
        """Return the metadata; raise ValueError, KeyError or TypeError if they are invalid."""
        if not metadata or METADATA not in metadata:
            raise ValueError("it has no metadata 'needle'; only files written by pack() are read")
        text = metadata[METADATA]
        if metadata.get(METADATA_CHECK) != str(zlib.crc32(text)).encode():
            raise ValueError("the checksum of the metadata 'needle' is wrong")
        fields = json.loads(text)
        version = fields.pop("version")
        if version != VERSION:
            raise ValueError(
                f"it has version {version}, but this version of needle reads {VERSION}"
            )
        columns = tuple(
            Column(**{**column, "shape": tuple(column["shape"])})
            for column in fields.pop("columns")
        )
        classes = fields.pop("classes")
        found = cls(columns=columns, classes=None if classes is None else tuple(classes), **fields)
        if found.structure not in STRUCTURES or any(c.kind not in KINDS for c in columns):
            raise ValueError("the metadata name an unknown structure or kind of column")
        return found

    def rebuild(self, values: list[Any]) -> Any:
        """Return a sample (or batch) built from one value per column."""
        if self.structure == "single":
            return values[0]
        if self.structure == "dict":
            return {column.name: value for column, value in zip(self.columns, values)}
        return tuple(values) if self.structure == "tuple" else values


def columns_of(sample: Any, index: int) -> tuple[str, list[Value]]:
    """Return the structure of a sample, and the column and bytes of each field."""
    structure, names, fields = _fields_of(sample)
    if not fields:
        raise TypeError(f"pack: sample {index} must have a field, got an empty {structure}")
    values = []
    for name, field in zip(names, fields):
        try:
            values.append(_value(name, field))
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"pack: sample {index}: field {name!r}: {error}") from None
    return structure, values


def as_jpeg(values: list[Value], quality: int, index: int) -> list[Value]:
    """Return ``values`` with uint8 ``(H, W, 1 | 3)`` images as JPEG; TypeError if there is none."""
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
            f"got {', '.join(in_words(column) for column, _ in values)}; open the dataset with "
            f"dtype='uint8', layout='HWC'"
        )
    return found


def in_words(column: Column) -> str:
    """Return a description of a column's content for error messages."""
    if column.python:
        return f"a Python {column.python}"
    if column.kind in ("number", "array"):
        return f"{column.dtype} {column.shape}"
    return f"{column.kind} ({column.mode})" if column.kind == "image" else column.kind


def arrow_fields(pa: ModuleType, columns: tuple[Column, ...]) -> list[Any]:
    """Return the Arrow fields of these columns in order, including shapes and checksums."""
    fields = []
    for column in columns:
        fields.append(pa.field(column.name, _arrow_type(pa, column), nullable=False))
        if column.kind == "varied":
            shape = pa.binary(8 * len(column.shape))
            fields.append(pa.field(f"{column.name}.shape", shape, nullable=False))
    return [*fields, pa.field(CHECKSUMS, pa.uint32(), nullable=False)]


def _arrow_type(pa: ModuleType, column: Column) -> Any:
    if column.kind == "number":
        dtype = np.dtype(column.dtype)
        # Arrow packs booleans into bits and has no complex or extended dtypes, so store raw bytes.
        as_bytes = dtype.kind in "bc" or dtype.itemsize > 8
        return pa.binary(dtype.itemsize) if as_bytes else pa.from_numpy_dtype(dtype)
    if column.kind == "array":
        return pa.binary(column.width)
    return pa.large_string() if column.kind == "text" else pa.large_binary()


def pyarrow(owner: str) -> ModuleType:
    """Return the module; raise ImportError, which names ``owner``, if it is not installed."""
    try:
        import pyarrow as module
        import pyarrow.ipc
    except ImportError as error:
        raise ImportError(
            f"{owner}: packed files need pyarrow, which is not installed; "
            f"pip install 'needle[packed]' or pip install pyarrow"
        ) from error
    return module  # type: ignore[no-any-return]


def _fields_of(sample: Any) -> tuple[str, list[str], list[Any]]:
    """Return the structure of a sample, and the names and values of its fields."""
    if isinstance(sample, dict):
        if not all(isinstance(key, str) for key in sample):
            raise TypeError(f"pack: the keys of a dict must be text, got {list(sample)}")
        return "dict", list(sample), list(sample.values())
    if isinstance(sample, (tuple, list)):
        kind = "tuple" if isinstance(sample, tuple) else "list"
        return kind, [str(i) for i in range(len(sample))], list(sample)
    return "single", ["0"], [sample]


def _value(name: str, field: Any) -> Value:
    """Return the column that stores a value, and the value's bytes."""
    if isinstance(field, str):
        return Column(name, "text"), field.encode()
    if isinstance(field, bytes):
        return Column(name, "bytes"), field
    if isinstance(field, (bool, int, float)) and not isinstance(field, np.generic):
        kind = next(each for each in (bool, int, float) if isinstance(field, each)).__name__
        dtype = {"bool": "bool", "float": "float64"}.get(kind, "int64")
        if kind == "int" and not -(2**63) <= field < 2**63:
            raise OverflowError(f"an int must fit int64, got {field}; pack it as text or a float")
        return Column(name, "number", dtype, python=kind), np.array(field, dtype).tobytes()
    found = unmasked("pack", field)
    if found.dtype.kind not in "biufc":
        raise TypeError(
            "it must be an array of numbers, a number, text or bytes, got "
            f"{type(field).__name__}; turn it into one of them"
        )
    found = found.astype(found.dtype.newbyteorder("<"), order="C", copy=False)
    kind = "array" if found.ndim else "number"
    return Column(name, kind, found.dtype.name, found.shape), found.tobytes()
