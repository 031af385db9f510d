"""The layout of a prepared sample in shared memory: offsets, shapes and dtypes of its leaves.

The server writes samples into blocks and loaders read them in place. A ``SampleLayout`` is sent as
JSON, once for each kind of sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...data.samples.pytree import LEAF, Field, Structure, count_leaves
from ...errors import DataError

Array = npt.NDArray[Any]
BLOCK_ALIGN, ROW_ALIGN = 64, 16
MOST_FIELDS, MOST_AXES, MOST_DEPTH = 256, 32, 16
NUMBER_KINDS = "biufc"
"""The kinds of dtypes that can lie in shared memory."""
TEXTS = ("str", "bytes")
PYTHON = ("int", "float", "bool")
"""The kinds of Python's numbers, and the names of the dtypes that hold them."""
_LENGTH = 8
"""A string is stored as an 8-byte length and its bytes, padded to 64 to limit the layouts."""


@dataclass(frozen=True)
class SampleLayout:
    """The layout of a sample: one field for each leaf of ``tree``, at ``offsets`` in a block.

    kinds: for each leaf "array", or the kind of string or Python number that it is; a string is
    stored in a uint8 field.
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
            size = math.prod(each.row_shape) * each.dtype.itemsize
            at += -(-size // ROW_ALIGN) * ROW_ALIGN
        object.__setattr__(self, "offsets", tuple(offsets))
        object.__setattr__(self, "nbytes", rounded(at))

    @property
    def structure(self) -> Structure:
        """The structure of a batch of such samples."""
        return Structure(self.tree, self.kinds)

    @property
    def has_text(self) -> bool:
        """True if a leaf is a string."""
        return any(kind in TEXTS for kind in self.kinds)

    def views(self, buffer: Any, offset: int) -> list[Array]:
        """Return views of the leaves of the sample at ``offset``; a string stays encoded."""
        return [
            np.ndarray(each.row_shape, each.dtype, buffer, offset + at)
            for each, at in zip(self.fields, self.offsets)
        ]

    def leaves(self, buffer: Any, offset: int) -> list[Any]:
        """Return the leaves as they were in the sample; raise DataError for a damaged string."""
        return [_value(view, kind) for view, kind in zip(self.views(buffer, offset), self.kinds)]

    def columns(self, buffer: Any, offset: int, count: int) -> list[Array]:
        """Return a view ``(count, *row)`` of each leaf over ``count`` consecutive blocks."""
        return [
            np.ndarray((count, *v.shape), v.dtype, buffer, offset + at, (self.nbytes, *v.strides))
            for v, at in zip(self.views(buffer, offset), self.offsets)
        ]

    def write(self, buffer: Any, offsets: npt.NDArray[np.int64], leaves: Sequence[Any]) -> None:
        """Fill the blocks at ``offsets``; row i of each leaf belongs to sample i."""
        if not len(offsets):
            return
        leaves = [
            np.stack([_text_row(text, each) for text in leaf]) if kind in TEXTS else leaf
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
        """Return the layout as JSON values, which ``read_layout`` reads."""
        leaves = [
            [each.row_shape, each.dtype.str if kind == "array" else kind]
            for each, kind in zip(self.fields, self.kinds)
        ]
        return {"tree": self.tree, "leaves": leaves}


def rounded(size: int) -> int:
    """Return the size of the block that holds ``size`` bytes."""
    return max(BLOCK_ALIGN, -(-size // BLOCK_ALIGN) * BLOCK_ALIGN)


def layout_of(structure: Structure, leaves: Sequence[Any]) -> SampleLayout:
    """Return the layout of a sample; raise DataError for leaves that shared memory cannot hold.

    structure: that of a slice in which these leaves are one row.
    """
    fields, kinds = [], []
    for own, leaf in zip(structure.kinds, leaves):
        dtype = getattr(leaf, "dtype", None)
        if isinstance(leaf, (str, bytes)):
            fields.append(Field((rounded(_LENGTH + len(_encoded(leaf))),), np.dtype(np.uint8)))
        elif dtype is None or dtype.kind not in NUMBER_KINDS:
            what = getattr(leaf, "type_name", type(leaf).__name__)
            what = what if dtype is None else f"an array of {dtype}"
            what = f"{leaf}, which is no int64" if isinstance(leaf, int) else what
            raise DataError(
                "GlobalDataLoader: a sample's fields must be numbers, arrays of numbers or "
                f"strings, got {what}; convert it in the data set, or use DataLoader"
            )
        else:
            fields.append(Field(tuple(leaf.shape), dtype))
        kinds.append(own if own in PYTHON else _kind(leaf))
    return SampleLayout(_checked_tree(structure.tree), tuple(fields), tuple(kinds))


def read_layout(values: Any) -> SampleLayout:
    """Return the layout that ``as_values`` described; raise DataError for other values."""
    try:
        tree = _checked_tree(values["tree"])
        leaves = values["leaves"]
        fields = tuple(_read_field(shape, dtype) for shape, dtype in leaves)
        kinds = tuple(dtype if dtype in (*TEXTS, *PYTHON) else "array" for _, dtype in leaves)
    except (TypeError, KeyError, ValueError, IndexError) as error:
        raise DataError(f"GlobalDataLoader: the server sent an invalid layout ({error})") from None
    if len(fields) > MOST_FIELDS or count_leaves(tree) != len(fields):
        raise DataError(
            f"GlobalDataLoader: the {len(fields)} fields of a layout do not match its tree"
        )
    return SampleLayout(tree, fields, kinds)


def _read_field(shape: list[int], name: str) -> Field:
    dtype = np.dtype(np.uint8 if name in TEXTS else str(name))
    if name in TEXTS and (len(shape) != 1 or shape[0] < _LENGTH):
        raise ValueError(f"a string in a field of shape {shape!r:.60}")
    good = len(shape) <= MOST_AXES and all(type(size) is int and size >= 0 for size in shape)
    if not good or dtype.kind not in NUMBER_KINDS:
        raise ValueError(f"a field of {dtype} and shape {shape!r:.60}")
    return Field(tuple(shape), dtype)


def _checked_tree(tree: Any, depth: int = 0) -> Any:
    """Return the tree as nested tuples; raise DataError or ValueError if it is invalid."""
    if tree == LEAF:
        return LEAF
    container, keys, children = tree
    if container == "named":
        raise DataError(
            "GlobalDataLoader: a sample must be a tuple, list or dict, got the named tuple "
            f"{keys.__name__}, whose class another program may not have; use a tuple or dict"
        )
    if depth > MOST_DEPTH or container not in ("tuple", "list", "dict"):
        raise ValueError(f"a tree of {container!r:.20}, {depth} levels deep")
    inner = tuple(_checked_tree(child, depth + 1) for child in children)
    if container != "dict":
        return container, None, inner
    if not all(isinstance(key, (str, int)) for key in keys) or len(keys) != len(inner):
        raise DataError(
            f"GlobalDataLoader: the keys of a sample must be strings or ints, got {list(keys)}"
        )
    return container, tuple(keys), inner


def _kind(leaf: Any) -> str:
    if isinstance(leaf, str):
        return "str"
    return "bytes" if isinstance(leaf, bytes) else "array"


def _encoded(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def _text_row(text: str | bytes, each: Field) -> Array:
    """Return the stored bytes of a string: uint8 ``(n,)``."""
    data = _encoded(text)
    stored = len(data).to_bytes(_LENGTH, "little") + data
    row = np.zeros(each.row_shape, np.uint8)
    row[: len(stored)] = np.frombuffer(stored, np.uint8)
    return row


def _value(row: Array, kind: str) -> Any:
    """Return the leaf of kind ``kind`` that is stored in the row."""
    if kind == "array":
        return row
    if kind in PYTHON:
        return row.item()
    length = int.from_bytes(row[:_LENGTH].tobytes(), "little")
    if length > len(row) - _LENGTH:
        raise DataError(
            f"GlobalDataLoader: a string of {length} bytes does not fit a field of {len(row)}"
        )
    data = row[_LENGTH : _LENGTH + length].tobytes()
    return data.decode("utf-8", "surrogatepass") if kind == "str" else data
