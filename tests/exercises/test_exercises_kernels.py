"""Part 5 of the course: kernels compared with plain loops, and the ladders' steps with step 00."""

import pytest

from apps.course.compare import Case, WrongAnswer
from tests.exercises.native_programs import expect_fine, output_of, raise_open

CRASH = "it read or wrote beside an array: look at the sizes that do not fill a block or a vector"


def check_step(ladder: str, step: str) -> None:
    """Run ``ladder check step``; an empty block raises its NotImplementedError."""
    said, status = output_of(ladder, "check", step)
    raise_open(said)
    if status not in (0, 1):
        raise WrongAnswer(Case(ladder, "", "", f"the program ended with {status}", CRASH))
    if said:
        step_and_error, _, sizes = said[0].partition(" for ")
        what = f"step {step} of {ladder} beside step 00"
        got = f"{step_and_error}; {said[1]}"
        cause = said[2].partition("cause: ")[2]
        raise WrongAnswer(Case(what, f"sizes {sizes}", "the same but for rounding", got, cause))


def check_kernel(name: str) -> None:
    """Run one of the C++ tests."""
    expect_fine("course_kernels_test", name)


@pytest.mark.exercise("kernel-one-hot")
def test_one_hot_kernel() -> None:
    check_kernel("one_hot")


@pytest.mark.exercise("kernel-unary")
def test_unary_kernel() -> None:
    check_kernel("unary")


@pytest.mark.exercise("kernel-sgd")
def test_sgd_kernel() -> None:
    check_kernel("sgd")


@pytest.mark.exercise("kernel-fold")
def test_fold_kernel() -> None:
    check_kernel("fold")


@pytest.mark.exercise("kernel-argmax")
def test_argmax_kernel() -> None:
    check_kernel("argmax")


@pytest.mark.exercise("kernel-softmax")
def test_softmax_kernel() -> None:
    check_kernel("softmax")


@pytest.mark.exercise("gemm-loop-order")
def test_product_in_another_order() -> None:
    check_step("gemm_ladder", "01")


@pytest.mark.exercise("gemm-cache-blocks")
def test_product_in_blocks() -> None:
    check_step("gemm_ladder", "02")


@pytest.mark.exercise("gemm-vectors")
def test_product_in_vectors() -> None:
    check_step("gemm_ladder", "03")


@pytest.mark.exercise("gemm-register-tile")
def test_product_in_tiles() -> None:
    check_step("gemm_ladder", "04")


@pytest.mark.exercise("gemm-packed-b")
def test_product_with_b_packed() -> None:
    check_step("gemm_ladder", "05")


@pytest.mark.exercise("gemm-packed-both")
def test_product_with_both_packed() -> None:
    check_step("gemm_ladder", "06")


@pytest.mark.exercise("conv-loop-order")
def test_convolution_in_another_order() -> None:
    check_step("conv_ladder", "01")


@pytest.mark.exercise("conv-registers")
def test_convolution_in_registers() -> None:
    check_step("conv_ladder", "02")


@pytest.mark.exercise("conv-pixel-tile")
def test_convolution_in_tiles() -> None:
    check_step("conv_ladder", "03")


@pytest.mark.exercise("conv-packed-weights")
def test_convolution_with_packed_weights() -> None:
    check_step("conv_ladder", "04")
