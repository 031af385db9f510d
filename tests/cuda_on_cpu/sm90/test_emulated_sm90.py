"""The emulator computes wgmma and TMA loads as the PTX manual specifies, and reports misuse."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda_on_cpu import test_emulator_checks
from tests.cuda_on_cpu.test_emulator_checks import VALUES, faults

order = test_emulator_checks.order

MISTAKES = ("no barrier", "no wait", "expects more", "expects less")
"""The enum Mistake in faults.cc without its first member."""


@pytest.mark.parametrize("k_major", [True, False])
def test_a_step_of_wgmma(k_major: bool) -> None:
    """Products of small integers are exact; each fault is reported, or leaves a wrong result."""
    a = np.random.default_rng(1).integers(-8, 9, (64, 32)).astype("float32")
    b = np.random.default_rng(2).integers(-8, 9, (64, 32)).astype("float32")
    numbers = [*a.ravel().tolist(), *b.ravel().tolist()]
    for number in (0, 1, 2, 3):
        faults.set_order(number)
        found = np.reshape(faults.run_wgmma(numbers, k_major), (64, 64))
        np.testing.assert_array_equal(found, a @ b.T)
    faults.set_order(0)  # products complete as late as possible
    found = np.reshape(faults.run_wgmma(numbers, k_major, early=True), (64, 64))
    assert (found != a @ b.T).any()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("fence", r"reads 2 bytes in .*, which .* wrote in .*, and no fence.proxy.async followed"),
        ("early", "a race in shared memory"),
    ],
)
def test_wgmma_needs_a_fence_before_and_a_wait_after(fault: str, said: str, order: str) -> None:
    numbers = [1.0] * (128 * 32)
    faults.run_wgmma(numbers, True)
    with pytest.raises(RuntimeError, match=said):
        faults.run_wgmma(numbers, True, **{fault: fault == "early"})


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (
            "no barrier",
            "an mbarrier (without a barrier after|that no thread has initialised)",
        ),
        ("no wait", "a race in shared memory: .* has not waited for the copy"),
        ("expects more", "a thread waits for bytes at an mbarrier, and no more come"),
        ("expects less", "more bytes came to an mbarrier than its thread expected"),
    ],
)
def test_tma_loads_must_be_expected_and_waited_for(mistake: str, said: str, order: str) -> None:
    assert faults.run_tma(VALUES, 0) == VALUES
    with pytest.raises(RuntimeError, match=said):
        faults.run_tma(VALUES, 1 + MISTAKES.index(mistake))
