"""NpyDataset: memory-mapped ``.npy`` files of numpy.save; pickled objects are refused."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from ...errors import DataError
from ..formats.files import open_file
from ..formats.npy import parse_npy
from .arrays import ArrayDataset
from .dataset import ItemTransform
from .indexing import given_or_listed


class NpyDataset(ArrayDataset):
    """Rows of ``.npy`` files, given one by one or as a list: ``NpyDataset("x.npy", "y.npy")``.

    An item is a tuple of one row from each file. The files are memory-mapped, not loaded; rows are
    read-only views. ``transforms`` receive the row of the first file. Only the paths are pickled;
    another process maps the files again. Raises DataError, naming the file, if one is not a
    ``.npy`` file, is truncated or holds objects, and ShapeError if the lengths differ.
    """

    _fixed = frozenset({"paths"})

    def __init__(
        self,
        *paths: str | os.PathLike[str],
        transforms: Sequence[ItemTransform] | None = None,
    ) -> None:
        self.paths = tuple(os.path.abspath(path) for path in given_or_listed(paths))
        super().__init__(*map(read_npy, self.paths), transforms=transforms)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["arrays"] = [(array.shape, array.dtype.str) for array in self.arrays]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = tuple(map(read_npy, state["paths"]))
        for path, array, seen in zip(state["paths"], arrays, state["arrays"]):
            if (array.shape, array.dtype.str) != seen:
                raise DataError(
                    f"{path}: the file has changed since it was opened, from {seen} to "
                    f"{(array.shape, array.dtype.str)}; make the dataset again"
                )
        self.__dict__.update(state, arrays=arrays)


def read_npy(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Return the array in the file, mapped read-only; raise DataError for an invalid file."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
        found = parse_npy(os.fspath(path), file, content)
    if found.ndim == 0:
        raise DataError(
            f"{path}: must hold rows of numbers, got {found.dtype} of shape (); save an array"
        )
    return found
