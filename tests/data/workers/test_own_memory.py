"""Shared memory and its contents: sizes, failed allocations, in-place arrays, clear errors."""

import mmap
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proc import descriptors

from needle.data.workers.pickling import explain_failure, pack, unpack
from needle.data.workers.shared_memory import Memory, available

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def attached(memory: Memory, writable: bool) -> Memory:
    return Memory.attach(os.dup(memory.fd), memory.size, writable=writable)


@pytest.mark.parametrize("in_a_file", [False, True])
def test_attached_memory_reads_what_the_owner_writes(in_a_file: bool, tmp_path: Path) -> None:
    memory = Memory(10_000, "a test", str(tmp_path) if in_a_file else None)
    assert memory.size == -(-10_000 // mmap.PAGESIZE) * mmap.PAGESIZE
    assert memory.buffer[:] == bytes(memory.size)
    other = attached(memory, writable=True)
    memory.buffer[5:8] = b"abc"
    other.buffer[9999:10_000] = b"z"
    assert other.buffer[5:8] == b"abc" and memory.buffer[9999:10_000] == b"z"
    assert os.listdir(tmp_path) == []  # the file is anonymous
    memory.close()
    other.close()
    other.close()


def test_attached_for_reading_cannot_be_written() -> None:
    memory = Memory(100, "a test")
    other = attached(memory, writable=False)
    with pytest.raises(TypeError):
        other.buffer[0:1] = b"x"
    assert not np.frombuffer(other.buffer, np.uint8).flags.writeable
    memory.close()
    other.close()


@linux
def test_close_gives_everything_back_but_views() -> None:
    def maps() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:needle")

    before, mapped = descriptors(), maps()
    memory = Memory(1 << 20, "a test")
    view = np.frombuffer(memory.buffer, np.uint8)
    memory.close()
    del memory
    assert view.sum() == 0 and maps() == mapped + 1
    del view
    assert maps() == mapped and descriptors() <= before


@linux
def test_available_equals_the_report_of_the_machine() -> None:
    have = available()
    total = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    assert have is not None and 0 < have < total


def travelled(value: Any) -> Any:
    memory = pack(value, "a test")
    return unpack(attached(memory, writable=False))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(1000.0),
        np.zeros((0, 3)),
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(24, dtype=np.uint8).reshape(4, 6)[::-1, ::2],
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.array(["a", "bc"], dtype=object),
        np.float32(3).reshape(()),
    ],
)
def test_arrays_travel_with_their_layout(array: np.ndarray[Any, Any]) -> None:
    got = travelled({"x": [array], "y": array})
    assert got["x"][0] is got["y"]
    np.testing.assert_array_equal(got["y"], array)
    assert got["y"].dtype == array.dtype
    if array.size and (array.flags.c_contiguous or array.flags.f_contiguous):
        assert got["y"].strides == array.strides


def test_functions_of_the_main_program_travel() -> None:
    factor = 3
    assert travelled(lambda x: x * factor)(5) == 15


def test_the_culprit_is_named() -> None:
    class Thing:
        def __init__(self) -> None:
            self.fine = np.zeros(3)
            self.deep = {"list": [1, (2, threading.Lock())]}

    def failing(samples: Any, lock: Any = threading.Lock()) -> Any:  # noqa: B008
        return lock

    for value, path in (
        (Thing(), r"root\.deep\['list'\]\[1\]\[1\] -> <unlocked _thread.lock"),
        ([failing], r"root\[0\] \(a default value\) -> <unlocked"),
        ((i for i in range(3)), r"root -> <generator object"),
    ):
        with pytest.raises(TypeError) as caught:
            pack(value, "a test")
        error = explain_failure(value, "root", caught.value)
        assert isinstance(error, TypeError)
        with pytest.raises(TypeError, match=path + r".*cannot be pickled \(TypeError: .*threads"):
            raise error
