"""Slots: the offsets of leaves in them, and when slots are returned."""

import gc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle.data.samples.pytree import Field
from needle.data.workers.shared_ring import Layout, Ring

FIELDS = (
    Field((3, 5), np.dtype(np.float32)),
    None,
    Field((), np.dtype(np.int64)),
    Field((0, 7), np.dtype(np.uint8)),
)

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
dtypes = st.sampled_from(["u1", "i8", "f4", "c16", "?", "U3", "M8[s]"]).map(np.dtype)
some_fields = st.lists(st.none() | st.builds(Field, shapes, dtypes), min_size=1, max_size=5)


@settings(max_examples=50, deadline=None)
@given(some_fields.map(tuple), st.integers(1, 9), st.integers(1, 3))
def test_leaves_do_not_overlap(fields: tuple[Field | None, ...], rows: int, slots: int) -> None:
    layout = Layout(fields, rows)
    ring = Ring(layout, slots, 0)
    taken = [ring.take() for _ in range(slots)]
    assert sorted(taken) == list(range(slots)) and ring.take() is None  # type: ignore[type-var]
    lent = [ring.lend(slot, rows) for slot in taken if slot is not None]
    arrays = [array for views in lent for array in views if array is not None]
    starts = sorted(
        (array.__array_interface__["data"][0], array.nbytes) for array in arrays if array.nbytes
    )
    assert all(start + size <= after for (start, size), (after, _) in pairwise(starts))
    assert all(start % 64 == 0 for start, _ in starts)
    for views in lent:
        for array, each in zip(views, fields):
            assert (array is None) == (each is None)
            if array is not None and each is not None:
                assert array.shape == (rows, *each.row_shape) and array.dtype == each.dtype
    ring.close()


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
    ring = Ring(Layout(FIELDS[:1], 4), 2, 0)
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
