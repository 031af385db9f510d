"""Test that memory of large arrays is reused, but never while anything refers to it."""

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from needle.data.samples import buffer_pool as recycling
from needle.data.samples.buffer_pool import LEAST_BYTES, LINE, MOST_BYTES, empty


@pytest.fixture(autouse=True)
def nothing_kept():
    recycling._free.clear()
    yield
    recycling._free.clear()


def test_large_arrays_are_aligned_and_can_be_pickled():
    array = empty((4, 3, 2**20), np.float32)
    assert array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % LINE == 0
    array[...] = np.arange(2**20)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)), array)


def test_memory_comes_back_when_the_last_view_goes():
    array = empty((2, LEAST_BYTES), np.uint8)
    place, view = array.ctypes.data, array[1].reshape(-1, 4)
    del array
    gc.collect()
    view[...] = 7
    other = empty((2, LEAST_BYTES), np.uint8)
    other[...] = 9
    assert other.ctypes.data != place and (view == 7).all()
    del view
    gc.collect()
    assert empty((LEAST_BYTES, 2), np.uint8).ctypes.data == place


def test_neither_much_too_large_memory_is_taken_nor_more_than_a_limit_kept():
    del_me = empty((8 * LEAST_BYTES,), np.uint8)
    place = del_me.ctypes.data
    del del_me
    assert empty((LEAST_BYTES,), np.uint8).ctypes.data != place
    many = [empty((MOST_BYTES // 4,), np.uint8) for _ in range(8)]
    many.append(empty((2 * MOST_BYTES,), np.uint8))
    del many
    gc.collect()
    assert 0 < sum(each.size for each in recycling._free) <= MOST_BYTES


def test_threads_never_share_memory():
    wrong = []

    def work(number):
        for i in range(200):
            array = empty((LEAST_BYTES,), np.uint8)
            array[::4096] = number
            if (array[::4096] != number).any():
                wrong.append((number, i))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert not wrong
