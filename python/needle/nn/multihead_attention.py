"""Multi-head attention with PyTorch's arguments; the course's is in ``attention``."""

from __future__ import annotations

from typing import Any

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor, as_operand
from ..dtypes import is_floating
from ..errors import ShapeError
from ..ops.attention import attention_weights, causal
from ..shapes import Shape, shape_of
from .dropout import Dropout
from .linear import Linear, affine
from .module import Module, Parameter

Mask = Any


class MultiheadAttention(Module):
    """Attention of ``num_heads`` heads over projections of query, key and value, as in PyTorch.

    Called with query (L, N, embed_dim), key (S, N, kdim) and value (S, N, vdim), with the batch
    first if ``batch_first``, or all without a batch axis. Returns the result (L, N, embed_dim) and
    the weights (N, L, S): their mean over the heads, or (N, num_heads, L, S) without
    ``average_attn_weights``, or None without ``need_weights``. ``attn_mask`` (L, S) or
    (N*num_heads, L, S) and ``key_padding_mask`` (N, S): bool, True for what is ignored, or
    floating, added. ``is_causal``: query i sees keys up to i.

    The projections are in_proj_weight (embed_dim, 3*embed_dim), or q_proj_weight, k_proj_weight and
    v_proj_weight where kdim or vdim differ, Xavier uniform, and in_proj_bias of zeros; then
    out_proj. ShapeError for sizes that do not fit.
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
    """Return the mask, reshaped to the shape to which ``shapes`` maps its own."""
    given = as_operand(mask, like)
    if given.shape not in shapes or not (given.dtype.kind == "b" or is_floating(given.dtype)):
        wanted = " or ".join(map(str, shapes))
        raise ShapeError(
            f"MultiheadAttention: {name} must be bool or floating, of shape {wanted}, got "
            f"{given.dtype} of shape {given.shape}; reshape or cast it"
        )
    return ops.reshape(given, shapes[given.shape])
