"""PackedDataset: reads files written by ``pack`` through a memory map.

pyarrow parses the schema and locates the columns. Every offset is checked against the file size,
and samples are read through NumPy views of the map, so damaged bytes raise an error.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np

from ...errors import DataError
from ..formats.arrow_columns import Column, Description, arrow_fields, pyarrow
from ..formats.decoding import decode
from ..formats.files import MAX_METADATA, open_file
from ..samples.native_kernels import Array
from ..samples.ticket import check_indices
from .dataset import ItemTransform
from .decode_size import ScaledDecoding
from .indexing import Indices, check_index, several

MARK = b"ARROW1"


class GarbledSample(DataError):
    """Raised if a sample's bytes do not match the checksum that ``pack`` wrote."""


class PackedDataset(ScaledDecoding):
    """The samples of a file written by ``pack``; encoded images are decoded to uint8 HWC.

    path: the file, which is memory-mapped: opening takes the same time for any size, and processes
    share its pages. ``transforms`` receive the first field. Arrays are read-only views of the
    file. checked: verify each sample's checksum when this process first reads it (4 GB/s); False
    verifies encoded images only. scaled_decode, oriented: see ``ImageFolder``; images from a data
    set with ``oriented=False`` stay as they are stored. Slices and index arrays give a list of
    items. Raises DataError, naming the file and the offset, if the file is truncated, damaged or in
    another format. Do not truncate an open file, because access to the lost pages kills the
    process. Only the path is pickled; another process maps the file again.
    """

    _fixed = frozenset({"path"})

    def __init__(
        self,
        path: str | os.PathLike[str] | PackedFile,
        transforms: Sequence[ItemTransform] | None = None,
        *,
        checked: bool = True,
        scaled_decode: bool = False,
        oriented: bool = True,
    ) -> None:
        super().__init__(transforms, scaled_decode, oriented)
        found = path if isinstance(path, PackedFile) else _mapped(Path(path).absolute())
        self.path, self.checked = Path(found.name), checked
        self._open: PackedFile | None = found
        self._identity = found.identity
        self.layout, self.classes = found.description.layout, found.description.classes

    def __len__(self) -> int:
        return self._map.description.length

    def __getitem__(self, index: Any) -> Any:
        if (places := several(index, len(self))) is not None:
            return [self[i] for i in places.tolist()]
        place = check_index("PackedDataset", index, len(self))
        file = self._map
        self.rows(np.array([place]))
        first = file.description.columns[0]
        region = self.region_of(first.mode, "uint8") if first.kind == "image" else None
        options: dict[str, Any] = {"at_least": self.decode_at_least, "oriented": self.oriented}
        values = [
            file.value(number, place, region=None if number else region, **options)
            for number in range(len(file.description.columns))
        ]
        values[0] = self.apply_transforms(values[0])
        return file.description.rebuild(values)

    def fetch(self, indices: Indices) -> Any | None:
        """Gather each column in one call if all are numbers or arrays of one shape; else None."""
        whole = self._map.whole
        if self.transforms or whole is None:
            return None
        places = self.rows(check_indices("PackedDataset", indices, len(self)))
        return self._map.description.rebuild([column[places] for column in whole])

    def in_memory(self) -> tuple[Array, ...] | None:
        """Return the mapped columns if the samples are tuples of numbers and arrays, else None."""
        file = self._map
        return file.whole if file.description.structure == "tuple" else None

    def rows(self, indices: Indices) -> Indices:
        """Return ``indices``; raise DataError if the checksum of a sample is wrong."""
        if self.checked or self._map.encoded:
            self._map.check(indices)
        return indices

    @property
    def _map(self) -> PackedFile:
        if self._open is None:
            self._open = _mapped(self.path)
            if self._open.identity != self._identity:
                raise DataError(f"{self.path}: the file has changed since it was opened; reopen it")
        return self._open

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}


