"""Test that a batch split into slices is reassembled, or raises the same error."""

import pickle
from collections import namedtuple
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from needle.data import default_collate
from needle.data.batching.collate import collate_slice, concatenate
from needle.errors import ShapeError

Pair = namedtuple("Pair", "image label")


def same(a, b):
    """Return True if the values, dtypes and containers are equal."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


leaves = st.sampled_from(["array", "int", "float", "bool", "text"])
shapes = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1),
        st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
    ),
    max_leaves=5,
)


def value_of(shape, number):
    if isinstance(shape, dict):
        return {key: value_of(inner, number) for key, inner in shape.items()}
    if isinstance(shape, Pair):
        return Pair(*(value_of(inner, number) for inner in shape))
    if isinstance(shape, (tuple, list)):
        return type(shape)(value_of(inner, number) for inner in shape)
    made = {"array": np.full((2, 1), number, "i2"), "int": number, "float": number / 2}
    return {**made, "bool": number % 2 == 0, "text": f"sample {number}"}[shape]


numbers = st.sampled_from(
    [True, 3, 2**53 + 1, 2**70, 0.1, np.bool_(True), np.int8(1), np.uint16(2), np.float16(0.5)]
    + [np.float64(0.1), np.uint64(1), np.array(3), np.array(0.1, "f4")]
)
others = st.sampled_from([None, "a", b"b", np.array("c"), np.zeros(2), np.zeros(3, "f4"), abs])
values = numbers | others | st.sampled_from([(1, 2), [1, 2], Pair(1, 2), (1, (2,)), {"a": 1}])
dicts = st.permutations("abc").flatmap(
    lambda keys: st.fixed_dictionaries(dict.fromkeys(keys, numbers))
)


def verdict(make):
    """Return the batch, or the error's class and text."""
    try:
        return make()
    except (TypeError, ShapeError) as error:
        return type(error), str(error)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.lists(each, min_size=1, max_size=6) for each in (numbers, values, dicts)),
    st.data(),
)
def test_every_division_of_a_batch_gives_its_verdict(samples, drawn):
    count = len(samples)
    ends = sorted({0, count, *drawn.draw(st.lists(st.integers(0, count), max_size=3))})
    parts = [collate_slice(samples[a:b]) for a, b in pairwise(ends)]
    whole = concatenate(pickle.loads(pickle.dumps(parts)))
    wanted = verdict(lambda: default_collate(samples))
    assert same(verdict(whole.batch), wanted)
    turned = verdict(lambda: default_collate(samples[::-1]))
    if isinstance(wanted, np.ndarray):
        assert same(turned, wanted[::-1])
    elif isinstance(wanted, tuple) and isinstance(wanted[0], type):
        assert turned[0] is wanted[0]
