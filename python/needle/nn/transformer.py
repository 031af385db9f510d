"""Transformer with layer norm in front (Vaswani et al. 2017; Xiong et al. 2020).

Attention itself is in ``attention``.
"""

from __future__ import annotations

from typing import Any

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError
from ..shapes import shape_of
from .activations import ReLU
from .attention import AttentionLayer
from .containers import Residual, Sequential
from .dropout import Dropout
from .embedding import Embedding
from .linear import Linear
from .module import Module
from .normalization import LayerNorm1d


class TransformerLayer(Module):
    """Pre-norm transformer layer: attention and a two-layer perceptron, each with a residual.

    x + Dropout(AttentionLayer(x)), then x + Dropout(Linear2(Dropout(ReLU(Linear1(norm(x)))))). Maps
    x (B, T, q_features) to the same shape. The linear layers are (q_features, hidden_size) and
    back. The weights of the attention are drawn first.
    """

    def __init__(
        self,
        q_features: int,
        num_head: int,
        dim_head: int,
        hidden_size: int,
        *,
        dropout: float = 0.0,
        causal: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        attention = AttentionLayer(
            q_features, num_head, dim_head, dropout=dropout, causal=causal, **place
        )
        self.attention = Residual(Sequential(attention, Dropout(dropout)))
        self.mlp = Residual(
            Sequential(
                LayerNorm1d(q_features, **place),
                Linear(q_features, hidden_size, **place),
                ReLU(),
                Dropout(dropout),
                Linear(hidden_size, q_features, **place),
                Dropout(dropout),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.mlp(self.attention(x))
        return result


class Transformer(Module):
    """``num_layers`` TransformerLayers applied to x plus learned position vectors.

    Called with x (T, B, embedding_size), or (B, T, embedding_size) if ``batch_first``; T is at most
    sequence_len. Returns the result, of that shape, without a norm after the last layer, and zeros
    of that shape in place of a recurrent layer's state (a second argument is ignored). The
    positions (sequence_len, embedding_size) are drawn first, from N(0, 1). ShapeError if the input
    does not fit.
    """

    def __init__(
        self,
        embedding_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        num_head: int = 8,
        dim_head: int = 32,
        dropout: float = 0.0,
        causal: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
        batch_first: bool = False,
        sequence_len: int = 2048,
    ) -> None:
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.batch_first, self.sequence_len = batch_first, sequence_len
        self.positions = Embedding(sequence_len, embedding_size, **place)
        options: dict[str, Any] = {"dropout": dropout, "causal": causal, **place}
        self.layers = Sequential(
            *(
                TransformerLayer(embedding_size, num_head, dim_head, hidden_size, **options)
                for _ in range(num_layers)
            )
        )

    def extra_repr(self) -> str:
        return f"batch_first={self.batch_first}, sequence_len={self.sequence_len}"

    def forward(self, x: Tensor, h: Any = None) -> tuple[Tensor, Tensor]:
        shape, width = shape_of("Transformer", x), self.positions.embedding_dim
        steps = shape[1 if self.batch_first else 0] if len(shape) == 3 else None
        if steps is None or steps > self.sequence_len or shape[2] != width:
            layout = "(B, T, E)" if self.batch_first else "(T, B, E)"
            raise ShapeError(
                f"Transformer: the input must be {layout} with E={width} and T at most "
                f"{self.sequence_len}, got shape {shape}; shorten the sequence or create the layer "
                "with a larger sequence_len"
            )
        positions = self.positions(range(steps))
        if not self.batch_first:
            positions = ops.expand_dims(positions, 1)
        y = positions + x
        y = self.layers(y if self.batch_first else ops.transpose(y, (0, 1)))
        y = y if self.batch_first else ops.transpose(y, (0, 1))
        return y, init.zeros_like(y)
