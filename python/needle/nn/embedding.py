"""The table of vectors for ids; the op and its gradient are in ``ops.indexing``."""

from __future__ import annotations

from typing import Any

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor
from .ids import whole_ids
from .module import Module, Parameter


class Embedding(Module):
    """Row ``id`` of weight (num_embeddings, embedding_dim), drawn from N(0, 1), for every id.

    Called with whole ids of any dtype and shape, (T, B) in the course; returns (T, B,
    embedding_dim). The rows are gathered, which is what the product with one-hot vectors gives.
    ShapeError or DTypeError for what is no id in [0, num_embeddings).
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        drawn = init.randn(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.weight = Parameter(drawn)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"

    def forward(self, x: Any) -> Tensor:
        return ops.embedding(self.weight, whole_ids("Embedding: ids", x))
