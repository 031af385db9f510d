"""Rules of shape ops: reshape, transpose, concatenate, stack, split."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops import indexing, normalization, padding, shape, triangles, tuples
from ...shapes import normalize_axis
from ..exported_graph import Graph, rule
from ..package import OnnxError


@rule(shape.Reshape)
def _reshape(graph: Graph, node: Any) -> str:
    """Export a reshape for any batch size: 0 copies the input's size, -1 is inferred."""
    source, sizes = node.inputs[0], graph.sizes(node)
    own = list(source.shape)
    wanted = [-1 if size is None else size for size in sizes]
    for i, size in enumerate(sizes):
        if size is None and own[i : i + 1] == [node.shape[i]]:
            wanted[i] = 0
    if wanted.count(-1) > 1 or 0 in node.shape:
        raise OnnxError(
            f"onnx.export: reshape {tuple(source.shape)} to {tuple(node.shape)} has more than one "
            "size that follows the batch; reshape in two steps"
        )
    return graph.add("Reshape", [graph.of(source), graph.integers(*wanted)])


@rule(shape.BroadcastTo)
def _expand(graph: Graph, node: Any) -> str:
    """Export a broadcast; sizes that the input already has are taken from it."""
    source = node.inputs[0]
    own = [1] * (len(node.shape) - len(source.shape)) + list(source.shape)
    if any(size is None and mine == 1 for size, mine in zip(graph.sizes(node), own, strict=True)):
        return graph.add("Expand", [graph.of(source), graph.shape(node)])
    wanted = [1 if mine == size else size for mine, size in zip(own, node.shape, strict=True)]
    return graph.add("Expand", [graph.of(source), graph.integers(*wanted)])


@rule(shape.Permute, shape.Transpose)
def _transpose(graph: Graph, node: Any) -> str:
    (source,) = node.inputs
    order = list(range(len(source.shape)))
    if isinstance(node.op, shape.Permute):
        order = [order[axis] for axis in node.op.axes]
    else:
        a, b = node.op.axes or (-2, -1)
        order[a], order[b] = order[b], order[a]
    return graph.add("Transpose", [graph.of(source)], perm=order)


@rule(indexing.Concatenate)
def _concatenate(graph: Graph, node: Any) -> str:
    """Export a concatenation; zeros after an input become Pad, which fits any batch size."""
    axis = normalize_axis("concatenate", node.op.axis, len(node.shape))
    first, *others = node.inputs
    zeros = all(graph.is_stored(s) and not s.numpy().any() for s in others)
    if others and zeros and not graph.is_stored(first) and axis:
        pads = np.zeros(2 * len(node.shape), np.int64)
        pads[len(node.shape) + axis] = sum(source.shape[axis] for source in others)
        return graph.add("Pad", [graph.of(first), graph.store(pads)])
    return graph.add("Concat", [graph.of(source) for source in node.inputs], axis=axis)


@rule(padding.Pad)
def _pad(graph: Graph, node: Any) -> str:
    (source,), widths = node.inputs, node.op.widths
    pads = [before for before, _ in widths] + [after for _, after in widths]
    names = [graph.of(source), graph.integers(*pads), graph.like(source, node.op.value)]
    return graph.add("Pad", names)


@rule(triangles.Triangle)
def _triangle(graph: Graph, node: Any) -> str:
    diagonal = graph.store(np.array(node.op.diagonal, np.int64))
    names = [graph.of(node.inputs[0]), diagonal]
    return graph.add("Trilu", names, upper=int(not node.op.lower))


@rule(shape.Stack)
def _stack(graph: Graph, node: Any) -> str:
    axis = normalize_axis("stack", node.op.axis, len(node.shape))
    at = graph.integers(axis)
    rows = [graph.add("Unsqueeze", [graph.of(source), at]) for source in node.inputs]
    return graph.add("Concat", rows, axis=axis)


@rule(shape.Flip)
def _flip(graph: Graph, node: Any) -> str:
    (source,) = node.inputs
    ndim, axes = len(source.shape), node.op.axes
    listed = range(ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    chosen = [normalize_axis("flip", axis, ndim) for axis in listed]
    first, last, back = ([n] * len(chosen) for n in (-1, -(2**63), -1))
    bounds = (graph.integers(*each) for each in (first, last, chosen, back))
    return graph.add("Slice", [graph.of(source), *bounds])


@rule(shape.Split)
def _split(graph: Graph, node: Any) -> str:
    """Export nothing, since each used part of the split exports itself."""
    return ""


@rule(tuples.TupleGetItem)
def _item(graph: Graph, node: Any) -> str:
    """Export a part of a split, or the first result of a layer norm."""
    (source,) = node.inputs
    index = node.op.index
    if isinstance(source.op, shape.Split):
        (whole,) = source.inputs
        axis = normalize_axis("split", source.op.axis, len(whole.shape))
        place = graph.store(np.array(index, np.int64))
        return graph.add("Gather", [graph.of(whole), place], axis=axis)
    if not isinstance(source.op, normalization.LayerNorm) or index != 0:
        raise OnnxError(
            f"onnx.export: result {index} of the op {type(source.op).__name__} has no ONNX "
            "operator; use the model in evaluation mode, or replace the op"
        )
    return graph.names[source]
