"""Rows of the op table for convolution, pooling, normalisation, softmax and losses."""

from __future__ import annotations

from tests.op_row import OpRow

NN_ROWS: list[OpRow] = []
