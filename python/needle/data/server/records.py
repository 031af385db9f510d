"""How one prepared sample lies in its block: the places, shapes and dtypes of its arrays.

The server writes blocks, a loader looks into them; a ``Record`` travels as JSON once for each
kind of sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from ..structure import LEAF, Field, Structure, count_leaves
from .arena import rounded

Array = npt.NDArray[Any]
ROW_ALIGN = 16
MOST_FIELDS, MOST_AXES, MOST_DEPTH = 256, 32, 16
KINDS = "biufc"
"""The kinds of dtypes that can lie in shared memory."""


@dataclass(frozen=True)
class Record:
    """The arrays of a sample: one field a leaf of ``tree``, each at its offset in the block."""

    tree: Any
    fields: tuple[Field, ...]
    offsets: tuple[int, ...] = field(init=False)
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        offsets, at = [], 0
        for each in self.fields:
            offsets.append(at)
            at += -(-_size(each) // ROW_ALIGN) * ROW_ALIGN
        object.__setattr__(self, "offsets", tuple(offsets))
        object.__setattr__(self, "nbytes", rounded(at))

    @property
    def structure(self) -> Structure:
        """Of a batch of such samples."""
        return Structure(self.tree, ("array",) * len(self.fields))

    def views(self, buffer: Any, offset: int) -> list[Array]:
        """The arrays of the sample whose block begins at ``offset``."""
        return [
            np.ndarray(each.row_shape, each.dtype, buffer, offset + at)
            for each, at in zip(self.fields, self.offsets)
        ]

    def columns(self, buffer: Any, offset: int, count: int) -> list[Array]:
        """Each leaf of ``count`` samples in blocks one behind the other: ``(count, *row)``."""
        return [
            np.ndarray(
                (count, *each.row_shape),
                each.dtype,
                buffer,
                offset + at,
                (self.nbytes, *_strides(each)),
            )
            for each, at in zip(self.fields, self.offsets)
        ]

    def write(self, buffer: Any, offsets: npt.NDArray[np.int64], leaves: Sequence[Array]) -> None:
        """Fills the blocks at ``offsets``; row i of each leaf belongs to sample i."""
        if not len(offsets):
            return
        base = int(offsets.min())
        rows, off = np.divmod(offsets - base, self.nbytes)
        if not off.any():
            for column, leaf in zip(self.columns(buffer, base, int(rows.max()) + 1), leaves):
                column[rows] = leaf
            return
        for i, offset in enumerate(offsets.tolist()):
            for view, leaf in zip(self.views(buffer, offset), leaves):
                view[...] = leaf[i]

    def as_values(self) -> dict[str, Any]:
        """As JSON can hold it."""
        leaves = [[list(each.row_shape), each.dtype.str] for each in self.fields]
        return {"tree": _tree_values(self.tree), "leaves": leaves}


def record_of(tree: Any, rows: Sequence[Any]) -> Record:
    """That of a sample with these leaves; DataError for what cannot lie in shared memory."""
    fields = []
    for row in rows:
        dtype = getattr(row, "dtype", None)
        if dtype is None or dtype.kind not in KINDS:
            what = f"of {dtype}" if dtype is not None else f"{type(row).__name__}"
            raise DataError(
                f"GlobalDataLoader: a sample's fields must be numbers or arrays of them, got "
                f"{what}; make it numbers in the data set, or take DataLoader"
            )
        fields.append(Field(tuple(row.shape), dtype))
    _tree_values(tree)  # refuses what cannot travel
    return Record(tree, tuple(fields))


def read_record(values: Any) -> Record:
    """Undoes ``as_values``; DataError for anything else."""
    try:
        tree = _tree_of(values["tree"])
        leaves = values["leaves"]
        fields = tuple(_read_field(shape, dtype) for shape, dtype in leaves)
    except (TypeError, KeyError, ValueError, IndexError) as error:
        raise DataError(f"GlobalDataLoader: the server sent no record ({error})") from None
    if len(fields) > MOST_FIELDS or count_leaves(tree) != len(fields):
        raise DataError(f"GlobalDataLoader: a record of {len(fields)} fields does not fit its tree")
    return Record(tree, fields)


def _read_field(shape: list[int], name: str) -> Field:
    dtype = np.dtype(str(name))
    good = len(shape) <= MOST_AXES and all(type(size) is int and size >= 0 for size in shape)
    if not good or dtype.kind not in KINDS:
        raise ValueError(f"a field of {dtype} and shape {shape!r:.60}")
    return Field(tuple(shape), dtype)


def _tree_values(tree: Any) -> Any:
    if tree == LEAF:
        return 0
    container, detail, children = tree
    if container == "named":
        raise DataError(
            f"GlobalDataLoader: a sample must be a tuple, list or dict, got the named tuple "
            f"{detail.__name__}, a class that another program need not have; give a tuple or dict"
        )
    if container == "dict" and not all(isinstance(key, (str, int)) for key in detail):
        raise DataError(
            f"GlobalDataLoader: the keys of a sample must be texts or ints, got {list(detail)}"
        )
    keys = list(detail) if container == "dict" else None
    return [container, keys, [_tree_values(child) for child in children]]


def _tree_of(values: Any, depth: int = 0) -> Any:
    if values == 0:
        return LEAF
    container, keys, children = values
    if depth > MOST_DEPTH or container not in ("tuple", "list", "dict"):
        raise ValueError(f"a tree of {container!r:.20}")
    inner = tuple(_tree_of(child, depth + 1) for child in children)
    if container == "dict":
        keys = tuple(keys)
        if len(keys) != len(inner) or not all(isinstance(key, (str, int)) for key in keys):
            raise ValueError("a dict whose keys do not fit")
        return container, keys, inner
    return container, None, inner


def _size(each: Field) -> int:
    return math.prod(each.row_shape) * each.dtype.itemsize


def _strides(each: Field) -> tuple[int, ...]:
    strides, step = [], each.dtype.itemsize
    for size in reversed(each.row_shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
