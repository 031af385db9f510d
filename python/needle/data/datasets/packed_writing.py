"""``pack`` writes a data set to one Arrow file; formats/arrow_columns.py describes its columns.

Each column is first written to a scratch file, because only after the last sample is it known
whether all have the same shape. Then the scratch files are mapped and written one after another.
"""

from __future__ import annotations

import glob
import os
import shutil
import socket
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import DataError, check_choice
from ..formats.arrow_columns import (
    MAX_WIDTH,
    Column,
    Description,
    Value,
    arrow_fields,
    as_jpeg,
    columns_of,
    in_words,
    pyarrow,
)
from ..formats.progress import progress_bar
from .combinations import Subset


def pack(
    dataset: Any,
    path: str | os.PathLike[str],
    *,
    encode: str = "raw",
    quality: int = 95,
    progress: bool = True,
) -> Path:
    """Write all samples of a map dataset to ``path``, for ``PackedDataset``; return the path.

    A sample is an array, a number, text or bytes, or a tuple, list or dict of them. Samples are
    written as the dataset returns them, after its transforms; it is best to pack uint8 pixels and
    to augment when reading. encode: "raw" keeps arrays; "jpeg" compresses uint8 ``(H, W, 1 | 3)``
    to JPEGs of ``quality`` 1..100; "keep" copies the files of an ``ImageFolder`` undecoded, without
    its transforms; they are later read with its ``mode`` and ``oriented``. progress: show a
    progress bar on a terminal if tqdm is installed. Named tuples are read back as tuples. The file
    is written completely or not at all, and atomically replaces an older one. Writing temporarily
    needs as much space again, in a hidden folder next to the file; the next call removes what a
    killed run has left there. Raises TypeError or DataError if samples are inconsistent.
    """
    pa = pyarrow("pack")
    target = Path(path)
    samples = _taken_apart(dataset, encode, quality)
    check_choice("pack", "encode", encode, ("raw", "jpeg", "keep"))
    if len(dataset) == 0:
        raise DataError(
            "pack: the dataset must have at least one sample, got none; nothing was written"
        )
    with _scratch_beside(target) as scratch:
        with progress_bar(progress, len(dataset), f"packing {target.name}", " samples") as bar:
            spools, checksums, structure = _spool(samples, scratch, bar)
        columns = tuple(spool.finish() for spool in spools)
        description = Description(
            len(dataset), structure, columns, _layout(dataset, encode), _classes(dataset)
        )
        _write(pa, scratch / "packed", description, spools, checksums)
        os.replace(scratch / "packed", target)
        _sync(target.parent)
    return target


class _Spool:
    """A column being written: a file of its bytes, and the end offsets and shapes of values."""

    def __init__(self, path: Path, column: Column) -> None:
        self.path, self.column = path, column
        self.file = open(path, "wb")  # noqa: SIM115 - closed by finish, or close on failure
        self.ends, self.shapes = array("q", [0]), array("q")
        self.fixed = column.kind == "array"

    def add(self, column: Column, content: Any, checksum: int) -> int:
        """Append a value and return the updated checksum; raise TypeError for another kind."""
        mine = self.column
        if replace(column, shape=()) != replace(mine, shape=()) or (
            len(column.shape) != len(mine.shape)
        ):
            raise TypeError(
                f"expected {in_words(mine)} in field {mine.name!r}, as in sample 0, got "
                f"{in_words(column)}; give all samples the same fields"
            )
        if column.kind == "array":
            self.fixed &= column.shape == mine.shape
            self.shapes.extend(column.shape)
            checksum = zlib.crc32(column.shape_bytes, checksum)
        self.file.write(content)
        self.ends.append(self.ends[-1] + len(content))
        return zlib.crc32(content, checksum)

    def finish(self) -> Column:
        """Return the final column; an array column with several shapes becomes "varied"."""
        self.file.close()
        if self.column.kind == "array" and not (self.fixed and 0 < self.column.width <= MAX_WIDTH):
            self.column = replace(self.column, kind="varied")
        return self.column

    def buffers(self, pa: ModuleType) -> list[list[Any]]:
        """Return the buffers of each Arrow array of this column."""
        size = self.path.stat().st_size
        data = pa.memory_map(str(self.path)).read_buffer(size) if size else pa.py_buffer(b"")
        if self.column.kind in ("number", "array"):
            return [[None, data]]
        made = [[None, pa.py_buffer(self.ends), data]]
        return made + [[None, pa.py_buffer(self.shapes)]] * (self.column.kind == "varied")


def _taken_apart(dataset: Any, encode: str, quality: int) -> Iterator[tuple[str, list[Value]]]:
    """Yield the structure of each sample, with the column and bytes of each field."""
    if encode == "keep" and not hasattr(dataset, "encoded"):
        raise TypeError(
            f"pack: encode='keep' needs a dataset of image files with encoded(index), got "
            f"{type(dataset).__name__}; use 'raw' or 'jpeg'"
        )
    images: dict[str, Any] = {"mode": "RGB", "oriented": True}
    if encode == "keep":
        inside = _innermost(dataset)
        kinds = [{name: getattr(d, name, like) for name, like in images.items()} for d in inside]
        images = kinds[0]
        if any(kind != images for kind in kinds):
            raise TypeError(
                f"pack: encode='keep' needs datasets that agree on mode and oriented, got {kinds}; "
                "use 'raw' or 'jpeg'"
            )
    for i in range(len(dataset)):
        structure, values = columns_of(dataset.encoded(i) if encode == "keep" else dataset[i], i)
        if encode == "jpeg":
            values = as_jpeg(values, quality, i)
        elif encode == "keep":
            values[0] = (Column(values[0][0].name, "image", **images), values[0][1])
        yield structure, values


def _innermost(dataset: Any) -> list[Any]:
    """Return the datasets from which subsets and concatenations are made."""
    inside = getattr(dataset, "datasets", ())
    inside = [dataset.dataset] if isinstance(dataset, Subset) else inside
    return [inner for each in inside for inner in _innermost(each)] or [dataset]


def _spool(
    samples: Iterator[tuple[str, list[Value]]], scratch: Path, bar: Any
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
                    f"pack: sample {i} must be a {first} of {len(spools)}, like sample 0, got a "
                    f"{structure} of {len(values)}"
                )
            by_name = {value[0].name: value for value in values}  # keys may be in any order
            values = [by_name.get(s.column.name, v) for s, v in zip(spools, values)]
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


@contextmanager
def _scratch_beside(target: Path) -> Iterator[Path]:
    """Yield a hidden scratch folder next to ``target``, and remove it and any stale ones."""
    start = f".{target.name}.packing~{socket.gethostname()}~"
    for left in target.parent.glob(f"{glob.escape(start)}*"):
        if not _lives(left.name[len(start) :].split("~")[0]):
            shutil.rmtree(left, ignore_errors=True)
    folder = target.parent / f"{start}{os.getpid()}~{os.urandom(4).hex()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lives(process: str) -> bool:
    """Return True if the process is running (or belongs to another user)."""
    if os.name == "nt":  # on Windows os.kill would terminate the process
        return True
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:
        return True
    return True


def _sync(folder: Path) -> None:
    """Flush a rename in ``folder`` to disk, on systems that can open folders."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
