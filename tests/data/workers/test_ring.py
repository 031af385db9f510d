"""Test that a slot is freed once nothing refers to its memory."""

import gc
from typing import Any

import numpy as np
import pytest

from needle.data.samples.pytree import Field
from needle.data.workers.shared_ring import Layout, Ring

LEAF = Field((3, 5), np.dtype(np.float32))


@pytest.mark.parametrize(
    "derive",
    [
        lambda a: a,
        lambda a: a[1:, ::-1].T,
        lambda a: a.reshape(-1).view(np.uint8),
        lambda a: memoryview(a),
        lambda a: np.lib.stride_tricks.as_strided(a, (2,), (0,)),
        lambda a: [a[0], {"x": a[1]}],
        lambda a: np.asarray(memoryview(a))[1:],
        lambda a: np.broadcast_to(a[:1], (9, 3, 5)),
    ],
)
def test_anything_derived_keeps_the_slot(derive: Any) -> None:
    ring = Ring(Layout((LEAF,), 4), 2, 0)
    slot = ring.take()
    assert slot is not None
    (array,) = ring.lend(slot, 4)
    derived = derive(array)
    del array
    gc.collect()
    assert ring.lent == 1 and slot not in ring.free
    del derived
    gc.collect()
    assert ring.lent == 0 and slot in ring.free
