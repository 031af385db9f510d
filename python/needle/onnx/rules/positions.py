"""Rules of indexing and embedding, whose indices may be the model's input."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops import indexing
from ..exported_graph import POSITIONS, Graph, on_host, rule
from ..package import OnnxError

FURTHEST = 2**63 - 1
"""The bound of a slice that extends to the end of an axis."""

POSITIONS[indexing.Embedding] = lambda op: [op.ids]
POSITIONS[indexing.GetItem] = lambda op: [each for each in op.index if _is_array(each)]


def _is_array(entry: Any) -> bool:
    return bool(getattr(entry, "ndim", 0))


@rule(indexing.Embedding)
def _embedding(graph: Graph, node: Any) -> str:
    return graph.add("Gather", [graph.of(node.inputs[0]), graph.positions(node.op.ids)], axis=0)


@rule(indexing.GetItem)
def _getitem(graph: Graph, node: Any) -> str:
    """Export slices, then added and removed axes; index arrays become Gather or GatherND."""
    entries = _complete(node.op.index, len(node.inputs[0].shape))
    taken = [entry for entry in entries if entry is not None]
    name = _slices(graph, graph.of(node.inputs[0]), taken)
    if any(_is_array(entry) for entry in taken):
        if None in [e if e is None else 0 for e in entries]:
            raise _refusal("new axes together with arrays")
        return _gather(graph, name, taken, graph.sizes(node))
    numbers = [i for i, entry in enumerate(taken) if not isinstance(entry, slice)]
    for axis in reversed(numbers):
        place = graph.store(np.array(int(taken[axis]), np.int64))
        name = graph.add("Gather", [name, place], axis=axis)
    kept = [entry for entry in entries if entry is None or isinstance(entry, slice)]
    new = [i for i, entry in enumerate(kept) if entry is None]
    return graph.add("Unsqueeze", [name, graph.integers(*new)]) if new else name or graph.of(node)


def _complete(index: tuple[Any, ...], ndim: int) -> list[Any]:
    """Return one entry for each axis, and None for each new one."""
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


def _slices(graph: Graph, name: str, entries: list[Any]) -> str:
    """Add a Slice for the entries that select only part of an axis."""
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
    return graph.add("Slice", [name, *(graph.integers(*column) for column in columns)])


def _gather(graph: Graph, name: str, entries: list[Any], sizes: list[Any]) -> str:
    """Add the nodes of an index with arrays; integers beside arrays count as arrays."""
    axes = [i for i, entry in enumerate(entries) if not isinstance(entry, slice)]
    if len(axes) == 1:
        return graph.add("Gather", [name, graph.positions(entries[axes[0]])], axis=axes[0])
    if any(graph.holds_input(entries[i]) for i in axes if _is_array(entries[i])):
        raise _refusal("the model's input beside another array")
    places = np.stack(np.broadcast_arrays(*(on_host(entries[i]) for i in axes)), axis=-1)
    rest = [i for i in range(len(entries)) if i not in axes]
    name = graph.add("Transpose", [name], perm=[*axes, *rest])
    name = graph.add("GatherND", [name, graph.store(places.astype(np.int64))])
    if axes != list(range(axes[0], axes[-1] + 1)):
        return name  # index arrays are separated, so their axes come first, as in NumPy
    count, before = places.ndim - 1, axes[0]
    order = [*range(count, count + before), *range(count)]
    return graph.add("Transpose", [name], perm=[*order, *range(len(order), len(sizes))])
