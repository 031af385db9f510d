"""Part 5 of the course: steps of the ladders in C++, each compared with step 00."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from apps.course.building import ladder_program
from apps.course.compare import expect

ROOT = Path(__file__).resolve().parents[2]


def check_step(ladder: str, step: str) -> None:
    """Runs ``ladder check step``; a step that is an empty block raises its NotImplementedError."""
    program = ladder_program(ROOT, ladder)
    if program is None:
        pytest.skip(f"{ladder} is not built: python -m apps.course check builds it, so does make")
    done = subprocess.run([program, "check", step], capture_output=True, text=True, timeout=120)
    said = done.stdout.splitlines()
    opened = [line.partition(": ")[2] for line in said if line.startswith("NotImplementedError")]
    if opened:
        raise NotImplementedError(opened[0])
    crash = [f"the program ended with {done.returncode}"] if done.returncode not in (0, 1) else []
    expect(f"where step {step} of {ladder} differs from step 00", said[:4] + crash, [])


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
