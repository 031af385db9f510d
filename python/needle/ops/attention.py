"""Scaled dot-product attention with masks, composed of matrix products and softmax.

Called by ``nn.MultiheadAttention``. The course's heads are in ``nn.attention``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..autograd import Tensor, as_operand
from ..dtypes import float_limits, is_floating
from ..errors import DTypeError, ShapeError
from ..host_steps import host_step
from ..shapes import broadcast_shapes, shape_of
from .broadcasting import constant_like
from .elementwise import astype
from .linalg import MatMul, matmul
from .loss import softmax
from .reduction import max as largest
from .registry import op
from .selection import logical_and, where
from .shape import transpose

NAME = "scaled_dot_product_attention"


@op(MatMul)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return dropout(softmax(query key^T * scale + mask)) value (Vaswani et al. 2017).

    query (..., L, E), key (..., S, E), value (..., S, V) -> (..., L, V). scale: None for
    1/sqrt(E). ``attn_mask`` broadcasts to (..., L, S): either bool, True where a query attends to a
    key, or floating, which is added to the logits. ``dropout_p``: the fraction of weights to drop,
    even in evaluation; the mask is drawn as in ``nn.Dropout``. ``is_causal``: query i attends to
    keys 0 to i. The result is 0 for a query from which a bool mask hides every key. ShapeError if
    the shapes do not match, ValueError unless 0 <= dropout_p <= 1.
    """
    query = as_operand(query, key)
    if attn_mask is not None and not isinstance(attn_mask, Tensor):
        attn_mask = as_operand(attn_mask, query)
    seen = causal(query.shape[-2], key.shape[-2], query.device) if is_causal else None
    if attn_mask is not None and not is_floating(attn_mask.dtype):
        if attn_mask.dtype.kind != "b":
            raise DTypeError(
                f"{NAME}: attn_mask must be bool or floating, got {attn_mask.dtype}; cast"
            )
        seen, attn_mask = attn_mask if seen is None else logical_and(seen, attn_mask), None
    weights = attention_weights(query, key, seen, attn_mask, scale)
    if dropout_p:
        weights = weights * _kept(tuple(weights.shape), dropout_p, weights.device, weights.dtype)
    return matmul(weights, value)


@host_step
def _kept(shape: tuple[int, ...], p: float, device: Any, dtype: Any) -> Tensor:
    """Return 1/(1-p) for what is kept and 0 for what is dropped, with probability p."""
    if isinstance(p, bool) or not 0 < p <= 1:
        raise ValueError(f"{NAME}: dropout_p must be in [0, 1], got {p}; it is a probability")
    kept = np.random.rand(*shape).astype("float32") <= 1 - p
    mask = kept / (1 - p) if p < 1 else np.zeros(shape)
    return Tensor(mask, device=device, dtype=dtype, requires_grad=False)


def attention_weights(
    query: Tensor,
    key: Tensor,
    seen: Tensor | None = None,
    added: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Return softmax(query key^T * scale + added), (..., L, S), over the keys that are ``seen``.

    A query that attends to no key has weights 0.
    """
    left, right = shape_of(NAME, query), shape_of(NAME, key)
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-1]:
        raise ShapeError(
            f"{NAME}: query and key must be (..., L, E) and (..., S, E), got {left} and {right}; "
            "reshape them"
        )
    factor = 1 / math.sqrt(left[-1]) if scale is None else scale
    logits = matmul(query * factor, transpose(key))
    for mask in (seen, added):
        if mask is not None and broadcast_shapes(NAME, mask.shape, logits.shape) != logits.shape:
            raise ShapeError(
                f"{NAME}: attn_mask must broadcast to {logits.shape}, got {mask.shape}; reshape it"
            )
    logits = logits if added is None else logits + added
    if seen is None or logits.shape[-1] == 0:
        return softmax(logits)
    # the lowest finite number, not -inf, so that a query without keys has no NaN gradient
    least = constant_like(logits, (), float(float_limits(logits.dtype).min))
    rows = largest(astype(seen, logits.dtype), -1, keepdims=True)
    return softmax(where(seen, logits, least)) * rows


@host_step
def causal(queries: int, keys: int, device: Any) -> Tensor:
    """Return the mask (queries, keys), True where key <= query."""
    seen = np.tri(queries, keys, dtype=bool)
    return Tensor(seen, device=device, dtype="bool", requires_grad=False)
