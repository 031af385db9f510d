"""Pytrees: samples and batches as nested tuples, lists and dicts whose leaves hold the data.

``describe`` and ``columns`` flatten samples, and ``flatten`` flattens a finished batch;
``Structure.rebuild`` unflattens a batch; ``concatenate`` joins the slices that an engine prepared.
batching/collate.py stacks the leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ShapeError
from .buffer_pool import empty

Array = npt.NDArray[Any]

LEAF = "leaf"


@dataclass(frozen=True)
class Field:
    """The dtype of an array leaf and the shape of one sample's row of it."""

    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def of(self, rows: int) -> Array:
        """Return an uninitialised array ``(rows, *row_shape)``."""
        return empty((rows, *self.row_shape), self.dtype)


@dataclass(frozen=True)
class Structure:
    """The picklable structure of a sample or batch: its nested containers and kinds of leaves.

    tree: ``"leaf"``, or (container, keys or class, subtrees). kinds: the kind of each leaf in
    depth-first order: "array", "int", "float", "bool" (Python's numbers), "text", "uneven"
    (arrays, or a list of them if their shapes differ) or "other".
    """

    tree: Any
    kinds: tuple[str, ...]

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """Return the batch with these leaves, one for each element of ``kinds``."""
        rest = iter(leaves)
        return _build(self.tree, rest)


@dataclass
class Slice:
    """Prepared samples that form a batch or a part of one.

    structure: None if there are no samples. leaves: arrays whose first axis is the samples, or
    lists. placed: for each leaf, True if it was written to the rows given to ``prepare``. skipped:
    the number of unreadable samples that were skipped.
    """

    structure: Structure | None = None
    leaves: list[Any] = field(default_factory=list)
    samples: int = 0
    placed: tuple[bool, ...] = ()
    skipped: int = 0

    def rows(self, rows: slice) -> Slice:
        """Return some of the samples as views; no sample may have been skipped."""
        leaves = [leaf[rows] for leaf in self.leaves]
        return Slice(self.structure, leaves, len(range(self.samples)[rows]))

    def batch(self) -> Any:
        """Return the samples as one batch; None if there are none."""
        return None if self.structure is None else self.structure.rebuild(self.leaves)


def tag_sample(error: BaseException, index: int) -> None:
    """Record on ``error`` the index of the sample that raised it."""
    with suppress(Exception):  # an exception class with slots accepts no attribute
        if getattr(error, "__needle_index__", None) is None:
            error.__needle_index__ = int(index)  # type: ignore[attr-defined]


def tagged_sample(error: BaseException) -> int | None:
    """Return the index that ``tag_sample`` recorded, or None."""
    with suppress(Exception):
        index = getattr(error, "__needle_index__", None)
        return index if isinstance(index, int) else None
    return None


def describe(sample: Any) -> Structure:
    """Return the structure of one sample, whose leaves may be arrays, numbers and text."""
    leaves: list[Any] = []
    tree = _taken_apart(sample, leaves, text=False)
    return Structure(tree, tuple(map(_kind, leaves)))


def columns(samples: Sequence[Any], structure: Structure, first: int = 0) -> list[list[Any]]:
    """Return the values of each leaf of ``structure`` in all samples.

    first: the position of ``samples[0]`` in the batch, for error messages. Raises ShapeError if
    the lengths or keys of a sample differ from those of the structure.
    """
    if structure.tree == LEAF:
        return [list(samples)]
    found: list[list[Any]] = [[] for _ in structure.kinds]
    for number, sample in enumerate(samples, first):
        for column, value in zip(found, _leaves(structure.tree, sample, number)):
            column.append(value)
    return found


def count_leaves(tree: Any) -> int:
    """Return the number of leaves of a structure's tree."""
    return 1 if tree == LEAF else sum(count_leaves(child) for child in tree[2])


def flatten(batch: Any) -> tuple[Structure, list[Any]]:
    """Return the structure of a finished batch and its leaves in order.

    A list of text is one leaf; every other tuple, list or dict is a container.
    """
    leaves: list[Any] = []
    tree = _taken_apart(batch, leaves, text=True)
    kinds = ((np.ndarray, "array"), (list, "text"), (object, "other"))
    found = (next(name for kind, name in kinds if isinstance(leaf, kind)) for leaf in leaves)
    return Structure(tree, tuple(found)), leaves


def concatenate(slices: Sequence[Slice], out: Sequence[Array | None] | None = None) -> Slice:
    """Join the slices of one batch, in order, into one slice and return it.

    out: the whole arrays whose rows the slices wrote to, one for each array leaf; a leaf that
    every slice wrote there is not copied. Raises ShapeError if the slices do not fit each other,
    and TypeError if a field has ints in the first slice and other numbers in a later one.
    """
    skipped = sum(part.skipped for part in slices)
    parts = [part for part in slices if part.samples and part.structure is not None]
    total = sum(part.samples for part in parts)
    if not parts:
        return Slice(None, [], 0, skipped=skipped)
    structure = parts[0].structure
    assert structure is not None
    for part in parts[1:]:
        assert part.structure is not None
        if part.structure.tree != structure.tree:
            raise ShapeError(
                "default_collate: every sample must have the same fields, got some that differ "
                "in one batch; give collate= for uneven samples"
            )
    leaves, placed = [], []
    for i, kind in enumerate(structure.kinds):
        whole = None if out is None or i >= len(out) else out[i]
        here = whole is not None and all(part.placed[i : i + 1] == (True,) for part in parts)
        placed.append(here and whole is not None and len(whole) == total)
        leaves.append(whole if placed[-1] else _join(kind, i, parts))
    return Slice(structure, leaves, total, tuple(placed), skipped)


