"""Test that an array mapped from a file is sent to workers as a file offset, not copied."""

import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from needle.data.workers import pickling as travel

SIZE = 1 << 20


@pytest.fixture
def mapped(tmp_path: Path) -> npt.NDArray[np.int32]:
    values = np.arange(SIZE, dtype=np.int32).reshape(-1, 16)
    np.save(tmp_path / "values.npy", values)
    found: npt.NDArray[np.int32] = np.load(tmp_path / "values.npy", mmap_mode="r")
    return found


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a,
        np.asarray,
        lambda a: a[7:5000:3, ::-1],
        lambda a: np.asarray(a)[::-1].T,
        lambda a: a.view(np.uint8)[:, 3],
        lambda a: a[5, 4],
        lambda a: a[3:3],
    ],
    ids=["memmap", "array", "steps", "backwards", "bytes", "element", "empty"],
)
def test_views_of_a_mapped_file_are_mapped_again(mapped, view):
    value = view(mapped)
    memory = travel.pack({"rows": value}, "test")
    try:
        assert memory.size < 100_000  # the file holds 4 MiB
        got = travel.unpack(memory.buffer)["rows"]
        np.testing.assert_array_equal(got, value)
        assert got.dtype == value.dtype and got.shape == value.shape
    finally:
        del got
        memory.close()


def test_the_stamp_of_a_data_set_does_not_hold_its_pickle():
    names = [f"{i:09}" * 200 for i in range(1000)]
    size = len(pickle.dumps(names))
    tracemalloc.start()
    try:
        stamp = travel.stamp_of(names)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < size / 4
    assert len(pickle.dumps(stamp)) < 1000
    names[500] = "another"
    assert (
        travel.stamp_of(names)
        != stamp
        == travel.stamp_of([*names[:500], "000000500" * 200, *names[501:]])
    )


def test_changes_that_are_not_in_the_file_travel_as_a_copy(tmp_path):
    np.save(tmp_path / "values.npy", np.zeros(1000))
    changed = np.load(tmp_path / "values.npy", mmap_mode="c")
    changed[3] = 5.0
    memory = travel.pack(changed, "test")
    try:
        got = travel.unpack(memory.buffer)
        np.testing.assert_array_equal(got, changed)
    finally:
        del got
        memory.close()
