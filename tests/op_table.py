"""The op table: one row or more for every op, gathered from the files of the families.

Adding an op means adding a row; ``ops/test_op_table`` makes the tests and fails for an op without
one.
"""

from __future__ import annotations

from tests.op_row import OpRow
from tests.op_table_elementwise import ARITHMETIC, ELEMENTWISE, REDUCTIONS, SELECTION
from tests.op_table_movement import INDEXING, LINALG, SHAPES
from tests.op_table_nn import NN_ROWS

ROWS: list[OpRow] = [
    *ARITHMETIC,
    *ELEMENTWISE,
    *SELECTION,
    *REDUCTIONS,
    *SHAPES,
    *LINALG,
    *INDEXING,
    *NN_ROWS,
]
