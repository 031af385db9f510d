"""Collate samples into arrays with a new first axis (``default_collate``).

Whether values are stacked depends on the whole batch, not on how it was split into slices: a
``Slice`` leaves values that cannot be stacked unchanged, and ``Slice.batch`` decides for the whole
batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import dtypes
from ...errors import ShapeError
from ..samples.pytree import Field, Structure, flat_columns, flat_tree, leaf_order, take_apart
from ..samples.tensor_hook import to_tensors as to_tensors

_NUMBERS = {"bool": dtypes.bool_, "int": dtypes.int64, "float": dtypes.float64}
"""Kinds of Python's numbers, the widest last, and the dtypes that hold them exactly."""
MIXED = "mixed"
"""Marks a leaf with values of different kinds, and the container of samples that differ."""


@dataclass(frozen=True)
class Unbatchable:
    """A stand-in for a value that no batch can hold, and that may not be picklable."""

    type_name: str


@dataclass
class Slice:
    """Prepared samples that form a batch or a part of one.

    structure: None if there are no samples. leaves: arrays whose first axis is the samples, or
    lists; empty if the trees of the samples differ, and the structure then holds them as ``trees``.
    placed: for each leaf, True if it was written to the rows given to ``prepare``. indices: int64
    ``(n,)``, set if the ticket does not determine the samples.
    """

    structure: Structure | None = None
    leaves: list[Any] = field(default_factory=list)
    samples: int = 0
    placed: tuple[bool, ...] = ()
    indices: npt.NDArray[np.int64] | None = None

    @property
    def trees(self) -> tuple[Any, ...]:
        """The tree of each sample if the trees differ, else ()."""
        tree = None if self.structure is None else self.structure.tree
        return tree[2] if tree and tree[0] == MIXED else ()

    def fields(self) -> tuple[Field | None, ...]:
        """Return the field of each leaf, None for a leaf that is not an array of plain values."""
        return tuple(
            Field(leaf.shape[1:], leaf.dtype)
            if isinstance(leaf, np.ndarray)
            and leaf.shape[:1] == (self.samples,)
            and not leaf.dtype.hasobject
            else None
            for leaf in self.leaves
        )

    def rows(self, rows: slice) -> Slice:
        """Return the samples ``rows``, as views of the arrays; no sample may have been skipped."""
        assert self.structure is not None and not self.trees
        kinds, leaves = list(self.structure.kinds), [leaf[rows] for leaf in self.leaves]
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, list) and kinds[i] != "text":
                kinds[i], leaves[i] = _leaf(leaf, kinds[i] == "uneven")
        structure = Structure(self.structure.tree, tuple(kinds))
        indices = None if self.indices is None else self.indices[rows]
        return Slice(structure, leaves, len(range(self.samples)[rows]), indices=indices)

    def batch(self) -> Any:
        """Return the samples as one batch; None if there are none.

        Raises ShapeError or TypeError, which names the first sample that does not match the others.
        """
        for number, tree in enumerate(self.trees):
            leaf_order(tree, self.trees[0], number)
        if self.structure is None:
            return None
        return self.structure.rebuild(list(map(_judged, self.structure.kinds, self.leaves)))


def default_collate(samples: Sequence[Any]) -> Any:
    """Return a batch of uniform samples: arrays stacked on a new first axis, numbers as arrays.

    int becomes int64, float becomes float32, and bool stays bool; among Python's numbers, the
    widest of these three decides, and among arrays and NumPy's numbers, ``np.result_type`` does.
    Tuples, lists and dicts are collated field by field and keep their type, and a dict the key
    order of the first sample; strings and bytes become a list. Raises ShapeError if shapes,
    containers, lengths or keys differ, and TypeError if a field has any other type, or both text
    and numbers.
    """
    return collate_slice(samples).batch()


def collate_slice(
    samples: Sequence[Any],
    out: Sequence[npt.NDArray[Any] | None] | None = None,
    ragged: int | None = None,
    ready: npt.NDArray[Any] | None = None,
) -> Slice:
    """Collate samples of part of a batch like ``default_collate``, and return them as a Slice.

    out: for each leaf the rows to write to, used if shape and dtype match. ragged: the index of a
    leaf that stays a list if its shapes differ. ready: the first leaf, if it is already stacked.
    """
    if not samples:
        raise ShapeError("default_collate: there must be at least one sample, got none")
    columns = flat_columns(samples)
    if columns is not None:
        like = flat_tree(len(columns))
    else:
        trees, rows = zip(*map(take_apart, samples))
        like, fields = trees[0], list(rows)
        for i, tree in enumerate(trees):
            if tree != like:
                try:
                    fields[i] = [fields[i][j] for j in leaf_order(tree, like)]
                except ShapeError:
                    return Slice(Structure((MIXED, None, trees), ()), [], len(trees))
        columns = list(zip(*fields))
    kinds, leaves, placed = [], [], []
    for i, column in enumerate(columns):
        into = None if out is None or i >= len(out) else out[i]
        if i == 0 and ready is not None:
            kind, leaf = "array", ready
        else:
            kind, leaf = _leaf(list(column), ragged == i, into)
        kinds.append(kind)
        leaves.append(leaf)
        placed.append(leaf is into and into is not None)
    return Slice(Structure(like, tuple(kinds)), leaves, len(samples), tuple(placed))


