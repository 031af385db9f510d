"""Samplers: each index once, orders reproducible from (seed, epoch), batches of indices."""

import numpy as np
import pytest

from needle import data
from needle.data.samples.random_source import keyed_permutation


def test_an_unseeded_order_is_numpys_own_permutation():
    np.random.seed(5)
    want = np.random.permutation(10)
    np.random.seed(5)
    assert list(data.RandomSampler(10)) == want.tolist()


def test_a_seeded_order_is_a_function_of_seed_and_epoch():
    one, other = data.RandomSampler(50, seed=3), data.RandomSampler(range(50), seed=3)
    first, second = list(one), list(one)
    assert sorted(first) == list(range(50)) and first != second
    other.set_epoch(1)
    assert list(other) == second
    assert list(data.RandomSampler(50, seed=4)) != first


def test_a_seeded_order_leaves_the_global_stream_alone():
    np.random.seed(0)
    want = np.random.rand()
    np.random.seed(0)
    list(data.RandomSampler(50, seed=1))
    assert np.random.rand() == want


def test_seeded_orders_stay_the_same_for_ever():
    """Changing these golden values would invalidate saved loader positions."""
    assert keyed_permutation(8, 0, 0).tolist() == GOLDEN[0, 0]
    assert keyed_permutation(8, 2**64 - 1, 7).tolist() == GOLDEN[2**64 - 1, 7]


GOLDEN = {(0, 0): [7, 4, 2, 6, 5, 0, 1, 3], (2**64 - 1, 7): [1, 3, 4, 7, 6, 0, 2, 5]}


def test_first_places_of_seeded_orders_are_uniform():
    counts = np.bincount([keyed_permutation(8, 11, e)[0] for e in range(4000)], minlength=8)
    chi_square = ((counts - 500.0) ** 2 / 500).sum()
    assert chi_square < 24.3  # 7 degrees of freedom, 0.1 %


def test_sequential_and_subset_orders():
    assert list(data.SequentialSampler([7, 8, 9])) == [0, 1, 2]
    sampler = data.SubsetRandomSampler([3, 5, 9], seed=1)
    assert sorted(sampler) == [3, 5, 9] and len(sampler) == 3


def test_a_batch_sampler_hands_the_epoch_on():
    inner = data.RandomSampler(20, seed=2)
    sampler = data.BatchSampler(inner, 20)
    sampler.set_epoch(9)
    assert next(iter(sampler)) == keyed_permutation(20, 2, 9).tolist()


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: data.RandomSampler(5, seed=-1), ValueError, r"seed must be in \[0, 2\*\*64\)"),
        (lambda: data.RandomSampler(5, seed=1.5), TypeError, "seed must be an int or None, got"),
        (lambda: data.SequentialSampler(-1), ValueError, "length must not be negative, got -1"),
        (lambda: data.BatchSampler([1], 0), ValueError, "batch_size must be at least 1, got 0"),
        (lambda: data.BatchSampler([1], 2.0), TypeError, "batch_size must be an int, got 2.0"),
        (lambda: len(data.Sampler()), NotImplementedError, "must define __len__"),
        (lambda: iter(data.Sampler()), NotImplementedError, "must define __iter__"),
    ],
)
def test_bad_samplers(make, error, message):
    with pytest.raises(error, match=message):
        make()