class PackedFile:
    """A memory-mapped packed file, with NumPy views of its columns.

    name: the file's name in errors. size: the length of the packed file in bytes; None for the
    whole file. verified: True for each sample whose checksum has been verified.
    """

    def __init__(self, file: IO[bytes], name: str, size: int | None = None) -> None:
        pa = pyarrow("PackedDataset")
        self.name = name
        status = os.fstat(file.fileno())
        self.size = status.st_size if size is None else size
        self.identity = (status.st_size, status.st_mtime_ns)
        try:
            self.memory = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
            self._check_ends()
            self._read_columns(pa)
        except Exception as error:
            raise DataError(
                f"{name}: not a whole packed file of {self.size} bytes "
                f"({type(error).__name__}: {error}); pack or fetch it again"
            ) from error
        columns = self.description.columns
        self.encoded = any(column.kind == "image" for column in columns)
        fixed = all(column.kind in ("number", "array") for column in columns)
        self.whole = tuple(views[0] for views in self.views) if fixed else None
        self.verified = np.zeros(self.description.length, np.bool_)

    def _check_ends(self) -> None:
        """Raise ValueError unless Arrow's magic bytes are at both ends and the footer is small."""
        start, end = self.memory[: len(MARK)], self.memory[-len(MARK) :]
        if start != MARK:
            raise ValueError(f"it has another format: it starts with {start!r}, not {MARK!r}")
        if end != MARK or self.size < 2 * len(MARK) + 6:
            raise ValueError(f"it is truncated: it ends with {end!r}, not {MARK!r}")
        footer = int.from_bytes(self.memory[-len(MARK) - 4 : -len(MARK)], "little")
        if footer > MAX_METADATA:
            raise ValueError(f"its metadata have {footer} bytes, more than {MAX_METADATA}")

    def _read_columns(self, pa: ModuleType) -> None:
        whole = pa.py_buffer(self.memory)
        reader = pa.ipc.open_file(pa.BufferReader(whole))
        self.description = Description.from_metadata(reader.schema.metadata)
        columns, length = self.description.columns, self.description.length
        fields = arrow_fields(pa, columns)
        if list(reader.schema) != fields:
            raise ValueError("the schema does not match its metadata")
        if reader.num_record_batches != 1 or _is_compressed(memoryview(self.memory)):
            raise ValueError("it must have one uncompressed record batch")
        batch = reader.get_batch(0)
        batch.validate()
        if not 0 < length == batch.num_rows:
            raise ValueError(f"it must have {length} samples, got {batch.num_rows}")
        places = [self._places(array, whole.address) for array in batch.columns]
        self.checksums = self._view(places.pop()[-1], np.dtype("<u4"), (length,))
        self.views: list[tuple[Array, ...]] = []
        self.starts: list[int] = []
        for column in columns:
            mine = [places.pop(0) for _ in range(2 if column.kind == "varied" else 1)]
            self.starts.append(mine[0][-1][0])
            self.views.append(self._views(column, mine, length))

    def _places(self, array: Any, base: int) -> list[tuple[int, int]]:
        """Return (offset, size), in the file, of an Arrow array's buffers except the validity."""
        if array.offset or array.null_count:
            raise ValueError("a column has an offset or missing values")
        _, *buffers = array.buffers()
        places = [
            (0, 0) if buffer is None or not buffer.size else (buffer.address - base, buffer.size)
            for buffer in buffers
        ]
        if any(start < 0 or start + size > self.size for start, size in places):
            raise ValueError(f"a column lies outside the file: {places}")
        return places

    def _views(
        self, column: Column, places: list[list[tuple[int, int]]], length: int
    ) -> tuple[Array, ...]:
        """Return (values,), or (bytes, offsets[, shapes]) for values of variable size."""
        if column.kind in ("number", "array"):
            dtype = np.dtype(column.dtype)
            return (self._view(places[0][0], dtype, (length, *column.shape)),)
        offsets, data = places[0]
        views = [
            self._view(data, np.dtype("u1"), (data[1],)),
            self._view(offsets, np.dtype("<i8"), (length + 1,)),
        ]
        if column.kind == "varied":
            shape = (length, len(column.shape))
            views.append(self._view(places[1][0], np.dtype("<i8"), shape))
        return tuple(views)

    def _view(self, place: tuple[int, int], dtype: Any, shape: tuple[int, ...]) -> Array:
        start, size = place
        need = dtype.itemsize * prod(shape)
        if min(shape) < 0 or need > size:
            raise ValueError(f"{shape} of {dtype} needs {need} bytes at byte {start}, got {size}")
        if not need:
            return np.zeros(shape, dtype)
        flat = np.frombuffer(self.memory, dtype, need // dtype.itemsize, start)
        return flat.reshape(shape)

    def bytes_of(self, number: int, place: int) -> tuple[Array, int]:
        """Return the bytes of a value of variable size, and their offset in the file."""
        data, offsets = self.views[number][:2]
        start, end = int(offsets[place]), int(offsets[place + 1])
        if not 0 <= start <= end <= len(data):
            raise self._garbled(number, place, f"it is at bytes {start} to {end} of {len(data)}")
        return data[start:end], self.starts[number] + start

    def value(self, number: int, place: int, **options: Any) -> Any:
        """Return one field of one sample; options: those of ``decode``, for an image."""
        column = self.description.columns[number]
        if column.kind in ("number", "array"):
            found = self.views[number][0][place]
            return found.item() if column.python else found
        content, byte = self.bytes_of(number, place)
        if column.kind == "image":
            name = f"{self.name}: sample {place} at byte {byte}"
            options["oriented"] = column.oriented and options.get("oriented", True)
            return decode(content.data, column.mode, name=name, **options)
        if column.kind == "varied":
            return self._varied(number, place, content)
        try:
            raw = content.tobytes()
            return raw.decode() if column.kind == "text" else raw
        except UnicodeDecodeError as error:
            raise self._garbled(number, place, str(error)) from None

    def check(self, places: Indices) -> None:
        """Raise DataError for the first of these samples that has a wrong checksum."""
        new = places[~self.verified[places]]
        for place, expected in zip(new.tolist(), self.checksums[new].tolist()):
            if self._checksum(place) != expected:
                raise self._garbled(0, place, "its checksum is wrong")
        self.verified[new] = True

    def _checksum(self, place: int) -> int:
        checksum = 0
        for number, (column, views) in enumerate(zip(self.description.columns, self.views)):
            if column.kind == "array":
                checksum = zlib.crc32(column.shape_bytes, checksum)
            if column.kind == "varied":
                checksum = zlib.crc32(views[2][place].data, checksum)
            fixed = len(views) == 1
            content = views[0][place : place + 1] if fixed else self.bytes_of(number, place)[0]
            checksum = zlib.crc32(content.data, checksum)
        return checksum

    def _varied(self, number: int, place: int, content: Array) -> Array:
        dtype = np.dtype(self.description.columns[number].dtype)
        shape = [int(axis) for axis in self.views[number][2][place]]
        need = dtype.itemsize * prod(shape)
        if min(shape) < 0 or need != len(content):
            raise self._garbled(number, place, f"shape {shape} of {dtype} in {len(content)} bytes")
        return content.view(dtype).reshape(shape)

    def _garbled(self, number: int, place: int, what: str) -> GarbledSample:
        views, byte = self.views[number], self.starts[number]
        if len(views) == 1:
            byte += place * int(views[0][:1].nbytes)
        else:
            byte += min(max(0, int(views[1][place])), len(views[0]))
        name = self.description.columns[number].name
        return GarbledSample(
            f"{self.name}: sample {place}, field {name!r} at byte {byte} is garbled: {what}; pack "
            f"or fetch the file again"
        )


def _is_compressed(content: memoryview) -> bool:
    """Return True if the first record batch of an Arrow file has the field "compression".

    pyarrow offers no way to check before it decompresses. The file ends with its footer, the
    footer's length in four bytes, and the magic bytes. The batches are
    field 3 of Footer; the batch is field 2 of its Message, compression field 3 of RecordBatch.
    """
    unpack = struct.unpack_from
    end = len(content) - len(MARK) - 4
    footer = _target(content, end - unpack("<i", content, end)[0])
    blocks = _target(content, _field(content, footer, 3))
    (start,) = unpack("<q", content, blocks + 4)
    if bytes(content[start : start + 4]) != b"\xff\xff\xff\xff":
        raise ValueError("its record batch begins with no mark")
    batch = _target(content, _field(content, _target(content, start + 8), 2))
    return _field(content, batch, 3) != 0


def _target(content: memoryview, place: int) -> int:
    """Return the position to which the FlatBuffers offset at ``place`` points."""
    return place + int(struct.unpack_from("<I", content, place)[0])


def _field(content: memoryview, table: int, number: int) -> int:
    """Return the position of a field in a FlatBuffers table; 0 if the table lacks it."""
    fields = table - struct.unpack_from("<i", content, table)[0]
    size, slot = struct.unpack_from("<H", content, fields)[0], 4 + 2 * number
    place = struct.unpack_from("<H", content, fields + slot)[0] if size > slot else 0
    return table + int(place) if place else 0


def _mapped(path: Path) -> PackedFile:
    with open_file(path) as file:
        return PackedFile(file, str(path))
