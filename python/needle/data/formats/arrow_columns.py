"""What a packed file says about itself: its columns and how they make samples, as metadata.

One record batch, so that a column lies in one piece: images of one size can then be gathered
straight from the map. Column kinds, and the Arrow type that holds them:

* "number": a primitive column;  "array": fixed-size binary, C order, all samples of one shape;
* "varied": large binary, and ``NAME.shape``, fixed-size binary of int64, for each sample's shape;
* "image": large binary, a JPEG or other image file each;  "text": large string;  "bytes".

The last column, ``needle.crc32``, has the checksum of each sample's bytes in the columns' order.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import numpy as np

VERSION = 1
METADATA, METADATA_CHECK = b"needle", b"needle.crc32"
CHECKSUMS = "needle.crc32"
KINDS = ("number", "array", "varied", "image", "text", "bytes")
STRUCTURES = ("single", "tuple", "list", "dict")
MAX_WIDTH = 2**31 - 1
"""The bytes that one value of a fixed-size binary column can have."""


@dataclass(frozen=True)
class Column:
    """One field of the samples.

    dtype: of numbers and arrays, NumPy's name. shape: of an "array"; of a "varied" one only the
    number of axes counts. python: "int", "float" or "bool" for numbers that are to come back as
    Python's. mode: "RGB" or "L", to which images are decoded.
    """

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    python: str = ""
    mode: str = "RGB"

    @property
    def width(self) -> int:
        """Bytes of one number or array."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=object))


@dataclass(frozen=True)
class Description:
    """The whole of the metadata: what ``pack`` writes and ``PackedDataset`` checks."""

    length: int
    structure: str
    columns: tuple[Column, ...]
    layout: str | None = None
    classes: tuple[str, ...] | None = None

    def to_metadata(self) -> dict[bytes, bytes]:
        """As the schema's metadata, with a checksum of its own."""
        text = json.dumps({"version": VERSION, **asdict(self)}).encode()
        return {METADATA: text, METADATA_CHECK: str(zlib.crc32(text)).encode()}

    @classmethod
    def from_metadata(cls, metadata: dict[bytes, bytes] | None) -> Description:
        """The metadata checked; ValueError, KeyError or TypeError say what is wrong with it."""
        if not metadata or METADATA not in metadata:
            raise ValueError("it has no metadata 'needle'; only files written by pack() are read")
        text = metadata[METADATA]
        if metadata.get(METADATA_CHECK) != str(zlib.crc32(text)).encode():
            raise ValueError("the metadata 'needle' does not have its checksum")
        fields = json.loads(text)
        version = fields.pop("version")
        if version != VERSION:
            raise ValueError(f"it is of version {version}, this needle reads {VERSION}")
        columns = tuple(
            Column(**{**column, "shape": tuple(column["shape"])})
            for column in fields.pop("columns")
        )
        classes = fields.pop("classes")
        found = cls(columns=columns, classes=None if classes is None else tuple(classes), **fields)
        if found.structure not in STRUCTURES or any(c.kind not in KINDS for c in columns):
            raise ValueError("the metadata names a structure or kind of column that is not known")
        return found

    def rebuild(self, values: list[Any]) -> Any:
        """A sample (or batch) from one value for each column."""
        if self.structure == "single":
            return values[0]
        if self.structure == "dict":
            return {column.name: value for column, value in zip(self.columns, values)}
        return tuple(values) if self.structure == "tuple" else values


def arrow_fields(pa: ModuleType, columns: tuple[Column, ...]) -> list[Any]:
    """The Arrow fields of these columns, in order, with shapes and checksums."""
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
        # Arrow packs booleans into bits, and has no complex or long numbers: those stay bytes.
        as_bytes = dtype.kind in "bc" or dtype.itemsize > 8
        return pa.binary(dtype.itemsize) if as_bytes else pa.from_numpy_dtype(dtype)
    if column.kind == "array":
        return pa.binary(column.width)
    return pa.large_string() if column.kind == "text" else pa.large_binary()


def pyarrow(owner: str) -> ModuleType:
    """The library; ImportError in the name of ``owner`` where it is not installed."""
    try:
        import pyarrow as module
        import pyarrow.ipc
    except ImportError as error:
        raise ImportError(
            f"{owner}: packed files need pyarrow, which is not installed; "
            f"pip install 'needle[packed]' or pip install pyarrow"
        ) from error
    return module  # type: ignore[no-any-return]
