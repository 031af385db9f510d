"""pack: writes a data set into one Arrow file. What the file holds is said in columns.py.

Each column is spooled into a scratch file first, since only the last sample tells whether all
have one shape; then the columns are written one after another, from maps, without being loaded.
"""

from __future__ import annotations

import os
import shutil
import socket
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ...errors import DataError
from ..decoding import simplejpeg
from .columns import MAX_WIDTH, Column, Description, arrow_fields, pyarrow

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
    transforms. progress: a bar where tqdm is installed. Named tuples come back as tuples.

    The file appears whole or not at all, and replaces an older one at once. It needs its own
    size a second time, for a while, in a hidden folder beside it; what a killed run left there
    is removed by the next. Raises TypeError or DataError for samples that do not fit each other.
    """
    pa = pyarrow("pack")
    target = Path(path)
    samples = _samples(dataset, encode, quality)
    if encode not in ENCODINGS:
        raise ValueError(f"pack: encode must be one of {', '.join(ENCODINGS)}, got {encode!r}")
    if len(dataset) == 0:
        raise DataError("pack: the dataset must have a sample, got none; nothing was written")
    with _scratch_beside(target) as scratch:
        with _bar(target.name, len(dataset), progress) as bar:
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
                f"expected {_words(mine)} in field {mine.name!r} as in sample 0, got "
                f"{_words(column)}; give all samples the same fields"
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


def _samples(
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
            f"got {', '.join(_words(column) for column, _ in values)}; open the dataset with "
            f"dtype='uint8', layout='HWC'"
        )
    return found


def _words(column: Column) -> str:
    if column.kind in ("number", "array"):
        return f"{column.dtype} {column.shape}"
    return f"{column.kind} ({column.mode})" if column.kind == "image" else column.kind


def _layout(dataset: Any, encode: str) -> str | None:
    return getattr(dataset, "layout", None) if encode == "raw" else "HWC"


def _classes(dataset: Any) -> tuple[str, ...] | None:
    classes = getattr(dataset, "classes", None)
    return None if classes is None else tuple(str(name) for name in classes)


def _bar(name: str, total: int, progress: bool) -> Any:
    """tqdm's bar, or None where it is not wanted or not installed."""
    if not progress:
        return nullcontext()
    try:
        from tqdm import tqdm
    except ImportError:
        return nullcontext()
    return tqdm(desc=f"packing {name}", total=total, unit=" samples", leave=False)


@contextmanager
def _scratch_beside(target: Path) -> Iterator[Path]:
    """A hidden folder next to ``target`` that is gone afterwards, whatever happens."""
    start = f".{target.name}.packing~{socket.gethostname()}~"
    for left in target.parent.glob(f"{_literal(start)}*"):
        if not _lives(left.name[len(start) :].split("~")[0]):
            shutil.rmtree(left, ignore_errors=True)
    folder = target.parent / f"{start}{os.getpid()}~{os.urandom(4).hex()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _literal(name: str) -> str:
    """``name`` for glob, with nothing in it a pattern."""
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in name)


def _lives(process: str) -> bool:
    """Whether the process of this number runs (or belongs to somebody else)."""
    if os.name == "nt":  # where asking would end it
        return True
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:
        return True
    return True


def _sync(folder: Path) -> None:
    """Makes a new name in ``folder`` last; systems that cannot open folders do it themselves."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
