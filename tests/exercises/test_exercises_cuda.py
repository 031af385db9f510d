"""Part 6 of the course: CUDA kernels on the emulated GPU, compared with plain loops."""

import pytest

from apps.course.compare import Case, WrongAnswer
from tests.exercises.native_programs import output_of, raise_open

pytestmark = pytest.mark.slow  # the emulated GPU is built by make test-all

ASTRAY = "a thread followed a pointer to where no array is: look at its indices"


def check_kernel(name: str) -> None:
    """Run one test of tests/cuda_on_cpu/course_test.cc, which prints a failing case."""
    lines, status = output_of("course_cuda_test", name)
    raise_open(lines)
    if status == 0:
        return
    said = {field: text for field, _, text in (line.partition(": ") for line in lines)}
    if status != 1:
        said = {"got": f"the program ended with {status}", "cause": ASTRAY}
    fields = (said.get(field, "") for field in ("given", "expected", "got", "cause"))
    raise WrongAnswer(Case(name, *fields))


@pytest.mark.exercise("cuda-one-hot")
def test_one_hot_on_a_gpu() -> None:
    check_kernel("one_hot")


@pytest.mark.exercise("cuda-locate")
def test_places_of_elements() -> None:
    check_kernel("locate")


@pytest.mark.exercise("cuda-gather")
def test_rows_gathered_on_a_gpu() -> None:
    check_kernel("gather")


@pytest.mark.exercise("cuda-transpose")
def test_transposed_through_shared_memory() -> None:
    check_kernel("transpose")


@pytest.mark.exercise("cuda-sgd")
def test_many_parameters_in_one_launch() -> None:
    check_kernel("sgd")


@pytest.mark.exercise("cuda-sgd")
def test_both_moments_of_adam_in_one_launch() -> None:
    check_kernel("adam")


@pytest.mark.exercise("cuda-row-fold")
def test_lanes_fold_a_row() -> None:
    check_kernel("row_fold")


@pytest.mark.exercise("cuda-layer-norm")
def test_layer_norm_on_a_gpu() -> None:
    check_kernel("layer_norm")


@pytest.mark.exercise("cuda-gemm-tile")
def test_product_in_tiles_of_shared_memory() -> None:
    check_kernel("gemm_tile")