def concatenate(
    slices: Sequence[Slice], out: Sequence[npt.NDArray[Any] | None] | None = None
) -> Slice:
    """Join the slices of one batch, in order, into one slice and return it.

    out: the whole arrays to whose rows the slices wrote, one for each array leaf; a leaf that every
    slice wrote there is not copied. ``Slice.batch`` checks whether the slices match.
    """
    parts = [part for part in slices if part.structure is not None and part.samples]
    if len(parts) < 2:
        return parts[0] if parts else Slice()
    total = sum(part.samples for part in parts)
    found = [part.structure for part in parts if part.structure is not None]
    known = [part.indices for part in parts if part.indices is not None]
    indices = np.concatenate(known) if known else None
    tree = (parts[0].trees or (found[0].tree,))[0]
    try:
        orders = [leaf_order(each.tree, tree) for each in found]
    except ShapeError:
        trees = [part.trees or (each.tree,) * part.samples for part, each in zip(parts, found)]
        return Slice(Structure((MIXED, None, sum(trees, ())), ()), [], total, (), indices)
    kinds, leaves, placed = [], [], []
    for i, numbers in enumerate(zip(*orders)):
        whole = None if out is None or i >= len(out) else out[i]
        here = whole is not None and len(whole) == total and set(numbers) == {i}
        placed.append(here and all(part.placed[i : i + 1] == (True,) for part in parts))
        pieces = [part.leaves[number] for part, number in zip(parts, numbers)]
        own = [each.kinds[number] for each, number in zip(found, numbers)]
        kind, leaf = _joined(own, pieces, whole if placed[-1] else None)
        kinds.append(kind)
        leaves.append(leaf)
    return Slice(Structure(tree, tuple(kinds)), leaves, total, tuple(placed), indices)


def _leaf(column: list[Any], ragged: bool, out: Any = None) -> tuple[str, Any]:
    """Return the kind and the leaf of these values, which is a list if they cannot be stacked."""
    types = set(map(type, column))
    kinds = set(map(_kind, types))
    kind = kinds.pop() if len(kinds) == 1 else MIXED
    if kind == "text":
        return kind, column
    if kind in _NUMBERS:
        with suppress(OverflowError):  # ints beyond int64
            array = np.asarray(column, _NUMBERS[kind])
            return kind, array if out is None else place(array, out)
    if kind != "array":
        return MIXED, [_portable(value) for value in column]
    arrays = column if types == {np.ndarray} else [_as_array(value) for value in column]
    kind = "uneven" if ragged else kind
    like = arrays[0].dtype
    one_dtype = all(array.dtype is like or array.dtype == like for array in arrays)
    if one_dtype and len({array.shape for array in arrays}) == 1:
        return kind, stack(arrays, "array", out)
    return kind if ragged else MIXED, arrays


def _joined(kinds: list[str], pieces: list[Any], whole: Any) -> tuple[str, Any]:
    """Return the kind and the joined leaf of slices, which is ``whole`` if that is given."""
    several = set(kinds)
    kind = kinds[0] if len(several) == 1 else "array"
    if "uneven" in several and several <= {"array", "uneven"}:
        kind = "uneven"
    if whole is not None:
        return kind, whole
    arrays = all(isinstance(piece, np.ndarray) for piece in pieces)
    if arrays and len({(piece.shape[1:], piece.dtype) for piece in pieces}) == 1:
        return kind, np.concatenate(pieces)
    values = [value for own, piece in zip(kinds, pieces) for value in _unstacked(own, piece)]
    return kind if kind in ("text", "uneven") else MIXED, values


def _unstacked(kind: str, piece: Any) -> list[Any]:
    """Return the separate values of this leaf."""
    if isinstance(piece, list):
        return piece
    if kind in _NUMBERS:
        return piece.tolist()  # type: ignore[no-any-return]
    return [piece[i, ...] for i in range(len(piece))]  # "..." keeps 0-d rows arrays


def _judged(kind: str, leaf: Any) -> Any:
    """Return a leaf of a whole batch; raise an error if its values cannot be combined."""
    if kind == "float":
        return leaf.astype(dtypes.default_float, copy=False)
    if kind not in (MIXED, "uneven") or not isinstance(leaf, list):
        return leaf
    return stack(leaf, "array" if kind == "uneven" else _common_kind(leaf), None, kind == "uneven")


