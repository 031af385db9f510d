"""How one prepared sample lies in its block: the places, shapes and dtypes of its arrays and texts.

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

from ....errors import DataError
from ...samples.pytree import LEAF, Field, Structure, count_leaves

Array = npt.NDArray[Any]
Text = str | bytes
BLOCK_ALIGN, ROW_ALIGN = 64, 16
_LENGTH = 8
"""A text lies behind 8 bytes of its length, in a multiple of 64: few lengths are few records."""
MOST_FIELDS, MOST_AXES, MOST_DEPTH = 256, 32, 16
KINDS = "biufc"
"""The kinds of dtypes that can lie in shared memory."""
TEXTS = ("str", "bytes")


@dataclass(frozen=True)
class Record:
    """The leaves of a sample: one field a leaf of ``tree``, each at its offset in the block.

    kinds: of each leaf "array", or "str" or "bytes" for text in a field of bytes.
    """

    tree: Any
    fields: tuple[Field, ...]
    kinds: tuple[str, ...]
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

    @property
    def has_text(self) -> bool:
        """Whether some leaf is no array."""
        return any(kind in TEXTS for kind in self.kinds)

    def views(self, buffer: Any, offset: int) -> list[Array]:
        """The arrays of the sample whose block begins at ``offset``, a text's bytes as it lies."""
        return [
            np.ndarray(each.row_shape, each.dtype, buffer, offset + at)
            for each, at in zip(self.fields, self.offsets)
        ]

    def leaves(self, buffer: Any, offset: int) -> list[Any]:
        """As ``views``, texts as they were. DataError where there is none."""
        return [
            _text_of(view, kind) if kind in TEXTS else view
            for view, kind in zip(self.views(buffer, offset), self.kinds)
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

    def write(self, buffer: Any, offsets: npt.NDArray[np.int64], leaves: Sequence[Any]) -> None:
        """Fills the blocks at ``offsets``; row i of each leaf belongs to sample i."""
        if not len(offsets):
            return
        leaves = [
            np.stack([_row_of(text, each) for text in leaf]) if kind in TEXTS else leaf
            for leaf, each, kind in zip(leaves, self.fields, self.kinds)
        ]
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
        leaves = [
            [list(each.row_shape), kind if kind in TEXTS else each.dtype.str]
            for each, kind in zip(self.fields, self.kinds)
        ]
        return {"tree": _tree_values(self.tree), "leaves": leaves}


def rounded(size: int) -> int:
    """The bytes that a block of ``size`` takes."""
    return max(BLOCK_ALIGN, -(-size // BLOCK_ALIGN) * BLOCK_ALIGN)


def record_of(tree: Any, rows: Sequence[Any]) -> Record:
    """That of a sample with these leaves; DataError for what cannot lie in shared memory."""
    fields, kinds = [], []
    for row in rows:
        dtype = getattr(row, "dtype", None)
        if isinstance(row, (str, bytes)):
            fields.append(Field((rounded(_LENGTH + len(_encoded(row))),), np.dtype(np.uint8)))
        elif dtype is None or dtype.kind not in KINDS:
            what = f"an array of {dtype}" if dtype is not None else f"{type(row).__name__}"
            raise DataError(
                f"GlobalDataLoader: a sample's fields must be numbers, arrays of them or texts, "
                f"got {what}; make it one of these in the data set, or take DataLoader"
            )
        else:
            fields.append(Field(tuple(row.shape), dtype))
        kinds.append(_kind_of(row))
    _tree_values(tree)  # refuses what cannot travel
    return Record(tree, tuple(fields), tuple(kinds))


def read_record(values: Any) -> Record:
    """Undoes ``as_values``; DataError for anything else."""
    try:
        tree = _tree_of(values["tree"])
        leaves = values["leaves"]
        fields = tuple(_read_field(shape, dtype) for shape, dtype in leaves)
        kinds = tuple(dtype if dtype in TEXTS else "array" for _, dtype in leaves)
    except (TypeError, KeyError, ValueError, IndexError) as error:
        raise DataError(f"GlobalDataLoader: the server sent no record ({error})") from None
    if len(fields) > MOST_FIELDS or count_leaves(tree) != len(fields):
        raise DataError(f"GlobalDataLoader: a record of {len(fields)} fields does not fit its tree")
    return Record(tree, fields, kinds)


def _read_field(shape: list[int], name: str) -> Field:
    dtype = np.dtype(np.uint8 if name in TEXTS else str(name))
    if name in TEXTS and (len(shape) != 1 or shape[0] < _LENGTH):
        raise ValueError(f"a text in a field of shape {shape!r:.60}")
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


def _kind_of(leaf: Any) -> str:
    if isinstance(leaf, str):
        return "str"
    return "bytes" if isinstance(leaf, bytes) else "array"


def _encoded(text: Text) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def _row_of(text: Text, each: Field) -> Array:
    """The bytes of a text as they lie in its field."""
    data = _encoded(text)
    row = np.zeros(each.row_shape, np.uint8)
    row[:_LENGTH] = np.frombuffer(len(data).to_bytes(_LENGTH, "little"), np.uint8)
    row[_LENGTH : _LENGTH + len(data)] = np.frombuffer(data, np.uint8)
    return row


def _text_of(row: Array, kind: str) -> Text:
    length = int.from_bytes(row[:_LENGTH].tobytes(), "little")
    if length > len(row) - _LENGTH:
        raise DataError(
            f"GlobalDataLoader: a text of {length} bytes cannot lie in a field of {len(row)}"
        )
    data = row[_LENGTH : _LENGTH + length].tobytes()
    return data.decode("utf-8", "surrogatepass") if kind == "str" else data


def _size(each: Field) -> int:
    return math.prod(each.row_shape) * each.dtype.itemsize


def _strides(each: Field) -> tuple[int, ...]:
    strides, step = [], each.dtype.itemsize
    for size in reversed(each.row_shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
