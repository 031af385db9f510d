"""Attention: the course's attention heads and layer, and PyTorch's MultiheadAttention.

Formulas: Vaswani et al. 2017; the course's layer applies layer norm first (Xiong et al. 2020).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor, as_operand
from ..dtypes import is_floating
from ..errors import ShapeError
from ..host_steps import host_step
from ..ops.attention import attention_weights, causal
from ..shapes import Shape, shape_of
from .dropout import Dropout
from .linear import Linear, affine
from .module import Module, Parameter
from .normalization import LayerNorm1d

Mask = Any


class MultiHeadAttention(Module):
    """Scaled dot-product attention: Dropout(softmax(q k^T / sqrt(D) + mask)) v for every head.

    Called with q (B, H, Tq, D), k (B, H, Tk, D) and v (B, H, Tk, Dv). Returns the result (B, H, Tq,
    Dv) and the attention weights (B, H, Tq, Tk) after dropout. ``causal``: the last query attends
    to all keys, and each earlier query to one key less than the next. The module has no parameters;
    ``device`` and ``dtype``, which the course passes, have no effect. ShapeError if the shapes do
    not match.
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
    """Return True if the shapes of queries, keys and values match."""
    if not len(q) == len(k) == len(v) == 4:
        return False
    (batch, heads, _, width), keys = q, k[2]
    return k == (batch, heads, keys, width) and v[:3] == (batch, heads, keys)


@host_step
def causal_mask(queries: int, keys: int, device: Device, dtype: Any) -> Tensor:
    """Return the mask (1, 1, queries, keys): 0 where key <= query + keys - queries.

    Elsewhere it is the most negative float32, which softmax maps to 0, but which keeps rows without
    any key finite.
    """
    ### BEGIN YOUR SOLUTION [attention]
    least = np.full((1, 1, queries, keys), -np.finfo("float32").max)
    mask = np.triu(least, keys - queries + 1)
    return Tensor(mask, device=device, dtype=dtype, requires_grad=False)
    ### END YOUR SOLUTION


