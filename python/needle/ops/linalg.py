"""Matrix products, and Einstein sums: products summed over common indices.

Shapes are checked before a kernel is called. In an Einstein sum each operand becomes labelled axes;
operands are multiplied two at a time, from the left, as one (batched) matrix product.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp, as_operand
from ..errors import ShapeError
from ..shapes import broadcast_shapes, product, shape_of
from .broadcasting import unbroadcast
from .reduction import summation
from .registry import Array, op
from .shape import permute, reshape, transpose
from .triangles import diagonal


class MatMul(TensorOp):
    """Matrix product (..., m, k) @ (..., k, n) -> (..., m, n); batch axes broadcast."""

    reads = {0: (1,), 1: (0,)}

    def compute(self, a: Array, b: Array) -> Array:
        left, right = tuple(a.shape), tuple(b.shape)
        if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
            raise ShapeError(
                f"matmul: inner dimensions must agree, got {left} @ {right}; transpose or reshape "
                "one operand"
            )
        if left[:-2] != right[:-2]:
            broadcast_shapes("matmul", left[:-2], right[:-2])
        return xp.matmul(a, b)

    def multiplications(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return product(output) * inputs[0][-1]

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of both operands, summed over broadcast batch axes."""
        ### BEGIN YOUR SOLUTION [matmul-grad]
        a, b = node.inputs
        return (
            unbroadcast(matmul(out_grad, transpose(b)), a) if a.requires_grad else None,
            unbroadcast(matmul(transpose(a), out_grad), b) if b.requires_grad else None,
        )
        ### END YOUR SOLUTION


@op(MatMul, methods=["matmul", "__matmul__"])
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product over the last two axes.

    ``a`` (..., m, k) and ``b`` (..., k, n) give (..., m, n); batch axes broadcast. A 1-d ``a``
    counts as a row, a 1-d ``b`` as a column, and that axis is dropped from the result. ShapeError
    if the inner dimensions differ.
    """
    a = as_operand(a, b)
    b = as_operand(b, a)
    left, right = a.shape, b.shape
    if (len(left) > 1 and len(right) > 1) or not left or not right:
        return MatMul()(a, b)
    rows = a if len(left) > 1 else reshape(a, (1, *left))
    columns = b if len(right) > 1 else reshape(b, (*right, 1))
    product = MatMul()(rows, columns)
    shape = product.shape
    if len(right) == 1:
        shape = shape[:-1]
    if len(left) == 1:
        shape = (*shape[:-2], shape[-1]) if len(right) > 1 else shape[:-1]
    return reshape(product, shape)


@op(MatMul, methods=["__rmatmul__"])
def matmul_reversed(a: Tensor, b: Any) -> Tensor:
    """Return b @ a for an array ``b``."""
    return matmul(b, a)


class _Labelled(NamedTuple):
    """A tensor with one distinct label for each axis."""

    labels: tuple[str, ...]
    tensor: Tensor

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.labels, self.tensor.shape, strict=True))


@op(MatMul)
def einsum(subscripts: str, *operands: Tensor) -> Tensor:
    """Return the sum of products of the operands that ``subscripts`` describes, as in NumPy.

    "ij,jk->ik" is a matrix product, "ii->i" a diagonal, "...i,i" a batched dot product. Without
    "->", the result has the labels that occur once, in alphabetical order. Axes of size 1
    broadcast. ShapeError if the subscripts do not match the operands.
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    terms, output = _parse(subscripts, [shape_of("einsum", x) for x in operands])
    parts = [_without_repeats(subscripts, t, x) for t, x in zip(terms, operands, strict=True)]
    sizes = _common_sizes(subscripts, parts)
    missing = [label for label in output if label not in sizes]
    if missing or len(set(output)) != len(output):
        raise _error(subscripts, "the labels of the result must be distinct labels of operands")
    parts = [_without_ones(part, sizes) for part in parts]
    left = parts[0]
    for i, right in enumerate(parts[1:], 2):
        left = _multiplied(left, right, {*output, *(x for p in parts[i:] for x in p.labels)})
    left = _summed(left, set(output))
    shape = [left.sizes.get(label, 1) for label in output]
    order = [left.labels.index(label) for label in output if label in left.labels]
    return reshape(permute(left.tensor, order), shape)


def _error(subscripts: str, rule: str) -> ShapeError:
    return ShapeError(f"einsum: {rule}, got {subscripts!r}; correct the subscripts")


