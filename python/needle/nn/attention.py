"""Attention: the heads (MultiHeadAttention) and the layer with projections (AttentionLayer).

Formulas: Vaswani et al. 2017, with layer norm in front (Xiong et al. 2020).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError
from ..host_steps import host_step
from ..shapes import shape_of
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm1d


class MultiHeadAttention(Module):
    """Scaled dot-product attention: Dropout(softmax(q k^T / sqrt(D) + mask)) v for every head.

    Called with q (B, H, Tq, D), k (B, H, Tk, D) and v (B, H, Tk, Dv). Returns the result (B, H, Tq,
    Dv) and the attention weights (B, H, Tq, Tk) after dropout. ``causal``: the last query sees all
    keys, each earlier query one key less. The module has no parameters; ``device`` and ``dtype``,
    which the course passes, have no effect. ShapeError if the shapes do not fit.
    """

    shown_in_repr = ("causal",)

    def __init__(
        self,
        *,
        dropout: float = 0.0,
        causal: bool = False,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self.causal, self.dropout = causal, Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        shapes = [shape_of("MultiHeadAttention", each) for each in (q, k, v)]
        if not _fit(*shapes):
            raise ShapeError(
                "MultiHeadAttention: q, k and v must be (B, H, Tq, D), (B, H, Tk, D) and "
                f"(B, H, Tk, Dv), got {shapes[0]}, {shapes[1]} and {shapes[2]}; reshape them"
            )
        (*_, queries, width), keys = shapes[0], shapes[1][2]
        ### BEGIN YOUR SOLUTION [attention]
        logits = ops.matmul(q * (1 / math.sqrt(width)), ops.transpose(k))
        if self.causal:
            logits = logits + causal_mask(queries, keys, logits.device, logits.dtype)
        probabilities = self.dropout(ops.softmax(logits))
        return ops.matmul(probabilities, v), probabilities
        ### END YOUR SOLUTION


def _fit(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> bool:
    """Return True if the shapes of queries, keys and values fit each other."""
    if not len(q) == len(k) == len(v) == 4:
        return False
    (batch, heads, _, width), keys = q, k[2]
    return k == (batch, heads, keys, width) and v[:3] == (batch, heads, keys)


@host_step
def causal_mask(queries: int, keys: int, device: Device, dtype: Any) -> Tensor:
    """Return the mask (1, 1, queries, keys): 0 where key <= query + keys - queries.

    Elsewhere it holds the most negative float32, which softmax maps to 0 and which keeps a row
    without any key finite.
    """
    ### BEGIN YOUR SOLUTION [attention]
    least = np.full((1, 1, queries, keys), -np.finfo("float32").max)
    mask = np.triu(least, keys - queries + 1)
    return Tensor(mask, device=device, dtype=dtype, requires_grad=False)
    ### END YOUR SOLUTION


class AttentionLayer(Module):
    """Layer norm and projection of q, k and v, MultiHeadAttention, and an output projection.

    Called with q (B, Tq, q_features), k (B, Tk, k_features) and v (B, Tk, v_features); k defaults
    to q, v to k. Returns (B, Tq, out_features). All feature sizes default to q_features. The
    projections have no bias; they are drawn in the order q, k, v, out.
    """

    shown_in_repr = ("num_head", "dim_head")

    def __init__(
        self,
        q_features: int,
        num_head: int,
        dim_head: int,
        *,
        k_features: int | None = None,
        v_features: int | None = None,
        out_features: int | None = None,
        dropout: float = 0.0,
        causal: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        k_features = q_features if k_features is None else k_features
        v_features = q_features if v_features is None else v_features
        out_features = q_features if out_features is None else out_features
        self.num_head, self.dim_head = num_head, dim_head
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.prenorm_q = LayerNorm1d(q_features, **place)
        self.prenorm_k = LayerNorm1d(k_features, **place)
        self.prenorm_v = LayerNorm1d(v_features, **place)
        inner = num_head * dim_head
        self.q_projection = Linear(q_features, inner, bias=False, **place)
        self.k_projection = Linear(k_features, inner, bias=False, **place)
        self.v_projection = Linear(v_features, inner, bias=False, **place)
        self.attn = MultiHeadAttention(dropout=dropout, causal=causal)
        self.out_projection = Linear(inner, out_features, bias=False, **place)

    def forward(self, q: Tensor, k: Tensor | None = None, v: Tensor | None = None) -> Tensor:
        k = q if k is None else k
        v = k if v is None else v
        ### BEGIN YOUR SOLUTION [attention-layer]
        heads, _ = self.attn(
            self._heads(self.q_projection(self.prenorm_q(q))),
            self._heads(self.k_projection(self.prenorm_k(k))),
            self._heads(self.v_projection(self.prenorm_v(v))),
        )
        batch, _, steps, _ = heads.shape
        rows = ops.reshape(ops.transpose(heads, (1, 2)), (batch, steps, -1))
        result: Tensor = self.out_projection(rows)
        return result
        ### END YOUR SOLUTION

    def _heads(self, x: Tensor) -> Tensor:
        """Reshape (B, T, num_head * dim_head) -> (B, num_head, T, dim_head)."""
        shape = shape_of("AttentionLayer", x)
        if len(shape) != 3:
            raise ShapeError(
                f"AttentionLayer: q, k and v must be (B, T, features), got shape {shape}; reshape "
                "them"
            )
        ### BEGIN YOUR SOLUTION [attention-layer]
        split = ops.reshape(x, (*shape[:2], self.num_head, self.dim_head))
        return ops.transpose(split, (1, 2))
        ### END YOUR SOLUTION