class AttentionLayer(Module):
    """Attention layer: norm and projection of q, k and v, MultiHeadAttention, output projection.

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
        self.features = q_features, k_features, v_features
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
        for name, x, features in zip("qkv", (q, k, v), self.features, strict=True):
            shape = shape_of(f"AttentionLayer, {name}", x)
            if len(shape) != 3 or shape[2] != features:
                raise ShapeError(
                    f"AttentionLayer: {name} must be (B, T, {features}), got shape {shape}; "
                    "reshape it"
                )
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
        shape = x.shape
        ### BEGIN YOUR SOLUTION [attention-layer]
        split = ops.reshape(x, (*shape[:2], self.num_head, self.dim_head))
        return ops.transpose(split, (1, 2))
        ### END YOUR SOLUTION


class MultiheadAttention(Module):
    """Attention of ``num_heads`` heads over projections of query, key and value, as in PyTorch.

    Called with query (L, N, embed_dim), key (S, N, kdim) and value (S, N, vdim), with the batch
    first if ``batch_first``, or all without a batch axis. Returns the result (L, N, embed_dim) and
    the weights (N, L, S): their mean over the heads, or (N, num_heads, L, S) without
    ``average_attn_weights``, or None without ``need_weights``. ``attn_mask`` (L, S) or
    (N*num_heads, L, S) and ``key_padding_mask`` (N, S): either bool, True for keys to ignore, or
    floating, which is added to the logits. ``is_causal``: query i attends to keys 0 to i.

    The projections are in_proj_weight (embed_dim, 3*embed_dim), or q_proj_weight, k_proj_weight and
    v_proj_weight if kdim or vdim differ, all Xavier uniform, and in_proj_bias of zeros; then
    out_proj. ShapeError for sizes that do not match.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
            raise ShapeError(
                f"MultiheadAttention: num_heads must divide embed_dim, got {num_heads} and "
                f"{embed_dim}; change one of them"
            )
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.dropout = Dropout(dropout) if dropout else None
        place: dict[str, Any] = {"device": device, "dtype": dtype}

        def drawn(inputs: int, outputs: int) -> Parameter:
            return Parameter(init.xavier_uniform(inputs, outputs, **place))

        kdim, vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.in_proj_weight: Tensor | None = None
        if kdim == vdim == embed_dim:
            self.in_proj_weight = drawn(embed_dim, 3 * embed_dim)
        else:
            self.q_proj_weight: Tensor = drawn(embed_dim, embed_dim)
            self.k_proj_weight: Tensor = drawn(kdim, embed_dim)
            self.v_proj_weight: Tensor = drawn(vdim, embed_dim)
        self.in_proj_bias: Tensor | None = None
        if bias:
            self.in_proj_bias = Parameter(init.zeros(3 * embed_dim, **place))
        self.out_proj = Linear(embed_dim, embed_dim, bias, **place)
        if self.out_proj.bias is not None:
            self.out_proj.bias.data = init.zeros(1, embed_dim, **place)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, batch_first={self.batch_first}"

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Mask = None,
        need_weights: bool = True,
        attn_mask: Mask = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        shapes = [shape_of("MultiheadAttention", each) for each in (query, key, value)]
        ndim = len(shapes[0])
        if ndim not in (2, 3) or any(len(shape) != ndim for shape in shapes):
            raise ShapeError(
                "MultiheadAttention: query, key and value must all have 3 axes, or 2 without the "
                f"batch, got shapes {shapes[0]}, {shapes[1]} and {shapes[2]}; reshape them"
            )
        heads = [self._heads(x) for x in self._projected(query, key, value)]
        size = (*heads[0].shape[:3], heads[1].shape[2])
        seen, added = _masks(key_padding_mask, attn_mask, size, heads[0])
        if is_causal:
            past = causal(size[2], size[3], heads[0].device)
            seen = past if seen is None else ops.logical_and(seen, past)
        weights = attention_weights(heads[0], heads[1], seen, added)
        weights = weights if self.dropout is None else self.dropout(weights)
        y = ops.transpose(ops.matmul(weights, heads[2]), (1, 2))
        y = self.out_proj(ops.reshape(y, (*y.shape[:2], self.embed_dim)))
        if ndim == 2:
            y = ops.squeeze(y, 0)
        elif not self.batch_first:
            y = ops.transpose(y, (0, 1))
        if not need_weights:
            return y, None
        shown = ops.mean(weights, 1) if average_attn_weights else weights
        return y, ops.squeeze(shown, 0) if ndim == 2 else shown

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Return the projections of query, key and value."""
        name, width, whole = "MultiheadAttention", self.embed_dim, self.in_proj_weight
        if whole is not None and query is key and key is value:
            y = affine(name, query, whole, self.in_proj_bias)
            y = ops.reshape(y, (*y.shape[:-1], 3, width))
            return list(ops.split(y, len(y.shape) - 2))
        parts = [slice(i * width, (i + 1) * width) for i in range(3)]
        if whole is None:
            weights = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        else:
            weights = [whole[:, part] for part in parts]
        bias = self.in_proj_bias
        biases = [None if bias is None else bias[part] for part in parts]
        given = zip((query, key, value), weights, biases, strict=True)
        return [affine(name, x, weight, b) for x, weight, b in given]

    def _heads(self, x: Tensor) -> Tensor:
        """Return a projection as (N, num_heads, T, embed_dim / num_heads)."""
        if len(x.shape) == 2:
            x = ops.expand_dims(x, 0)
        elif not self.batch_first:
            x = ops.transpose(x, (0, 1))
        shape = (*x.shape[:2], self.num_heads, self.embed_dim // self.num_heads)
        return ops.transpose(ops.reshape(x, shape), (1, 2))


def _masks(
    padding: Mask, attention: Mask, size: tuple[int, ...], like: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Return the bool mask and the additive mask for ``size`` (N, heads, L, S), or None."""
    batch, heads, queries, keys = size
    masks: list[Tensor] = []
    shapes: dict[Shape, Shape]
    if padding is not None:
        shapes = {(batch, keys): (batch, 1, 1, keys)}
        shapes |= {(keys,): (1, 1, 1, keys)} if batch == 1 else {}
        masks.append(_shaped("key_padding_mask", padding, shapes, like))
    if attention is not None:
        shapes = {(batch * heads, queries, keys): size, (queries, keys): (1, 1, queries, keys)}
        masks.append(_shaped("attn_mask", attention, shapes, like))
    seen = added = None
    for mask in masks:
        if is_floating(mask.dtype):
            added = mask if added is None else added + mask
        else:
            visible = ops.logical_not(mask)
            seen = visible if seen is None else ops.logical_and(seen, visible)
    return seen, added


def _shaped(name: str, mask: Mask, shapes: dict[Shape, Shape], like: Tensor) -> Tensor:
    """Return the mask in the shape to which ``shapes`` maps its own; ShapeError if none."""
    given = as_operand(mask, like)
    if given.shape not in shapes or not (given.dtype.kind == "b" or is_floating(given.dtype)):
        wanted = " or ".join(map(str, shapes))
        raise ShapeError(
            f"MultiheadAttention: {name} must be bool or floating, of shape {wanted}, got "
            f"{given.dtype} of shape {given.shape}; reshape or cast it"
        )
    return ops.reshape(given, shapes[given.shape])
