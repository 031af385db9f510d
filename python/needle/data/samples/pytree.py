"""Pytrees: samples and batches as nested tuples, lists and dicts whose leaves hold the data.

``take_apart`` flattens a sample, and ``flatten`` a finished batch; ``Structure.rebuild`` unflattens
a batch. batching/collate.py stacks the leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ShapeError
from .buffer_pool import empty

Array = npt.NDArray[Any]

LEAF = "leaf"
_LEAVES = (np.ndarray, np.generic, int, float, str, bytes)
"""Classes of the usual leaves, which need no other check."""


@dataclass(frozen=True)
class Field:
    """The dtype of an array leaf, and the shape of one sample's row."""

    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""
        return self.dtype.itemsize * prod(self.row_shape)

    def of(self, rows: int) -> Array:
        """Return an uninitialised array ``(rows, *row_shape)``."""
        return empty((rows, *self.row_shape), self.dtype)


@dataclass(frozen=True)
class Structure:
    """The picklable structure of a sample or batch: its nested containers and kinds of leaves.

    tree: ``"leaf"``, or (container, keys or class, subtrees). kinds: the kind of each leaf in
    depth-first order: "array", "int", "float", "bool" (Python's numbers), "text", "uneven" (arrays,
    or a list of them if their shapes differ), "mixed" (a list of values that may be incompatible)
    or "other".
    """

    tree: Any
    kinds: tuple[str, ...]

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """Return the batch with these leaves, one for each element of ``kinds``."""
        rest = iter(leaves)
        return _build(self.tree, rest)


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


def take_apart(sample: Any) -> tuple[Any, list[Any]]:
    """Return the tree of a sample and its leaves, which may be arrays, numbers and text."""
    leaves: list[Any] = []
    return _taken_apart(sample, leaves, text=False), leaves


def flat_columns(samples: Sequence[Any]) -> list[tuple[Any, ...]] | None:
    """Return the columns of samples that are tuples of equally many leaves; None for others.

    This is cheaper than ``take_apart`` for each sample.
    """
    if set(map(type, samples)) != {tuple} or len(set(map(len, samples))) != 1:
        return None
    columns = list(zip(*samples))
    kinds = {kind for column in columns for kind in set(map(type, column))}
    return columns if all(issubclass(kind, _LEAVES) for kind in kinds) else None


def flat_tree(leaves: int) -> Any:
    """Return the tree of a tuple of ``leaves`` leaves."""
    return "tuple", None, (LEAF,) * leaves


def leaf_order(tree: Any, like: Any, sample: int = 0, first: int = 0) -> list[int]:
    """Return the leaf numbers of ``tree``, which begin at ``first``, in the order of ``like``.

    Only the order of the keys of dicts may differ. Raises ShapeError, which names ``sample``, for
    any other difference.
    """
    if tree == LEAF and like == LEAF:
        return [first]
    if not _same_container(tree, like):
        raise ShapeError(
            f"default_collate: every sample must have the same fields, got {_words(like)} in "
            f"sample 0 and {_words(tree)} in sample {sample}; give collate= to combine different "
            "samples"
        )
    starts: dict[Any, tuple[Any, int]] = {}
    for key, child in zip(_keys(tree), tree[2]):
        starts[key] = child, first
        first += count_leaves(child)
    order: list[int] = []
    for key, child in zip(_keys(like), like[2]):
        mine, start = starts[key]
        order += leaf_order(mine, child, sample, start)
    return order


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


def first_field(sample: Any) -> Any:
    """Return the field to which transforms apply: the first of a tuple or list, else the sample."""
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


def _taken_apart(value: Any, leaves: list[Any], text: bool) -> Any:
    """Return the tree of a sample or batch; append its leaves. text: a list of text is a leaf."""
    if isinstance(value, _LEAVES):
        leaves.append(value)
        return LEAF
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


def _same_container(tree: Any, like: Any) -> bool:
    if LEAF in (tree, like):
        return False
    same_keys = set(_keys(tree)) == set(_keys(like))
    return same_keys and tree[0] == like[0] and (tree[0] != "named" or tree[1] is like[1])


def _keys(tree: Any) -> Sequence[Any]:
    """Return the keys of a dict's tree, or the positions 0, 1, ... of any other container."""
    return tree[1] if tree[0] == "dict" else range(len(tree[2]))


def _words(tree: Any) -> str:
    if tree == LEAF:
        return "a single value"
    container, detail, children = tree
    if container == "dict":
        return f"a dict with the keys [{', '.join(sorted(map(repr, detail)))}]"
    return f"a {detail.__name__ if container == 'named' else container} of {len(children)}"