def first_field(sample: Any) -> Any:
    """Return the field that transforms apply to: the first of a tuple or list, else the sample."""
    return sample[0] if isinstance(sample, (tuple, list)) and len(sample) else sample


def with_first(sample: Any, value: Any) -> Any:
    """Return the sample with its first field replaced by ``value``."""
    if isinstance(sample, (tuple, list)) and len(sample):
        return rebuild(sample, [value, *sample[1:]])
    return value


def rebuild(like: Any, fields: list[Any]) -> Any:
    """Return ``fields`` in a container like ``like``: a tuple, a named tuple or a list."""
    if hasattr(like, "_fields"):
        return type(like)(*fields)
    return tuple(fields) if isinstance(like, tuple) else fields


def one_shape(shapes: Sequence[tuple[int, ...]], first: int = 0) -> None:
    """Raise ShapeError, which names a sample, unless all shapes are equal."""
    for number, shape in enumerate(shapes, first):
        if shape != shapes[0]:
            raise ShapeError(
                f"default_collate: samples of a batch must have one shape, got {shapes[0]} in "
                f"sample {first} and {shape} in sample {number}; resize them, or give collate="
            )


def _join(kind: str, leaf: int, parts: Sequence[Slice]) -> Any:
    pieces = [part.leaves[leaf] for part in parts]
    if len(pieces) == 1:
        return pieces[0]
    if not all(isinstance(piece, np.ndarray) for piece in pieces):
        return [value for piece in pieces for value in piece]
    first = pieces[0]
    if kind in ("float", "bool"):  # the first sample decides the dtype, as within one slice
        pieces = [piece.astype(first.dtype, copy=False) for piece in pieces]
    elif kind == "int" and any(piece.dtype.kind not in "iub" for piece in pieces):
        raise TypeError(
            f"default_collate: a field that starts with the int {first[0]} must hold ints, got "
            f"{', '.join(sorted({piece.dtype.name for piece in pieces}))}; use one kind of number"
        )
    shapes = [piece.shape[1:] for piece in pieces]
    if kind == "uneven" and len(set(shapes)) > 1:  # the shapes may be equal within each slice
        return [row for piece in pieces for row in piece]
    one_shape(shapes)
    return np.concatenate(pieces)


def _taken_apart(value: Any, leaves: list[Any], text: bool) -> Any:
    """Return the tree of a sample or batch; append its leaves. text: a list of text is a leaf."""
    if isinstance(value, Mapping):
        inner = tuple(_taken_apart(each, leaves, text) for each in value.values())
        return "dict", tuple(value), inner
    words = text and isinstance(value, list) and all(isinstance(v, (str, bytes)) for v in value)
    if isinstance(value, (tuple, list)) and not (words and value):
        inner = tuple(_taken_apart(each, leaves, text) for each in value)
        if hasattr(value, "_fields"):
            return "named", type(value), inner
        return ("tuple" if isinstance(value, tuple) else "list"), None, inner
    leaves.append(value)
    return LEAF


def _kind(sample: Any) -> str:
    if isinstance(sample, (str, bytes)):
        return "text"
    if isinstance(sample, (bool, np.bool_)):
        return "bool"
    if isinstance(sample, int):
        return "int"
    if isinstance(sample, float) and not isinstance(sample, np.floating):
        return "float"
    return "array"


def _build(tree: Any, leaves: Iterator[Any]) -> Any:
    if tree == LEAF:
        return next(leaves)
    container, detail, children = tree
    fields = [_build(child, leaves) for child in children]
    if container == "dict":
        return dict(zip(detail, fields))
    if container == "named":
        return detail(*fields)
    return tuple(fields) if container == "tuple" else fields


def _leaves(tree: Any, sample: Any, number: int) -> Iterator[Any]:
    if tree == LEAF:
        yield sample
        return
    container, detail, children = tree
    if container == "dict":
        _check_keys(detail, sample, number)
        values = [sample[key] for key in detail]
    else:
        _check_length(len(children), sample, number)
        values = list(sample)
    for child, value in zip(children, values):
        yield from _leaves(child, value, number)


def _check_keys(keys: tuple[Any, ...], sample: Any, number: int) -> None:
    if not isinstance(sample, Mapping) or sample.keys() != set(keys):
        got = sorted(map(str, sample)) if isinstance(sample, Mapping) else sample
        raise ShapeError(
            f"default_collate: every sample must have the keys {sorted(map(str, keys))}, "
            f"got {got} in sample {number} of the batch; give collate= for uneven samples"
        )


def _check_length(length: int, sample: Any, number: int) -> None:
    if not isinstance(sample, (tuple, list)) or len(sample) != length:
        got = f"{len(sample)}" if isinstance(sample, (tuple, list)) else repr(sample)
        raise ShapeError(
            f"default_collate: every sample must have {length} fields, got {got} in "
            f"sample {number} of the batch; give collate= for uneven samples"
        )
