"""Test that shared memory is freed with its last view, and that arrays keep their layout."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proc import descriptors

from needle.data.workers.pickling import pack, unpack
from needle.data.workers.shared_memory import Memory

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def attached(memory: Memory, writable: bool) -> Memory:
    return Memory.attach(os.dup(memory.fd), memory.size, writable=writable)


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


def travelled(value: Any) -> Any:
    memory = pack(value, "a test")
    return unpack(attached(memory, writable=False).buffer)


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
