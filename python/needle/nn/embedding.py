"""Embedding layer; the op and its gradient are in ``ops.indexing``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..ops.indexing import padding_row
from .module import Module, Parameter
from .whole_numbers import whole_numbers


class Embedding(Module):
    """Lookup table: maps each id to a row of weight (num_embeddings, embedding_dim).

    The weight is drawn from N(0, 1); the row ``padding_idx``, which counts from the end if it is
    negative, is then set to zeros and gets no gradient. Called with whole numbers of any dtype and
    shape, (T, B) in the course; returns (T, B, embedding_dim). ShapeError if an id is not in [0,
    num_embeddings), DTypeError if it is not a whole number, IndexingError if ``padding_idx`` is out
    of range.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        device: Device | None = None,
        dtype: Any = "float32",
        *,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        drawn = init.randn(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.padding_idx: int | None = None
        if padding_idx is not None:
            self.padding_idx = padding_row("Embedding", padding_idx, num_embeddings)
            zeros = np.zeros((1, embedding_dim))
            drawn = ops.scatter(drawn, 0, np.full(zeros.shape, self.padding_idx), zeros)
        self.weight = Parameter(drawn)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"

    def forward(self, x: Any) -> Tensor:
        ids = whole_numbers("Embedding: ids", x)
        return ops.embedding(self.weight, ids, self.padding_idx)
