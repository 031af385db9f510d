"""Transformer layers: the course's, which apply layer norm first, and those of PyTorch.

Vaswani et al. 2017; Xiong et al. 2020. Attention is in ``attention``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError, UnknownNameError, check_callables
from ..shapes import shape_of
from .activations import ReLU
from .attention import AttentionLayer, Mask, MultiheadAttention
from .containers import Residual, Sequential
from .dropout import Dropout
from .embedding import Embedding
from .linear import Linear
from .module import Module
from .normalization import LayerNorm, LayerNorm1d

Function = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Function] = {"relu": ops.relu, "gelu": ops.gelu}


class TransformerLayer(Module):
    """Pre-norm transformer layer: attention and a two-layer perceptron, each with a residual.

    x + Dropout(AttentionLayer(x)), then x + Dropout(Linear2(Dropout(ReLU(Linear1(norm(x)))))). Maps
    x (B, T, q_features) to the same shape. The linear layers map q_features to hidden_size and
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

    shown_in_repr = ("batch_first", "sequence_len")

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


class _Layer(Module):
    """Base class of the layers with PyTorch's arguments: attention, perceptron, norms, dropout.

    Attribute names are PyTorch's, so that ``torch_mapping`` loads its weights. Each sub-layer, an
    attention or the perceptron, has a residual and, by number, its own norm and dropout.
    """

    shown_in_repr = ("norm_first",)

    attentions: tuple[str, ...]
    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Function = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self.activation = self._function(activation)
        self.norm_first = norm_first
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        for name in self.attentions:
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, **place
            )
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        for i in range(1, len(self.attentions) + 2):
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, **place))
            setattr(self, f"dropout{i}", Dropout(dropout))

    def _function(self, activation: str | Function) -> Function:
        """Return the activation function, given by name or as a function."""
        name = type(self).__name__
        if not isinstance(activation, str):
            check_callables(name, "activations", [activation])
            return activation
        if activation not in ACTIVATIONS:
            raise UnknownNameError(
                f"{name}: activation must be one of {', '.join(ACTIVATIONS)} or a function, got "
                f"{activation!r}; choose one"
            )
        return ACTIVATIONS[activation]

    def _residual(self, i: int, x: Tensor, function: Function) -> Tensor:
        """Return x + dropout(function(x)), with norm i before the function or after the sum."""
        norm, dropout = getattr(self, f"norm{i}"), getattr(self, f"dropout{i}")
        y: Tensor = x + dropout(function(norm(x) if self.norm_first else x))
        return y if self.norm_first else norm(y)

    def _perceptron(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return y


def _attended(
    attention: Module, x: Tensor, memory: Tensor, padding: Mask, mask: Mask, is_causal: bool
) -> Tensor:
    """Return the result of attention from x to ``memory``, without the weights."""
    y: Tensor = attention(x, memory, memory, padding, False, mask, is_causal=is_causal)[0]
    return y


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a two-layer perceptron, each with dropout, a residual and layer norm.

    Maps src (S, N, d_model), (N, S, d_model) if ``batch_first``, or (S, d_model), to its shape. The
    norms come after the sums (Vaswani et al. 2017), or with ``norm_first`` before attention and
    perceptron (Xiong et al. 2020). ``activation``: "relu", "gelu" or a function. Masks and
    ``is_causal`` are those of ``MultiheadAttention``. Dropout is off in evaluation.

    Arguments and names of weights are PyTorch's; ``nn.torch_mapping`` loads its weights. ShapeError
    unless ``nhead`` divides d_model, UnknownNameError for another activation.
    """

    attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Mask = None,
        src_key_padding_mask: Mask = None,
        is_causal: bool = False,
    ) -> Tensor:
        given = (src_key_padding_mask, src_mask, is_causal)
        x = self._residual(1, src, lambda x: _attended(self.self_attn, x, x, *given))
        return self._residual(2, x, self._perceptron)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's result, then a two-layer perceptron.

    Called with tgt (T, N, d_model) and memory (S, N, d_model), with the batch first if
    ``batch_first``, or both without a batch axis; returns tgt's shape. ``tgt_`` options apply to
    the self-attention, ``memory_`` options to the attention to ``memory``. Everything else is as in
    ``TransformerEncoderLayer``.
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        own = (tgt_key_padding_mask, tgt_mask, tgt_is_causal)
        further = (memory_key_padding_mask, memory_mask, memory_is_causal)
        x = self._residual(1, tgt, lambda x: _attended(self.self_attn, x, x, *own))
        x = self._residual(2, x, lambda x: _attended(self.multihead_attn, x, memory, *further))
        return self._residual(3, x, self._perceptron)
