"""The emulator computes wgmma and TMA loads as the PTX manual specifies, and reports misuse."""

import numpy as np
import pytest

from tests.cuda_on_cpu import test_emulator
from tests.cuda_on_cpu.test_emulator import VALUES, faults

order = test_emulator.order

MISTAKES = {
    "no barrier": "an mbarrier (without a barrier after|that no thread has initialised)",
    "no wait": "a race in shared memory: .* has not waited for the copy",
    "expects more": "a thread waits for bytes at an mbarrier, and no more come",
    "expects less": "more bytes came to an mbarrier than its thread expected",
}
"""The enum Mistake in faults.cc without its first member, and what the emulator says."""


@pytest.mark.parametrize("k_major", [True, False])
def test_a_step_of_wgmma(k_major: bool, order: None) -> None:
    random = np.random.default_rng(1)
    a, b = random.integers(-8, 9, (2, 64, 32)).astype("float32")  # products are exact
    numbers = [*a.ravel().tolist(), *b.ravel().tolist()]
    found = np.reshape(faults.run_wgmma(numbers, k_major), (64, 64))
    np.testing.assert_array_equal(found, a @ b.T)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("fence", r"reads 2 bytes in .*, which .* wrote in .*, and no fence.proxy.async followed"),
        ("early", "a race in shared memory"),
    ],
)
def test_wgmma_needs_a_fence_before_and_a_wait_after(fault: str, said: str, order: None) -> None:
    with pytest.raises(RuntimeError, match=said):
        faults.run_wgmma([1.0] * (128 * 32), True, **{fault: fault == "early"})


@pytest.mark.parametrize("mistake", MISTAKES)
def test_tma_loads_must_be_expected_and_waited_for(mistake: str, order: None) -> None:
    assert faults.run_tma(VALUES, 0) == VALUES
    with pytest.raises(RuntimeError, match=MISTAKES[mistake]):
        faults.run_tma(VALUES, 1 + [*MISTAKES].index(mistake))
