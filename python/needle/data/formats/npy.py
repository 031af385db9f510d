"""Read numpy.save's .npy format from a memory-mapped file or from bytes, without pickled objects.

Sizes are checked against the content before memory is allocated. Called by datasets/npy_files.py
and datasets/tar_shards.py.
"""

from __future__ import annotations

import mmap
from math import prod
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from .files import MAX_HEADER

HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def parse_npy(name: str, file: IO[bytes], content: bytes | mmap.mmap) -> npt.NDArray[Any]:
    """Return the array of numbers in ``content`` without copying it.

    file: the same bytes as a file, positioned at the start. Raises DataError, whose message begins
    with ``name``, if the content has another format or dtype, is truncated, or continues after the
    array.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:
            raise ValueError(f"version {version} is for structured dtypes, which are not supported")
        start = file.tell()
        length = int.from_bytes(content[start : start + (2 if version == (1, 0) else 4)], "little")
        if length > MAX_HEADER:
            raise ValueError(f"a header may have at most {MAX_HEADER} bytes, got {length}")
        shape, fortran, dtype = HEADERS[version](file)
        if dtype.kind not in "biufc" or not all(type(axis) is int and axis >= 0 for axis in shape):
            raise ValueError(f"it must hold rows of numbers, got {dtype} of shape {shape}")
        start, need = file.tell(), dtype.itemsize * prod(shape)
        if start + need != len(content):
            raise ValueError(f"{dtype} of shape {shape} needs {need} bytes after byte {start}")
        flat = np.frombuffer(content, dtype, prod(shape), start) if need else np.zeros(0, dtype)
        return flat.reshape(shape, order="F" if fortran else "C")
    except Exception as error:
        raise DataError(
            f"{name}: not a whole .npy file of {len(content)} bytes ({type(error).__name__}: "
            f"{error!s:.300}); write it with numpy.save, or fetch it again"
        ) from error