def _parse(
    subscripts: str, shapes: Sequence[tuple[int, ...]]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return the labels of each operand and of the result; "..." becomes labels "0", "1", ..."""
    before, arrow, after = subscripts.replace(" ", "").partition("->")
    texts = before.split(",")
    letters = set(string.ascii_letters)
    if len(texts) != len(shapes):
        raise _error(subscripts, f"there must be {len(texts)} operands, one for each term")
    if not set((before + after).replace("...", "").replace(",", "")) <= letters or "," in after:
        raise _error(subscripts, "labels must be letters or '...'")
    if any(text.count("...") > 1 for text in (*texts, after)):
        raise _error(subscripts, "a term may have at most one '...'")
    hidden = [
        len(shape) - len(text.replace("...", "")) if "..." in text else 0
        for text, shape in zip(texts, shapes, strict=True)
    ]
    numbers = tuple(f"{i}" for i in range(max(*hidden, 0)))
    terms = [_labels(text, numbers[len(numbers) - n :]) for text, n in zip(texts, hidden)]
    for term, shape, n in zip(terms, shapes, hidden, strict=True):
        if n < 0 or len(term) != len(shape):
            raise _error(
                subscripts, f"each axis needs a label, and there is an operand of shape {shape}"
            )
    if arrow:
        return terms, _labels(after, numbers)
    once = [c for c in sorted(letters) if before.replace("...", "").count(c) == 1]
    return terms, (*numbers, *once)


def _labels(text: str, numbers: tuple[str, ...]) -> tuple[str, ...]:
    before, dots, after = text.partition("...")
    return (*before, *(numbers if dots else ()), *after)


def _without_repeats(subscripts: str, labels: tuple[str, ...], x: Tensor) -> _Labelled:
    """Return the diagonal of axes with the same label."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if x.shape[first] != x.shape[second]:
                raise _error(
                    subscripts,
                    f"the axes of a repeated label must have the same size, got shape {x.shape}",
                )
            x = diagonal(x, 0, first, second)
            rest = [c for i, c in enumerate(labels) if i not in (first, second)]
            labels = (*rest, label)
    return _Labelled(labels, x)


def _common_sizes(subscripts: str, parts: Sequence[_Labelled]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for part in parts:
        for label, size in part.sizes.items():
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size not in (1, known):
                shapes = [p.tensor.shape for p in parts]
                raise _error(
                    subscripts,
                    f"a label must have the same size, or 1, in all of the shapes {shapes}",
                )
    return sizes


def _without_ones(part: _Labelled, sizes: dict[str, int]) -> _Labelled:
    """Return the operand without axes of size 1 that broadcast."""
    kept = tuple(label for label in part.labels if part.sizes[label] == sizes[label])
    return _Labelled(kept, reshape(part.tensor, [sizes[label] for label in kept]))


def _summed(part: _Labelled, kept: set[str]) -> _Labelled:
    axes = tuple(i for i, label in enumerate(part.labels) if label not in kept)
    if not axes:
        return part
    labels = tuple(label for label in part.labels if label in kept)
    return _Labelled(labels, summation(part.tensor, axes))


def _multiplied(a: _Labelled, b: _Labelled, kept: set[str]) -> _Labelled:
    """Return the product of two operands, summed over the common labels that are not ``kept``."""
    a, b = _summed(a, kept | set(b.labels)), _summed(b, kept | set(a.labels))
    common = [label for label in a.labels if label in b.labels]
    batch = [label for label in common if label in kept]
    inner = [label for label in common if label not in kept]
    rows = [label for label in a.labels if label not in common]
    columns = [label for label in b.labels if label not in common]
    labels = (*batch, *rows, *columns)
    sizes = a.sizes | b.sizes
    lead = [batch] if batch else []
    left = _arranged(a, (*lead, rows, inner), sizes)
    right = _arranged(b, (*lead, inner, columns), sizes)
    # Nothing is summed, so broadcasting columns with rows is faster than a matrix product.
    out = matmul(left, right) if inner else left * right
    return _Labelled(labels, reshape(out, [sizes[label] for label in labels]))


def _arranged(x: _Labelled, groups: Sequence[Sequence[str]], sizes: dict[str, int]) -> Tensor:
    """Return the tensor with one axis for each group of labels."""
    order = [x.labels.index(label) for group in groups for label in group]
    shape = [product(sizes[label] for label in group) for group in groups]
    return reshape(permute(x.tensor, order), shape)
