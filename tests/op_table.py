"""The op table: at least one row for every op, gathered from the files of the families.

To test a new op, add a row. ``ops/test_op_table`` generates the tests and fails for an op without a
row.
"""

from __future__ import annotations

from tests.op_row import OpRow
from tests.op_table_elementwise import ARITHMETIC, ELEMENTWISE, REDUCTIONS, SELECTION
from tests.op_table_losses import LOSS_ROWS
from tests.op_table_movement import INDEXING, LINALG, SHAPES
from tests.op_table_nn import NN_ROWS
from tests.op_table_pools import POOL_ROWS
from tests.op_table_positions import POSITION_ROWS

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
]
