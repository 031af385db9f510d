"""Test samplers: orders are functions of (seed, epoch); weights, ranks and buckets."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle import data
from needle.backends.philox import SORTED_LENGTH
from needle.data.samples.random_source import keyed_permutation
from needle.errors import DataError, ShapeError

quick = settings(max_examples=50, deadline=None)


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


def test_sequential_and_subset_orders():
    assert list(data.SequentialSampler([7, 8, 9])) == [0, 1, 2]
    assert sorted(data.SubsetRandomSampler([3, 5, 9], seed=1)) == [3, 5, 9]


def test_a_batch_sampler_hands_the_epoch_on():
    inner = data.RandomSampler(20, seed=2)
    sampler = data.BatchSampler(inner, 20)
    sampler.set_epoch(9)
    assert next(iter(sampler)) == keyed_permutation(20, 2, 9).tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda: data.SequentialSampler(37),
        lambda: data.RandomSampler(37, seed=3),
        lambda: data.RandomSampler(SORTED_LENGTH + 5, seed=3),
        lambda: data.SubsetRandomSampler([5, 3, 30, 8, 9, 11], seed=3),
        lambda: data.WeightedRandomSampler(np.arange(1, 38), seed=3),
        lambda: data.DistributedSampler(37, 1, 3, shuffle=True, seed=3),
        lambda: data.DistributedSampler(37, 2, 3),
    ],
)
def test_places_are_those_of_the_walk(make):
    sampler = make()
    for epoch in (0, 4):
        sampler.set_epoch(epoch)
        walk = list(sampler)
        assert len(walk) == len(sampler)
        sampler.set_epoch(epoch)
        assert sampler.repeatable
        cuts = [0, 1, 4, len(walk) - 1, len(walk)]
        parts = [sampler.positions(a, b) for a, b in pairwise(cuts)]
        assert np.concatenate(parts).tolist() == walk
        assert len(sampler.positions(2, 2)) == 0


def test_the_shuffle_of_all_ranks_is_one_order():
    ranks = [data.DistributedSampler(12, rank, 3, shuffle=True, seed=5) for rank in range(3)]
    got = np.stack([list(rank) for rank in ranks], axis=1).reshape(-1)
    assert got.tolist() == list(data.RandomSampler(12, seed=5))


def with_replacement(weights, seed):
    np.random.seed(0)
    return list(data.WeightedRandomSampler(weights, 2000, seed=seed))


def all_without_replacement(weights, seed):
    np.random.seed(0)
    positive = int(np.count_nonzero(weights))
    sampler = data.WeightedRandomSampler(weights, positive, False, seed=seed)
    return [next(iter(sampler)) for _ in range(2000)]


def by_one_of(weights, seed):
    chosen = data.OneOf([abs] * len(weights), weights=weights)
    words = np.random.RandomState(seed or 0).randint(0, 2**32, (2000, 2), dtype=np.uint32)
    return chosen.parameters(words, np.ones((2000, 2), np.int64))[:, 0].astype(int).tolist()


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("drawn", [with_replacement, all_without_replacement, by_one_of])
@pytest.mark.parametrize(
    "weights, shares",
    [
        ([1e308] * 4, [0.25] * 4),
        ([5e-324, 0, 5e-324], [0.5, 0, 0.5]),
        ([0, 1e-310, 3e-310, 0], [0, 0.25, 0.75, 0]),
        ([0, 1e308, 1e-308], [0, 1, 0]),
        ([0, 1e-300, 1e300, 1e300], [0, 0, 0.5, 0.5]),
        ([0.1, 0.2, 0.3, 0], [1 / 6, 2 / 6, 3 / 6, 0]),
    ],
)
def test_weights_of_any_size_are_drawn_by_their_shares(weights, shares, drawn, seed):
    counts = np.bincount(drawn(weights, seed), minlength=len(weights))
    assert (np.abs(counts / 2000 - shares) < 0.06).all()
    assert (counts[np.array(shares) == 0] == 0).all()


@pytest.mark.parametrize("weights", [[0, 1e308, 1e-308], [0, 5e-324, 1], [1, 0, 1e-200, 1e300]])
def test_no_weight_of_zero_is_drawn_even_last(weights):
    positive = np.flatnonzero(weights)
    for seed in range(20):
        sampler = data.WeightedRandomSampler(weights, len(positive), False, seed=seed)
        assert sorted(sampler) == positive.tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda weights: data.WeightedRandomSampler(weights, 1),
        lambda weights: data.OneOf([abs] * len(weights), weights=weights),
    ],
)
@pytest.mark.parametrize("weights", [[1, np.nan], [np.inf, 1], [1, -1e-320], [0, 0]])
def test_weights_that_are_no_shares_are_refused(make, weights):
    with pytest.raises(ValueError, match=r"weights? must be"):
        make(weights)


def test_weights_may_be_set_between_epochs():
    given = np.array([1.0, 0])
    sampler = data.WeightedRandomSampler(given, 20, seed=0)
    loader = data.DataLoader([0, 1], 20, sampler=sampler)
    assert set(next(iter(loader)).numpy().tolist()) == {0}
    sampler.weights = [0, 1]
    assert set(next(iter(loader)).numpy().tolist()) == {1}
    with pytest.raises(ValueError, match="read-only"):
        sampler.weights[0] = 1
    with pytest.raises(ValueError, match="not negative"):
        sampler.weights = [-1, 1]
    sampler.weights = [0, 0]
    with pytest.raises(ValueError, match="at least one weight must be positive"):
        next(iter(loader))


class Unmeasured:
    def __getitem__(self, index):
        return index


def once(*values):
    return (value for value in values)


@pytest.mark.parametrize(
    "make",
    [
        lambda: data.DataLoader([1, 2, 3], sampler=once(2, 0)),
        lambda: data.DataLoader([1, 2, 3], sampler=map(int, [2, 0])),
        lambda: data.DataLoader([1, 2, 3], batch_sampler=zip([2], [0])),
        lambda: data.DataLoader([1, 2, 3], batch_sampler=filter(None, [[2], [0]])),
        lambda: data.DataLoader(zip([1, 2], [3, 4])),
        lambda: data.BatchSampler(reversed([2, 0]), 1),
        lambda: data.SequentialSampler(once(1)),
        lambda: data.RandomSampler(once(1)),
        lambda: data.DistributedSampler(once(1), 0, 1),
        lambda: data.SubsetRandomSampler(once(2, 0)),
        lambda: data.WeightedRandomSampler(once(1, 2), 2),
        lambda: data.LengthBucketBatchSampler(once(1, 2), 2),
        lambda: data.LengthBucketBatchSampler([1, 2], 2, once(1)),
    ],
)
def test_what_gives_its_values_once_is_refused(make):
    with pytest.raises(TypeError, match="only once"):
        make()


class Yields(data.Sampler):
    """A sampler of the given values."""

    def __init__(self, *values):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def __len__(self):
        return len(self.values)


class Unreadable:
    """Samples that can be read twice."""

    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        if self.reads > 2:
            raise DataError("damaged")
        return index

    def __len__(self):
        return 2


class Once:
    """A sampler or stream whose ``__iter__`` always returns the same iterator."""

    def __init__(self, *values):
        self.values = iter(values)

    def __iter__(self):
        return self.values


class OnceStream(Once, data.IterableDataset):
    """A stream whose ``__iter__`` always returns the same iterator."""


class Drained(data.IterableDataset):
    """A stream of what has come in since the last epoch."""

    def __init__(self, *epochs):
        self.epochs = list(epochs)

    def __iter__(self):
        return iter(self.epochs.pop(0))


@pytest.mark.parametrize(
    "make, batches",
    [
        (lambda: data.DataLoader(Drained([1, 2], [], [3])), [2, 0, 1]),
        (
            lambda: data.DataLoader([1, 2, 3], batch_sampler=Drained([[1], [2]], [], [[0]])),
            [2, 0, 1],
        ),
        (lambda: data.DataLoader(Drained([1] * 10, [1] * 4), 8, drop_last=True), [1, 0]),
        (
            lambda: data.DataLoader(Unreadable(), batch_sampler=Yields([0], [1]), on_error="skip"),
            [2, 0],
        ),
    ],
)
def test_an_epoch_may_be_empty(make, batches):
    loader = make()
    assert [len(list(loader)) for _ in batches] == batches


@pytest.mark.parametrize(
    "make",
    [
        lambda: data.DataLoader([1, 2, 3], sampler=Once(2, 0)),
        lambda: data.DataLoader([1, 2, 3], batch_sampler=Once([2], [0])),
        lambda: data.DataLoader([1, 2, 3], batch_sampler=data.BatchSampler(Once(2, 0), 1)),
        lambda: data.DataLoader(Once(2, 0)),
        lambda: data.DataLoader(OnceStream(2, 0)),
        lambda: data.DataLoader(OnceStream(2, 0), num_workers=1, engine="threads"),
        lambda: data.DataLoader(OnceStream(2, 0), num_workers=1),
    ],
)
def test_an_epoch_that_has_lost_its_samples_is_refused(make):
    loader = make()
    assert len(list(loader)) == 2
    with pytest.raises(
        TypeError, match="got the same .*iterator as in an earlier epoch.*have __iter__"
    ):
        list(loader)


def test_an_epoch_may_be_empty_from_the_start_or_after_resuming():
    empty, full = data.DataLoader(Once()), data.DataLoader([1, 2], sampler=Yields(0, 1), seed=0)
    assert [len(list(empty)) for _ in range(2)] == [0, 0]
    iterator = iter(full)
    next(iterator), next(iterator)
    full.load_state_dict(full.state_dict())
    assert [len(list(full)) for _ in range(2)] == [0, 2]


@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_is_no_data_set(kind):
    with pytest.raises(TypeError, match=r"a set has no fixed order; give sorted\(dataset\)"):
        data.DataLoader(kind(["a", "b"]))


def test_indices_may_be_set_between_epochs():
    sampler = data.SubsetRandomSampler([0, 1], seed=0)
    loader = data.DataLoader([1, 2, 3], 3, sampler=sampler)
    assert sorted(next(iter(loader)).numpy().tolist()) == [1, 2]
    sampler.indices = [2, 0, 1]
    assert sorted(next(iter(loader)).numpy().tolist()) == [1, 2, 3]
    with pytest.raises(ShapeError, match="SubsetRandomSampler: indices must be a 1-D list of ints"):
        sampler.indices = [0.5]
    batches = data.BatchSampler(sampler, 2)
    loader = data.DataLoader([1, 2, 3], batch_sampler=batches)
    batches.batch_size = 0
    with pytest.raises(ValueError, match="BatchSampler: batch_size must be at least 1, got 0"):
        iter(loader)


@pytest.mark.parametrize(
    "order",
    [
        {"sampler": [True, False, True]},
        {"sampler": [0, 1.5]},
        {"sampler": np.array([[0], [1]])},
        {"sampler": Yields(0, 1.5)},
        {"sampler": Yields(True, False)},
        {"batch_sampler": [[0, 1.5]]},
        {"batch_sampler": [0, 1]},
        {"batch_sampler": Yields([True, False])},
    ],
)
def test_indices_that_are_no_ints_are_refused(order):
    with pytest.raises(ShapeError, match="indices must be a 1-D list of ints"):
        list(data.DataLoader([1, 2, 3], **order))
    with pytest.raises(ShapeError, match="indices must be a 1-D list of ints"):
        data.SubsetRandomSampler([True, False])


@pytest.mark.parametrize(
    "make", [lambda given: [data.Compose(given)], lambda given: [data.OneOf(given)], list, tuple]
)
def test_transforms_given_once_are_kept(make):
    loader = data.DataLoader([1, 2], 2, transforms=make(once(lambda x: x + 1)))
    assert [batch.numpy().tolist() for _ in range(2) for batch in loader] == [[2, 3]] * 2


def test_draws_without_replacement_are_one_after_another():
    """Compare first and second draws with weights 1, 2, 3 to their exact probabilities."""
    weights = np.array([1.0, 2, 3])
    pairs = np.zeros((3, 3))
    for epoch in range(3000):
        sampler = data.WeightedRandomSampler(weights, 2, replacement=False, seed=6)
        sampler.set_epoch(epoch)
        first, second = sampler
        pairs[first, second] += 1
    want = 3000 * np.outer(weights / 6, weights) / (6 - weights)[:, None]
    off = ~np.eye(3, dtype=bool)
    assert pairs.diagonal().sum() == 0
    assert ((pairs - want)[off] ** 2 / want[off]).sum() < 20.5  # 5 d.o.f., p = 0.1 %


@quick
@given(
    st.lists(st.integers(0, 30), max_size=60),
    st.integers(1, 7),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, [5], [3, 10, 20]]),
)
def test_buckets(lengths, batch_size, shuffle, drop_last, boundaries):
    sampler = data.LengthBucketBatchSampler(
        lengths, batch_size, boundaries, buckets=3, shuffle=shuffle, seed=1, drop_last=drop_last
    )
    batches = list(sampler)
    assert len(batches) == len(sampler) and all(1 <= len(b) <= batch_size for b in batches)
    flat = [i for batch in batches for i in batch]
    assert len(flat) == len(set(flat)) and set(flat) <= set(range(len(lengths)))
    if not drop_last:
        assert len(flat) == len(lengths)
    for batch in batches:
        if boundaries is not None:
            assert len({np.digitize(lengths[i], boundaries) for i in batch}) == 1
        if drop_last:
            assert len(batch) == batch_size


def test_buckets_keep_padding_small_and_change_with_the_epoch():
    lengths = np.random.default_rng(0).integers(1, 1000, 2000)
    sampler = data.LengthBucketBatchSampler(lengths, 20, buckets=20, seed=0)
    first, second = list(sampler), list(sampler)
    spread = [np.ptp(lengths[batch]) for batch in first]
    assert max(spread) < 80 and first != second
    assert np.diff([lengths[b[0]] for b in first]).min() < -500  # batches come in random order
    sampler.set_epoch(0)
    assert list(sampler) == first
    np.random.seed(1)
    unseeded = data.LengthBucketBatchSampler(lengths, 20)
    assert list(unseeded) != list(unseeded) and not unseeded.repeatable


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: data.RandomSampler(5, seed=-1), ValueError, r"seed must be in \[0, 2\*\*64\)"),
        (lambda: data.RandomSampler(5, seed=1.5), TypeError, "seed must be an int or None, got"),
        (lambda: data.SequentialSampler(-1), ValueError, "length must be at least 0, got -1"),
        (lambda: data.DataLoader(Unmeasured()), TypeError, "must have a length, got Unmeasured; d"),
        (lambda: data.BatchSampler([1], 0), ValueError, "batch_size must be at least 1, got 0"),
        (lambda: data.BatchSampler([1], 2.0), TypeError, "batch_size must be an int, got 2.0"),
        (lambda: len(data.Sampler()), NotImplementedError, "must define __len__"),
        (lambda: iter(data.Sampler()), NotImplementedError, "must define __iter__"),
        (lambda: data.DistributedSampler(5, 3, 3), ValueError, r"rank must be in \[0, world\), go"),
        (lambda: data.DistributedSampler(5, 0.5, 3), TypeError, "must be ints, got 0.5 and 3"),
        (lambda: data.WeightedRandomSampler([[1]]), ShapeError, "a 1-D list of numbers, got"),
        (
            lambda: data.WeightedRandomSampler([1, 0, 2], 3, replacement=False),
            ValueError,
            "as many positive weights, got 2; use fewer, or replacement=True",
        ),
        (
            lambda: data.LengthBucketBatchSampler([1], 2, [3, 3]),
            ValueError,
            "must increase, got .3, 3",
        ),
        (lambda: data.LengthBucketBatchSampler([[1]], 2), ShapeError, "lengths must be a 1-D"),
        (lambda: data.LengthBucketBatchSampler([1], 2, buckets=0), ValueError, "at least 1, got 0"),
    ],
)
def test_mistakes(make, error, message):
    with pytest.raises(error, match=message):
        make()
