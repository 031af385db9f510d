"""The IDX format of MNIST: a big-endian header followed by numbers, plain or gzipped.

The header consists of two zero bytes, a type code, the number of axes and the length of each axis
as a 4-byte unsigned int. Sizes are checked against the file before memory is allocated; a gzipped
file may decompress to at most ``files.MAX_BYTES``. Called by datasets/mnist.py.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from math import prod
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...errors import DataError, DTypeError
from .files import MAX_BYTES, PathLike, open_file

Readable: TypeAlias = IO[bytes] | gzip.GzipFile

TYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype(">u1"),
    0x09: np.dtype(">i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
GZIP_MAGIC = b"\x1f\x8b"
DEFLATE_MAX_RATIO = 1032
"""Maximum ratio by which a deflate stream can expand."""
MAX_AXES = 8
PIECE = 1 << 24
"""Bytes that are read at a time, so that a file cut short takes no more memory than it has."""


def read_idx(path: PathLike, ndim: int | None = None) -> npt.NDArray[Any]:
    """Return the array in an IDX file in native byte order; gzip is detected by its first bytes.

    ndim: the required number of axes. Raises DataError, which names file, offset, expected and
    actual content, if the file has another format or is truncated, too long or damaged; raises
    OSError if it cannot be opened.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        zipped = file.read(2) == GZIP_MAGIC
        file.seek(0)
        if not zipped:
            return _read(path, file, size, ndim)
        try:
            with gzip.GzipFile(fileobj=file) as unzipped:
                limit = min(size * DEFLATE_MAX_RATIO, MAX_BYTES)
                return _read(path, unzipped, limit, ndim)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(
                f"{path}: the gzip stream is damaged or cut short ({error}), the file has {size} "
                f"bytes; fetch it again"
            ) from error


def write_idx(path: PathLike, array: npt.NDArray[Any]) -> None:
    """Write ``array`` as IDX, gzipped if the name ends in .gz; equal arrays give identical files.

    Raises DTypeError if IDX has no code for the dtype.
    """
    codes = {dtype.newbyteorder("="): code for code, dtype in TYPES.items()}
    if array.dtype not in codes:
        known = ", ".join(dtype.name for dtype in codes)
        raise DTypeError(f"write_idx: IDX cannot store {array.dtype}; convert to one of {known}")
    code = codes[array.dtype]
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    content = header + array.astype(TYPES[code]).tobytes()
    if os.fspath(path).endswith(".gz"):
        content = gzip.compress(content, compresslevel=9, mtime=0)
    Path(path).write_bytes(content)


def _read(path: PathLike, file: Readable, limit: int, ndim: int | None) -> npt.NDArray[Any]:
    """Return the array; ``limit`` is the maximum number of bytes that the file can hold."""
    dtype, shape, header = _read_header(path, file, ndim)
    need = dtype.itemsize * prod(shape)
    if need > limit - header:
        raise DataError(
            f"{path}: the header promises shape {shape} of {dtype.name}, {need} bytes after byte "
            f"{header}, got a file that can hold {max(0, limit - header)}; it is truncated or its "
            "header is wrong"
        )
    data, end = np.empty(need, np.uint8), 0
    while end < need and (piece := file.read(min(PIECE, need - end))):
        data[end : end + len(piece)] = np.frombuffer(piece, np.uint8)
        end += len(piece)
    if end != need:
        raise DataError(
            f"{path}: expected {need} bytes of data after byte {header} for shape {shape}, got "
            f"{end}; the file is cut short, fetch it again"
        )
    if file.read(1):  # for gzip, reading to EOF also verifies length and CRC
        raise DataError(
            f"{path}: expected the end at byte {header + need} for shape {shape}, got more data; "
            "the header is wrong or files were concatenated"
        )
    return data.view(dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _read_header(
    path: PathLike, file: Readable, ndim: int | None
) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    ### BEGIN YOUR SOLUTION [idx-header]
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES:
        codes = ", ".join(f"{code:#04x}" for code in TYPES)
        raise DataError(
            f"{path}: an IDX file starts with 00 00, a type code ({codes}) and the number of "
            f"axes, got {magic.hex(' ') or 'an empty file'}; this is another format"
        )
    axes = magic[3]
    if not 0 < axes <= MAX_AXES or (ndim is not None and axes != ndim):
        wanted = f"1 to {MAX_AXES}" if ndim is None else str(ndim)
        raise DataError(
            f"{path}: expected {wanted} axes (byte 3), got {axes}; are images and labels swapped?"
        )
    sizes = file.read(4 * axes)
    if len(sizes) < 4 * axes:
        raise DataError(
            f"{path}: the header needs {4 + 4 * axes} bytes, got {4 + len(sizes)}; the file is "
            f"cut short"
        )
    return TYPES[magic[2]], struct.unpack(f">{axes}I", sizes), 4 + 4 * axes
    ### END YOUR SOLUTION
