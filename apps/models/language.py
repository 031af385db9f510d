"""The course's language model, which predicts the next word."""

from __future__ import annotations

from typing import Any

from needle import Tensor, nn, ops
from needle.errors import unknown_name

SEQUENCES = {"rnn": nn.RNN, "lstm": nn.LSTM, "transformer": nn.Transformer}


class LanguageModel(nn.Module):
    """Embedding, a sequence layer and a linear layer: ids x (T, B) -> logits (T * B, output_size).

    ``model(x, h)`` also returns the sequence layer's state, which starts the next piece of the
    text: (num_layers, B, hidden_size), a pair of them for "lstm". A "transformer" sees at most
    seq_len steps and has no state; it returns zeros. The layers draw their weights in this order.
    """

    def __init__(
        self,
        embedding_size: int,
        output_size: int,
        hidden_size: int,
        num_layers: int = 1,
        seq_model: str = "rnn",
        seq_len: int = 40,
        device: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        if seq_model not in SEQUENCES:
            raise unknown_name("seq_model", seq_model, SEQUENCES)
        place = {"device": device, "dtype": dtype}
        is_transformer = seq_model == "transformer"
        options = {"sequence_len": seq_len} if is_transformer else {}
        self.embedding = nn.Embedding(output_size, embedding_size, **place)
        self.seq_model = SEQUENCES[seq_model](
            embedding_size, hidden_size, num_layers, **options, **place
        )
        width = embedding_size if is_transformer else hidden_size
        self.linear = nn.Linear(width, output_size, **place)

    def forward(self, x: Tensor, h: Any = None) -> tuple[Tensor, Any]:
        y, h = self.seq_model(self.embedding(x), h)
        steps, batch, width = y.shape
        return self.linear(ops.reshape(y, (steps * batch, width))), h