def _common_kind(column: list[Any]) -> str:
    """Return the kind of a column that holds values of several kinds."""
    kinds = [_kind(type(value)) for value in column]
    for number, (kind, value) in enumerate(zip(kinds, column)):
        if isinstance(value, Unbatchable):
            raise TypeError(
                f"default_collate: cannot make a batch of {value.type_name}, got it in sample "
                f"{number}; return arrays, numbers, text, tuples, lists or dicts from the "
                "dataset, or give collate="
            )
        if (kind == "text") != (kinds[0] == "text"):
            raise TypeError(
                f"default_collate: a field must be text in every sample or in none, got "
                f"{_named(column[0])} in sample 0 and {_named(value)} in sample {number}; convert "
                "it in the dataset, or give collate="
            )
    if "array" in kinds:
        return "array"
    return next((kind for kind in reversed(_NUMBERS) if kind in kinds), kinds[0])


def stack(
    column: list[Any],
    kind: str,
    out: npt.NDArray[Any] | None = None,
    ragged: bool = False,
) -> Any:
    """Return a leaf of a batch, given its value in each sample, written to ``out`` if it fits."""
    ### BEGIN YOUR SOLUTION [collate]
    if kind == "text":
        return column
    if kind in _NUMBERS:
        array = _numbers(column, kind)
        return array if out is None else place(array, out)
    arrays = [_as_array(value) for value in column]
    shapes = [array.shape for array in arrays]
    if ragged and len(set(shapes)) > 1:
        return arrays
    _one_shape(shapes)
    dtype = _one_dtype(dict.fromkeys(array.dtype for array in arrays))
    if out is None or out.shape != (len(arrays), *shapes[0]) or out.dtype != dtype:
        return np.stack(arrays)
    return np.stack(arrays, out=out)
    ### END YOUR SOLUTION


def place(array: npt.NDArray[Any], out: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``out`` filled with ``array`` if shape and dtype match, else ``array`` itself."""
    if out.shape != array.shape or out.dtype != array.dtype:
        return array
    out[...] = array
    return out


def _numbers(column: list[Any], kind: str) -> npt.NDArray[Any]:
    dtype = dtypes.default_float if kind == "float" else _NUMBERS[kind]
    try:
        return np.asarray(column, dtype)
    except OverflowError:
        wrong = max(map(int, column), key=abs)
        raise TypeError(
            f"default_collate: an int must fit {np.dtype(dtype)}, got {wrong}; return floats, or "
            "give collate="
        ) from None


def _one_shape(shapes: list[tuple[int, ...]]) -> None:
    """Raise ShapeError, which names a sample, unless all shapes are equal."""
    if len(set(shapes)) == 1:
        return
    for number, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ShapeError(
                "default_collate: the samples of a batch must have the same shape, got "
                f"{shapes[0]} in sample 0 and {shape} in sample {number}; resize them, or give "
                "collate="
            )


def _one_dtype(dtypes_found: Iterable[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the dtype that holds all values of these dtypes; TypeError if there is none."""
    several = list(dtypes_found)
    if len(several) == 1:
        return several[0]
    classes = {"number" if dtype.kind in "biufc" else dtype.kind for dtype in several}
    found = np.result_type(*several) if len(classes) == 1 else None
    rounds = found is not None and found.kind == "f" and all(d.kind in "iu" for d in several)
    if found is None or rounds:
        raise TypeError(
            f"default_collate: no dtype holds every value of {', '.join(map(str, several))}; "
            "convert them in the dataset, or give collate="
        )
    return found


def _kind(of: type) -> str:
    """Return the kind of a leaf of this type; "other" if no batch can hold it."""
    if issubclass(of, (str, bytes)):
        return "text"
    if issubclass(of, (bool, np.bool_)):
        return "bool"
    if issubclass(of, int):
        return "int"
    if issubclass(of, float) and not issubclass(of, np.floating):
        return "float"
    arrays = hasattr(of, "__array__") or callable(getattr(of, "numpy", None))
    return "array" if arrays else "other"


def _portable(value: Any) -> Any:
    """Return a picklable value that gives the leaf the same kind."""
    kind = _kind(type(value))
    if kind == "other":
        return value if isinstance(value, Unbatchable) else Unbatchable(type(value).__name__)
    return _as_array(value) if kind == "array" else value


def _named(value: Any) -> str:
    return type(value).__name__


def _as_array(value: Any) -> npt.NDArray[Any]:
    if hasattr(value, "__array__") or isinstance(value, (int, float)):
        return dtypes.unmasked("default_collate", value)
    return np.asarray(value.numpy())
