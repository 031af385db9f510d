"""The emulator finds each fault of ``faults.cc``, and none in correct kernels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

faults: Any = pytest.importorskip(
    "tests.cuda_on_cpu.cuda_faults", reason="not built: cmake --build BUILD --target cuda_on_cpu"
)
ROOT = Path(__file__).parent.parent.parent
VALUES = [float(i) for i in range(64)]
FORWARD, REVERSED, SHUFFLED = range(3)


@pytest.fixture(params=[FORWARD, REVERSED, SHUFFLED], ids=["forward", "reversed", "shuffled"])
def order(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run a test with each order of threads."""
    faults.set_order(request.param)
    yield request.param
    faults.set_order(FORWARD)


def test_right_kernels_give_right_results_in_every_order(order: int) -> None:
    assert faults.turn_around(VALUES, True) == VALUES[::-1]
    warps = [*VALUES[31::-1], *VALUES[63:31:-1]]
    assert faults.turn_warps_around(VALUES, True) == warps
    low, high = sum(VALUES[:32]), sum(VALUES[32:])
    assert faults.sum_warps(VALUES) == [low + 31000] * 32 + [high + 63000 + 1] * 32
    counted = faults.count_threads(VALUES)
    assert np.isnan(counted).all()  # fresh memory is NaN, also when a kernel only adds to it


def test_a_missing_barrier_is_seen_in_every_order(order: int) -> None:
    assert np.isnan(faults.turn_around(VALUES, False)).any()
    assert np.isnan(faults.turn_warps_around(VALUES, False)).any()


def test_a_warp_that_runs_ahead_is_seen(order: int) -> None:
    sums = [sum(VALUES)] * 64
    assert faults.sum_twice(VALUES, True) == sums
    if order == REVERSED:
        assert faults.sum_twice(VALUES, False) != sums


def test_uninitialised_shared_memory_is_nan_in_every_block(order: int) -> None:
    for _ in range(2):  # also where an earlier block has written
        got = faults.uninitialised_shared(VALUES)
        assert np.isnan(got[0]) and got[1:] == [1.0] * 63


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("behind_shared", "wrote behind its shared memory of 256 bytes \\(byte 256\\)"),
        ("behind_buffer", "wrote outside a buffer of 256 bytes"),
        ("before_buffer", "wrote outside a buffer of 256 bytes"),
        ("never_waits", "thread .* ended without waiting for the copies to shared memory"),
        ("half_wait", "wait at a barrier that others never reach: thread .* in line"),
        ("two_barriers", "wait at the barriers of lines"),
        ("lanes_missing", "wait at a barrier that others never reach"),
        ("throws", "thrown by a thread"),  # like an empty block of the course
    ],
)
def test_a_fault_is_an_error(kernel: str, message: str, order: int) -> None:
    with pytest.raises(RuntimeError, match=message):
        getattr(faults, kernel)(VALUES)
    assert faults.turn_around(VALUES, True) == VALUES[::-1]  # the next kernel runs


def test_a_missing_wait_for_a_copy_is_seen(order: int) -> None:
    twice = [1000 * (63 - i) + float(i) for i in range(64)]
    twice[63] = 0.0  # thread 0 has nothing to copy, so it gets zeros
    assert faults.copy_twice_by_registers(VALUES, True) == twice
    assert faults.copy_twice(VALUES, True) == twice
    if order != REVERSED:  # in orders where copies arrive at once
        stale = faults.copy_twice(VALUES, False)
        assert stale != twice
        if order == FORWARD:  # the earlier content
            assert stale[:32] == [1000 * v + v for v in VALUES[:31:-1]]


def test_a_wait_for_too_few_groups_of_copies_is_seen(order: int) -> None:
    both = [1000 * (63 - i) + float(i) for i in range(64)]
    assert faults.copy_in_groups(VALUES, True) == both
    if order != REVERSED:
        assert faults.copy_in_groups(VALUES, False) != both


def test_a_copy_into_what_is_still_read_is_seen(order: int) -> None:
    if order != FORWARD:  # in orders where copies arrive late
        assert faults.copy_too_early(VALUES) != VALUES


def test_host_code_that_follows_a_device_pointer_is_stopped() -> None:
    code = "from tests.cuda_on_cpu import cuda_faults; cuda_faults.touch_on_host()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60)
    assert done.returncode < 0, done.stderr  # terminated by a signal
