"""Part 9 of the course, second half: the same ten functions in C++ with multithreaded loops.

``python -m apps.course`` compiles the library and runs these tests; elsewhere they are skipped,
because tests/testing/test_compiled_backend.py tests the whole library.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ten_functions as ten

from apps.course.building import built_backend
from apps.course.product import backend_in
from needle.backends import Backend

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def openmp(request: pytest.FixtureRequest) -> Backend:
    """Return the backend that was compiled before the tests."""
    if not request.config.getoption("course_report", None):
        pytest.skip("python -m apps.course check compiles the library and runs this")
    return backend_in(built_backend(ROOT))


@pytest.mark.exercise("openmp-map")
def test_copy_goes_from_any_layout_to_any_other(openmp: Any) -> None:
    ten.check_copy(openmp)


@pytest.mark.exercise("openmp-map")
def test_a_function_of_each_element(openmp: Any) -> None:
    ten.check_unary(openmp)


@pytest.mark.exercise("openmp-map")
def test_many_elements_are_shared_by_threads(openmp: Any) -> None:
    rows = np.arange(300 * 40, dtype="float32").reshape(300, 40)
    a, out = ten.on(openmp, rows, "float32", "transposed"), ten.empty(openmp, (300, 40), "float32")
    openmp.unary("negative", a, out)
    ten.compare("unary('negative') of 300 x 40 numbers", openmp, out, -rows, {})


@pytest.mark.exercise("openmp-fill")
def test_fill_keeps_to_its_elements(openmp: Any) -> None:
    ten.check_fill(openmp)


@pytest.mark.exercise("openmp-binary")
def test_a_function_of_two(openmp: Any) -> None:
    ten.check_binary(openmp)


@pytest.mark.exercise("openmp-where")
def test_either_of_two(openmp: Any) -> None:
    ten.check_where(openmp)


@pytest.mark.exercise("openmp-reduce")
def test_axes_are_folded(openmp: Any) -> None:
    ten.check_reduce(openmp)
    rows = np.arange(200 * 30, dtype="float32").reshape(200, 30)
    a, out = ten.on(openmp, rows, "float32"), ten.empty(openmp, (200, 1), "float32")
    openmp.reduce("sum", a, out)
    ten.compare("reduce('sum') of 200 rows", openmp, out, rows.sum(1, keepdims=True), {})


@pytest.mark.exercise("openmp-matmul")
def test_matrices_are_multiplied(openmp: Any) -> None:
    ten.check_matmul(openmp)
    a, b = np.arange(30 * 20).reshape(30, 20) % 7, np.arange(20 * 25).reshape(20, 25) % 5
    out = ten.empty(openmp, (30, 25), "float32")
    openmp.matmul(ten.on(openmp, a, "float32"), ten.on(openmp, b, "float32"), out)
    ten.compare("matmul of 30 x 20 and 20 x 25 numbers", openmp, out, a @ b, {})
