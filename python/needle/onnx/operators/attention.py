"""Multi-head attention as defined by ONNX."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import ops
from ...autograd import Tensor
from ..call import Call, operator


@operator("Attention")
def _attention(call: Call) -> tuple[Tensor, ...]:
    """Return softmax(scale Q K^T + mask) V, the keys, the values, and an intermediate product."""
    precision = call.get("softmax_precision", 1)
    if (precision == 11) != (call.x.dtype == "float64") and "softmax_precision" in call.attributes:
        raise call.refuse(f"softmax_precision must be the dtype of the input, got {precision}")
    query, key, value = (_heads(call, i) for i in (0, 1, 2))
    (n, heads, rows, width), kv_heads = query.shape, key.shape[1]
    if heads % max(kv_heads, 1) or key.shape[3] != width or value.shape[1] != kv_heads:
        raise call.refuse(
            f"heads and widths must agree, got Q {query.shape}, K {key.shape}, V {value.shape}"
        )
    past_key, past_value = call.optional(4), call.optional(5)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        key = ops.concatenate((past_key, key), axis=2)
        value = ops.concatenate((past_value, value), axis=2)
    columns = key.shape[2]
    call.sized((n, heads, rows, columns))
    root = math.sqrt(call.get("scale", 1 / math.sqrt(width)))
    many_keys, many_values = (
        ops.repeat_interleave(each, heads // kv_heads, 1) for each in (key, value)
    )
    scores = ops.matmul(query * root, ops.transpose(many_keys * root))
    stages = [scores]
    softcap = call.get("softcap", 0.0)
    scores = ops.tanh(scores / softcap) * softcap if softcap else scores
    capped = scores
    scores, dead = _masked(call, scores, past)
    if dead is None:
        shares = ops.softmax(scores, axis=-1)
    else:  # softmax of a row of -inf and its gradient would be NaN
        zero = call.constant([0], scores.dtype)
        alive = ops.softmax(ops.where(call.constant(dead), zero, scores), axis=-1)
        shares = ops.where(call.constant(dead), zero, alive)
    stages += [capped, scores, shares]
    y = ops.matmul(shares, many_values)
    if len(call.x.shape) == 3:
        y = ops.reshape(ops.permute(y, (0, 2, 1, 3)), (n, rows, heads * value.shape[3]))
    return y, key, value, stages[call.get("qk_matmul_output_mode", 0)]


def _heads(call: Call, index: int) -> Tensor:
    """Return Q, K or V as (N, heads, T, width)."""
    x = call.tensor(index)
    if len(x.shape) == 4:
        return x
    heads = call.get("kv_num_heads" if index else "q_num_heads", 0)
    if len(x.shape) != 3 or heads < 1 or x.shape[2] % heads:
        raise call.refuse(f"input {index} must be (N, T, {heads} * width), got {x.shape}")
    n, t, width = x.shape
    return ops.permute(ops.reshape(x, (n, t, heads, width // heads)), (0, 2, 1, 3))


def _masked(call: Call, scores: Tensor, past: int) -> tuple[Tensor, Any]:
    """Return the scores plus all masks, and the rows with every key masked (None: no row)."""
    rows, columns = scores.shape[2:]
    hidden = np.zeros((1, 1, rows, columns), bool)
    lengths = call.numbers(6)
    if lengths is not None:
        hidden = hidden | (np.arange(columns) >= lengths.reshape(-1, 1, 1, 1))
    offset = past if lengths is None else lengths.reshape(-1, 1, 1, 1) - rows
    ahead = np.arange(columns) - (np.arange(rows)[:, None] + offset)
    left, right = call.get("left_window_size", -1), call.get("right_window_size", -1)
    if call.flag("is_causal"):
        hidden = hidden | (ahead > 0)
    if left >= 0:
        hidden = hidden | (ahead < -left)
    if right >= 0:
        hidden = hidden | (ahead > right)
    mask = call.optional(3)
    if mask is not None and mask.dtype == "bool":
        hidden = hidden | ~_widened(call.array(3), columns, False)
    elif mask is not None:
        missing = columns - mask.shape[-1]
        call.stretched(mask, (*scores.shape[:3], mask.shape[-1]), "the mask")
        if missing > 0:
            border = call.constant(np.full((*mask.shape[:-1], missing), -np.inf), mask.dtype)
            mask = ops.concatenate((mask, border), axis=-1)
        scores = scores + mask
    if hidden.any():
        least = call.constant([-np.inf], scores.dtype)
        scores = ops.where(call.constant(hidden), least, scores)
    if mask is None and not hidden.any():
        return scores, None
    dead = np.isneginf(scores.detach().numpy()).all(axis=-1, keepdims=True)
    if not dead.any():
        return scores, None
    return scores, dead


def _widened(mask: Any, columns: int, value: Any) -> Any:
    widths = [(0, 0)] * (mask.ndim - 1) + [(0, max(columns - mask.shape[-1], 0))]
    return np.pad(mask, widths, constant_values=value)
