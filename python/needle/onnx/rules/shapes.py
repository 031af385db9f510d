"""Export rules for shape ops: reshape, transpose, concatenate, stack, split."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops import indexing, normalization, padding, shape, triangles, tuples
from ...shapes import normalize_axes, normalize_axis
from ..exported_graph import EXPORTS, Graph, formula, rule
from ..package import OnnxError


@rule(shape.Reshape)
def _reshape(graph: Graph, node: Any) -> Any:
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
            "size that depends on the batch size; reshape in two steps"
        )
    return ("Reshape", source, wanted)


@rule(shape.BroadcastTo)
def _expand(graph: Graph, node: Any) -> Any:
    """Export a broadcast; sizes that the input already has are taken from it."""
    source = node.inputs[0]
    own = [1] * (len(node.shape) - len(source.shape)) + list(source.shape)
    if any(size is None and mine == 1 for size, mine in zip(graph.sizes(node), own, strict=True)):
        return ("Expand", source, graph.shape(node))
    wanted = [1 if mine == size else size for mine, size in zip(own, node.shape, strict=True)]
    return ("Expand", source, wanted)


@rule(shape.Permute, shape.Transpose)
def _transpose(graph: Graph, node: Any) -> Any:
    order = list(range(len(node.shape)))
    if isinstance(node.op, shape.Permute):
        order = [order[axis] for axis in node.op.axes]
    elif order:
        a, b = node.op.axes or (-2, -1)
        order[a], order[b] = order[b], order[a]
    return ("Transpose", node.inputs[0], {"perm": order})


@rule(indexing.Concatenate)
def _concatenate(graph: Graph, node: Any) -> Any:
    """Export a concatenation; zeros after an input become Pad, which fits any batch size."""
    axis = normalize_axis("concatenate", node.op.axis, len(node.shape))
    first, *others = node.inputs
    zeros = all(graph.is_stored(s) and not s.numpy().any() for s in others)
    if others and zeros and not graph.is_stored(first) and axis:
        pads = np.zeros(2 * len(node.shape), np.int64)
        pads[len(node.shape) + axis] = sum(source.shape[axis] for source in others)
        return ("Pad", first, pads)
    return ("Concat", *node.inputs, {"axis": axis})


@rule(padding.Pad)
def _pad(graph: Graph, node: Any) -> Any:
    widths = node.op.widths
    pads = [before for before, _ in widths] + [after for _, after in widths]
    return ("Pad", node.inputs[0], pads, node.op.value)


@rule(shape.Stack)
def _stack(graph: Graph, node: Any) -> Any:
    axis = normalize_axis("stack", node.op.axis, len(node.shape))
    return ("Concat", *(("Unsqueeze", row, [axis]) for row in node.inputs), {"axis": axis})


@rule(shape.Flip)
def _flip(graph: Graph, node: Any) -> Any:
    chosen = list(normalize_axes("flip", node.op.axes, len(node.shape)))
    if not chosen:
        return graph.of(node.inputs[0])
    first, last, back = ([n] * len(chosen) for n in (-1, -(2**63), -1))
    return ("Slice", node.inputs[0], first, last, chosen, back)


# A split itself exports no node: each item that is used exports a Slice.
EXPORTS[shape.Split] = EXPORTS[tuples.SplitWithSizes] = formula(lambda op, x: None)
EXPORTS[triangles.Triangle] = formula(
    lambda op, x: ("Trilu", x, np.array(op.diagonal), {"upper": int(not op.lower)})
)


@rule(tuples.TupleGetItem)
def _item(graph: Graph, node: Any) -> Any:
    """Export a part of a split, or the first result of a norm."""
    (source,) = node.inputs
    index = node.op.index
    if isinstance(source.op, shape.Split):
        (whole,) = source.inputs
        axis = normalize_axis("split", source.op.axis, len(whole.shape))
        return ("Gather", whole, np.array(index), {"axis": axis})
    if isinstance(source.op, tuples.SplitWithSizes):
        start, end = source.op.ends[index : index + 2]
        return ("Slice", source.inputs[0], [start], [end], [source.op.axis])
    if type(source.op) not in (normalization.LayerNorm, normalization.BatchNorm) or index != 0:
        raise OnnxError(
            f"onnx.export: result {index} of the op {type(source.op).__name__} has no ONNX "
            "operator; use the model in evaluation mode, or replace the op"
        )
    return graph.names[source]
