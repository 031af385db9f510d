"""Embedding layer; the op and its gradient are in ``ops.indexing``."""

from __future__ import annotations

from typing import Any

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor
from .module import Module, Parameter
from .whole_numbers import whole_numbers


class Embedding(Module):
    """Lookup table: maps each id to a row of weight (num_embeddings, embedding_dim).

    The weight is drawn from N(0, 1). Called with whole numbers of any dtype and shape, (T, B) in
    the course; returns (T, B, embedding_dim). ShapeError if an id is not in [0, num_embeddings),
    DTypeError if it is not a whole number.
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
        return ops.embedding(self.weight, whole_numbers("Embedding: ids", x))
