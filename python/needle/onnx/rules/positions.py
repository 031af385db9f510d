"""Export rules for indexing, embedding and shifts; indices may be the model's input."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops import gathering, indexing, repetition
from ..exported_graph import POSITIONS, Graph, on_host, rule
from ..package import OnnxError

FURTHEST = 2**63 - 1
"""The bound of a slice that extends to the end of an axis."""

POSITIONS[indexing.Embedding] = lambda op: [op.ids]
POSITIONS[indexing.GetItem] = lambda op: [each for each in op.index if _is_array(each)]


def _is_array(entry: Any) -> bool:
    return bool(getattr(entry, "ndim", 0))


@rule(indexing.Embedding)
def _embedding(graph: Graph, node: Any) -> Any:
    return ("Gather", node.inputs[0], graph.positions(node.op.ids), {"axis": 0})


@rule(gathering.Gather)
def _gather_elements(graph: Graph, node: Any) -> Any:
    x, index = node.inputs
    return ("GatherElements", x, graph.add(index, np.int64), {"axis": node.op.axis})


@rule(repetition.Roll)
def _roll(graph: Graph, node: Any) -> Any:
    """Export each shift as two slices of the axis, concatenated in swapped order."""
    x = graph.of(node.inputs[0])
    for shift, axis in zip(node.op.shifts, node.op.axes, strict=True):
        size = node.shape[axis]
        place = [-shift if abs(shift) < size else -(shift % size)]
        if place != [0]:
            last = ("Slice", x, place, [FURTHEST], [axis])
            x = graph.add(("Concat", last, ("Slice", x, [0], place, [axis]), {"axis": axis}))
    return x


@rule(indexing.GetItem)
def _getitem(graph: Graph, node: Any) -> Any:
    """Export slices, then removed and added axes; index arrays become Gather or GatherND."""
    entries = _complete(node.op.index, len(node.inputs[0].shape))
    taken = [entry for entry in entries if entry is not None]
    name = _slices(graph.of(node.inputs[0]), taken)
    if any(_is_array(entry) for entry in taken):
        if None in [e if e is None else 0 for e in entries]:
            raise _refusal("new axes together with arrays")
        return _gather(graph, name, taken, graph.sizes(node))
    numbers = [i for i, entry in enumerate(taken) if not isinstance(entry, slice)]
    for axis in reversed(numbers):
        name = ("Gather", name, np.array(int(taken[axis])), {"axis": axis})
    kept = [entry for entry in entries if entry is None or isinstance(entry, slice)]
    new = [i for i, entry in enumerate(kept) if entry is None]
    return ("Unsqueeze", name, new) if new else name


def _complete(index: tuple[Any, ...], ndim: int) -> list[Any]:
    """Return one entry for each axis, and None for each new one; lists become arrays."""
    index = tuple(np.asarray(each) if isinstance(each, list) else each for each in index)
    if any(isinstance(each, (bool, np.bool_)) or _is_bool(each) for each in index):
        raise _refusal("a mask")
    used = sum(each is not None and each is not Ellipsis for each in index)
    rest = [slice(None)] * (ndim - used)
    at = next((i for i, each in enumerate(index) if each is Ellipsis), None)
    if at is None:
        return [*index, *rest]
    return [*index[:at], *rest, *index[at + 1 :]]


def _is_bool(entry: Any) -> bool:
    return bool(getattr(entry, "dtype", None) == "bool")


def _refusal(what: str) -> OnnxError:
    return OnnxError(
        f"onnx.export: an index with {what} has no ONNX operator; use needle.where or other ops"
    )


def _slices(name: Any, entries: list[Any]) -> Any:
    """Return ``name``, or a Slice of it if entries select only part of an axis."""
    parts = [(i, s) for i, s in enumerate(entries) if isinstance(s, slice) and s != slice(None)]
    if not parts:
        return name
    columns: list[list[int]] = [[], [], [], []]
    for axis, part in parts:
        step = 1 if part.step is None else int(part.step)
        start = (0 if step > 0 else -1) if part.start is None else int(part.start)
        end = (FURTHEST if step > 0 else -FURTHEST) if part.stop is None else int(part.stop)
        for column, number in zip(columns, (start, end, axis, step), strict=True):
            column.append(number)
    return ("Slice", name, *columns)


def _gather(graph: Graph, name: Any, entries: list[Any], sizes: list[Any]) -> Any:
    """Return the nodes of an index with arrays; integers alongside arrays count as arrays."""
    axes = [i for i, entry in enumerate(entries) if not isinstance(entry, slice)]
    if len(axes) == 1:
        return ("Gather", name, graph.positions(entries[axes[0]]), {"axis": axes[0]})
    if any(graph.holds_input(entries[i]) for i in axes if _is_array(entries[i])):
        raise _refusal("the model's input together with another array")
    places = np.stack(np.broadcast_arrays(*(on_host(entries[i]) for i in axes)), axis=-1)
    rest = [i for i in range(len(entries)) if i not in axes]
    first = ("Transpose", name, {"perm": [*axes, *rest]})
    name = ("GatherND", first, places.astype(np.int64))
    if axes != list(range(axes[0], axes[-1] + 1)):
        return name  # index arrays are not adjacent, so their axes come first, as in NumPy
    count, before = places.ndim - 1, axes[0]
    order = [*range(count, count + before), *range(count)]
    return ("Transpose", name, {"perm": [*order, *range(len(order), len(sizes))]})
