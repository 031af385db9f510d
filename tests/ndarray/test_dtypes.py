"""Test the dtype table: one row for each dtype, with equal rows in Python and in C++."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from needle import dtypes
from needle.errors import DTypeError
from tests.programs import python

ROOT = Path(__file__).resolve().parents[2]
IN_CPP = re.compile(r'^  ROW\((k\w+), "(\w+)", [\w:]+, (k\w+), "."\)', re.MULTILINE)


def test_the_table_of_cpp_has_the_same_rows() -> None:
    rows = IN_CPP.findall((ROOT / "src/core/dtype.h").read_text())
    names = {row: name for row, name, _ in rows}
    assert [(name, names[compute]) for _, name, compute in rows] == [
        (row.name, row.compute) for row in dtypes.TABLE
    ]


def test_rows_are_in_the_order_of_promotion() -> None:
    for low, high in pairwise(dtypes.COMPUTE_DTYPES):
        assert dtypes.promote(low, high) == dtypes.promote(high, low) == high
        assert dtypes.kind_of(low) <= dtypes.kind_of(high)
        if dtypes.kind_of(low) == dtypes.kind_of(high):
            assert np.result_type(low, high) == high


def test_naming_bfloat16_changes_no_table_and_only_naming_it_imports_ml_dtypes() -> None:
    pytest.importorskip("ml_dtypes")
    program = """
import sys
import needle
from needle import dtypes
before = dtypes.TABLE, dtypes.NAMES, dtypes.COMPUTE_DTYPES
needle.Tensor([1.0]).astype("float64")
assert "ml_dtypes" not in sys.modules
dtype = dtypes.as_dtype("bfloat16")
assert (dtypes.TABLE, dtypes.NAMES, dtypes.COMPUTE_DTYPES) == before
assert dtypes.compute_dtype(dtype) == "float32" and dtypes.is_floating(dtype)
assert dtypes.as_dtype(sys.modules["ml_dtypes"].bfloat16) is dtypes.as_dtype(dtype) is dtype
"""
    python("-c", program)


@pytest.mark.parametrize("given", ["float16", "complex64", np.dtype(">f4"), object(), 3])
def test_a_dtype_outside_the_table_is_refused(given: object) -> None:
    with pytest.raises(DTypeError, match=r"op: .* is not a supported dtype; use one of bool, .*64"):
        dtypes.as_dtype(given, "op")
