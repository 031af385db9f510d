"""pack: writes a data set into one Arrow file. What the file holds is said in columns.py.

Each column is spooled into a scratch file first, since only the last sample tells whether all
have one shape; then the columns are written one after another, from maps, without being loaded.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ...errors import DataError
from ..formats.arrow_columns import MAX_WIDTH, Column, Description, arrow_fields, pyarrow
from .packed_samples import columns_and_bytes, words
from .packed_scratch import scratch_beside, sync

ENCODINGS = ("raw", "jpeg", "keep")


def pack(
    dataset: Any,
    path: str | os.PathLike[str],
    *,
    encode: str = "raw",
    quality: int = 95,
    progress: bool = True,
) -> Path:
    """Writes all samples of a map dataset to ``path``, for ``PackedDataset``; returns the path.

    A sample is a tuple, list or dict (or a single one) of arrays, numbers, text and bytes, taken
    as the dataset gives it, transforms included; so pack uint8 pixels, and augment on reading.
    encode: "raw" keeps arrays as they are; "jpeg" makes JPEGs of ``quality`` 1..100 of uint8
    ``(H, W, 1 | 3)``; "keep" copies the files of an ``ImageFolder`` undecoded, without its
    transforms. progress: a bar on a terminal, where tqdm is installed. Named tuples come back as
    tuples.

    The file appears whole or not at all, and replaces an older one at once. It needs its own
    size a second time, for a while, in a hidden folder beside it; what a killed run left there
    is removed by the next. Raises TypeError or DataError for samples that do not fit each other.
    """
    pa = pyarrow("pack")
    target = Path(path)
    samples = columns_and_bytes(dataset, encode, quality)
    if encode not in ENCODINGS:
        raise ValueError(f"pack: encode must be one of {', '.join(ENCODINGS)}, got {encode!r}")
    if len(dataset) == 0:
        raise DataError("pack: the dataset must have a sample, got none; nothing was written")
    with scratch_beside(target) as scratch:
        with _bar(target.name, len(dataset), progress) as bar:
            spools, checksums, structure = _spool(samples, scratch, bar)
        columns = tuple(spool.finish() for spool in spools)
        description = Description(
            len(dataset), structure, columns, _layout(dataset, encode), _classes(dataset)
        )
        _write(pa, scratch / "packed", description, spools, checksums)
        os.replace(scratch / "packed", target)
        sync(target.parent)
    return target


class _Spool:
    """One column on its way: the bytes in a file, where each value ends, their shapes."""

    def __init__(self, path: Path, column: Column) -> None:
        self.path, self.column = path, column
        self.file = open(path, "wb")  # noqa: SIM115 - closed by finish, or close on failure
        self.ends, self.shapes = array("q", [0]), array("q")
        self.fixed = column.kind == "array"

    def add(self, column: Column, content: Any, checksum: int) -> int:
        """Appends a value; the sample's checksum so far with it. TypeError if it is another."""
        mine = self.column
        if replace(column, shape=()) != replace(mine, shape=()) or (
            len(column.shape) != len(mine.shape)
        ):
            raise TypeError(
                f"expected {words(mine)} in field {mine.name!r} as in sample 0, got "
                f"{words(column)}; give all samples the same fields"
            )
        if column.kind == "array":
            self.fixed &= column.shape == mine.shape
            self.shapes.extend(column.shape)
            checksum = zlib.crc32(np.array(column.shape, dtype="<i8").tobytes(), checksum)
        self.file.write(content)
        self.ends.append(self.ends[-1] + len(content))
        return zlib.crc32(content, checksum)

    def finish(self) -> Column:
        """The column as it turned out: arrays of several shapes are "varied"."""
        self.file.close()
        if self.column.kind == "array" and not (self.fixed and 0 < self.column.width <= MAX_WIDTH):
            self.column = replace(self.column, kind="varied")
        return self.column

    def buffers(self, pa: ModuleType) -> list[list[Any]]:
        """For each Arrow array of this column its buffers."""
        size = self.path.stat().st_size
        data = pa.memory_map(str(self.path)).read_buffer(size) if size else pa.py_buffer(b"")
        if self.column.kind in ("number", "array"):
            return [[None, data]]
        made = [[None, pa.py_buffer(self.ends), data]]
        return made + [[None, pa.py_buffer(self.shapes)]] * (self.column.kind == "varied")


def _spool(
    samples: Iterator[tuple[str, list[tuple[Column, Any]]]], scratch: Path, bar: Any
) -> tuple[list[_Spool], array[int], str]:
    spools: list[_Spool] = []
    checksums, first = array("I"), ""
    try:
        for i, (structure, values) in enumerate(samples):
            if i == 0:
                first = structure
                spools = [_Spool(scratch / str(j), column) for j, (column, _) in enumerate(values)]
            if (structure, len(values)) != (first, len(spools)):
                raise TypeError(
                    f"pack: sample {i} must be a {first} of {len(spools)} as sample 0 is, got a "
                    f"{structure} of {len(values)}"
                )
            checksum = 0
            try:
                for spool, (column, content) in zip(spools, values):
                    checksum = spool.add(column, content, checksum)
            except TypeError as error:
                raise TypeError(f"pack: sample {i}: {error}") from None
            checksums.append(checksum)
            if bar is not None:
                bar.update()
    finally:
        for spool in spools:
            spool.file.close()
    return spools, checksums, first


def _write(
    pa: ModuleType, path: Path, description: Description, spools: list[_Spool], checksums: Any
) -> None:
    schema = pa.schema(arrow_fields(pa, description.columns), metadata=description.to_metadata())
    buffers = [each for spool in spools for each in spool.buffers(pa)]
    buffers.append([None, pa.py_buffer(checksums)])
    arrays = [
        pa.Array.from_buffers(field.type, description.length, each, null_count=0)
        for field, each in zip(schema, buffers)
    ]
    batch = pa.record_batch(arrays, schema=schema)
    with open(path, "wb") as file:
        with pa.ipc.new_file(pa.PythonFile(file), schema) as writer:
            writer.write_batch(batch)
        file.flush()
        os.fsync(file.fileno())


def _layout(dataset: Any, encode: str) -> str | None:
    return getattr(dataset, "layout", None) if encode == "raw" else "HWC"


def _classes(dataset: Any) -> tuple[str, ...] | None:
    classes = getattr(dataset, "classes", None)
    return None if classes is None else tuple(str(name) for name in classes)


def _bar(name: str, total: int, progress: bool) -> Any:
    """tqdm's bar, on a terminal; or None where it is not wanted or not installed."""
    if not progress:
        return nullcontext()
    try:
        from tqdm import tqdm
    except ImportError:
        return nullcontext()
    about = {"desc": f"packing {name}", "total": total, "unit": " samples"}
    return tqdm(**about, leave=False, disable=None)
