"""The op table: at least one row for every op, gathered from the files of the families.

To test a new op, add a row. ``ops/test_op_table`` generates the tests and fails for an op without a
row. ``FAILURES`` are the calls that must raise.
"""

from __future__ import annotations

from tests.op_row import Failure, OpRow
from tests.op_table_elementwise import (
    ARITHMETIC,
    ELEMENTWISE,
    ELEMENTWISE_FAILURES,
    REDUCTIONS,
    SELECTION,
)
from tests.op_table_layers import LAYER_FAILURES, LAYER_ROWS
from tests.op_table_losses import LOSS_FAILURES, LOSS_ROWS
from tests.op_table_movement import INDEXING, LINALG, MOVEMENT_FAILURES, SHAPES
from tests.op_table_nn import NN_FAILURES, NN_ROWS
from tests.op_table_pools import POOL_FAILURES, POOL_ROWS
from tests.op_table_positions import POSITION_FAILURES, POSITION_ROWS

ROWS: list[OpRow] = [
    *ARITHMETIC,
    *ELEMENTWISE,
    *SELECTION,
    *REDUCTIONS,
    *SHAPES,
    *LINALG,
    *INDEXING,
    *POSITION_ROWS,
    *NN_ROWS,
    *LOSS_ROWS,
    *POOL_ROWS,
    *LAYER_ROWS,
]

FAILURES: list[Failure] = [
    *ELEMENTWISE_FAILURES,
    *MOVEMENT_FAILURES,
    *POSITION_FAILURES,
    *NN_FAILURES,
    *LOSS_FAILURES,
    *POOL_FAILURES,
    *LAYER_FAILURES,
]
