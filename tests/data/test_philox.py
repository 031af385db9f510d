"""Test Philox: known answers, words as pure functions of their position, and shuffled orders."""

import numpy as np
import pytest

from needle.backends import philox

COUNTER, KEY = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
KNOWN = "d16cfe09 94fdcceb 5001e420 24126ea1"  # Random123's kat_vectors, philox4x32 10


@pytest.mark.parametrize("many", [1, 100])
def test_words_are_the_known_answers_at_their_place(many):
    (c0, c1, c2, c3), key = COUNTER, KEY
    index = np.array([c0 | c1 << 32] * many, dtype=np.uint64).view(np.int64)
    block = c3 & 0xFF
    got = philox.words(key[0] | key[1] << 32, c2, index, c3 >> 8, 4 * block + 4)
    assert got.shape == (many, 4 * block + 4) and got.dtype == np.uint32
    for row in got[:, -4:]:
        assert [f"{w:08x}" for w in row] == KNOWN.split()


def test_words_do_not_depend_on_how_they_are_asked_for():
    indices = np.array([-5, -1, 0, 1, 2**31, 2**32, 2**63 - 1, *range(60)])
    whole = philox.words(2**64 - 1, 2**32 + 5, indices, 77, 11)
    for i, index in enumerate(indices):
        one = philox.words(2**64 - 1, 5, np.array([index]), 77, 6)
        np.testing.assert_array_equal(one[0], whole[i, :6])
    assert philox.words(0, 0, np.arange(3), 0, 0).shape == (3, 0)
    assert philox.words(0, 0, np.arange(0), 0, 5).shape == (0, 5)


@pytest.mark.parametrize("stream, count", [(2**24, 1), (-1, 1), (0, 1025), (0, -1)])
def test_streams_and_counts_have_limits(stream, count):
    with pytest.raises(ValueError, match="philox.words: stream must be in"):
        philox.words(0, 0, np.arange(1), stream, count)


def test_numbers_made_of_words():
    ends = np.array([0, 2**31, 2**32 - 1], dtype=np.uint32)
    assert philox.uniform(ends).tolist() == [0.0, 0.5, 1 - 2**-32]
    assert philox.below(ends, 10).tolist() == [0, 5, 9]
    assert philox.below(ends, 2**32).tolist() == [0, 2**31, 2**32 - 1]
    assert philox.below(ends, np.array([1, 2, 3])).tolist() == [0, 1, 2]
    for p, want in ((0.0, [False] * 3), (0.5, [True, False, False]), (1.0, [True] * 3)):
        assert philox.happens(ends, p).tolist() == want


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 1000, 2**17, 2**17 + 1, 300_001])
def test_an_order_is_a_bijection(length):
    order = philox.permutation(np.arange(length), length, 5, 2)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(length))
    if length > 100:
        assert (order == np.arange(length)).mean() < 0.05
        assert (order != philox.permutation(np.arange(length), length, 5, 3)).mean() > 0.9
        assert (order != philox.permutation(np.arange(length), length, 6, 2)).mean() > 0.9
        some = np.array([length - 1, 3, 3, 50])
        np.testing.assert_array_equal(philox.permutation(some, length, 5, 2), order[some])


def test_very_long_orders_are_computed_place_by_place():
    length = 2**63 - 1
    places = np.array([0, 1, 2**40, length - 1])
    order = philox.permutation(places, length, 1, 1)
    assert len(set(order.tolist())) == 4 and order.min() >= 0
    assert order.max() > 2**61  # values span the whole range


def test_orders_stay_the_same_for_ever():
    """Changing these golden values would invalidate saved loader positions."""
    assert philox.permutation(np.arange(8), 8, 0, 0).tolist() == GOLDEN_SHORT
    assert philox.permutation(np.arange(4), 10**6, 3, 7).tolist() == GOLDEN_LONG


GOLDEN_SHORT = [6, 5, 0, 2, 4, 1, 7, 3]
GOLDEN_LONG = [7435, 990753, 13396, 189873]


@pytest.mark.parametrize("place", [-1, 5])
def test_places_outside_are_refused(place):
    with pytest.raises(ValueError, match=r"permutation: positions must be in \[0, 5\)"):
        philox.permutation(np.array([0, place]), 5, 0, 0)


@pytest.mark.parametrize("most", [2, 50, 2**63])
def test_an_order_is_stable_also_where_keys_are_equal(most):
    keys = np.random.default_rng(0).integers(0, most, 999, dtype=np.uint64)
    order = philox.stable_order(keys)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))
