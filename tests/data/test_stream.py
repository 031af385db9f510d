"""Test streams: each sample comes once for any number of workers and ranks, and can be resumed."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle import data


class Shards(data.IterableDataset):
    """A stream whose shard s has the samples 1000 s + i; ``opened`` lists (shard, start)."""

    def __init__(self, sizes):
        super().__init__(len(sizes))
        self.sizes, self.opened, self.reads = sizes, [], 0

    def iter_shard(self, shard, epoch, start):
        self.opened.append((shard, start))
        for i in range(start, self.sizes[shard]):
            self.reads += 1
            yield 1000 * shard + i


class Count:
    """A plain iterable, which is a stream of one shard."""

    def __iter__(self):
        return iter(range(7))


def ids(batch):
    return batch.numpy().tolist()


def test_batches_are_taken_from_the_shards_in_turn():
    loader = data.DataLoader(Shards([5, 0, 2]), 2)
    want = [[0, 1], [2000, 2001], [2, 3], [4]]
    for _ in range(2):
        assert [ids(batch) for batch in loader] == want
    loader = data.DataLoader(Shards([5, 0, 2]), 2, drop_last=True)
    assert [ids(batch) for batch in loader] == want[:-1]


def test_a_plain_iterable_is_one_shard():
    loader = data.DataLoader(Count(), 3)
    assert [ids(batch) for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    with data.DataLoader(Count(), 3, num_workers=1, engine="threads") as loader:
        assert [ids(batch) for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_shard_is_opened_once_an_epoch():
    dataset = Shards([50, 33])
    with data.DataLoader(dataset, 4, num_workers=2, engine="threads") as loader:
        for _ in range(2):
            assert sum(len(ids(batch)) for batch in loader) == 83
    assert sorted(dataset.opened) == [(0, 0)] * 2 + [(1, 0)] * 2 and dataset.reads == 166


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(0, 5),
    st.integers(0, 12),
)
def test_any_number_of_workers_and_any_stop(sizes, batch_size, workers, stop):
    want = [ids(batch) for batch in data.DataLoader(Shards(sizes), batch_size, seed=0)]
    assert sorted(i for b in want for i in b) == [
        1000 * s + i for s, n in enumerate(sizes) for i in range(n)
    ]
    workers = min(workers, len(sizes))
    engine = "threads" if workers else None
    loader = data.DataLoader(Shards(sizes), batch_size, seed=0, num_workers=workers, engine=engine)
    with loader:
        iterator = iter(loader)
        got = [ids(batch) for _, batch in zip(range(min(stop, len(want))), iterator)]
        state = json.loads(json.dumps(loader.state_dict()))
    assert got == want[: len(got)]
    resumed = data.DataLoader(Shards(sizes), batch_size, seed=9)
    resumed.load_state_dict(state)
    rest = [ids(batch) for batch in resumed]
    assert sorted(got + rest) == sorted(want) and len(got) == min(stop, len(want))
    assert resumed.dataset.reads == sum(map(len, rest))


def test_random_numbers_differ_between_shards_and_not_between_runs():
    loader = data.DataLoader(
        Shards([4, 4]), 2, seed=1, transforms=[lambda x: data.random_source.random_source().rand()]
    )
    first, second = ([v for b in loader for v in ids(b)] for _ in range(2))
    assert len(set(first + second)) == 16
    loader.set_epoch(0)
    assert [v for b in loader for v in ids(b)] == first


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: data.DataLoader(Shards([1]), shuffle=True), ValueError, "got shuffle as well"),
        (lambda: data.DataLoader(Shards([1]), sampler=[0]), ValueError, "got sampler as well"),
        (lambda: data.DataLoader(iter([1])), TypeError, "can be iterated only once; write an It"),
        (
            lambda: data.DataLoader(3),
            TypeError,
            "must have __getitem__ and __len__, or __iter__, got",
        ),
        (lambda: len(data.DataLoader(Shards([1]))), TypeError, "not known before it has been read"),
        (lambda: Shards([1, 2]).for_rank(0, 3), ValueError, "each rank needs a shard, got 2 for"),
        (lambda: Shards([1, 2]).for_rank(2, 2), ValueError, r"rank must be in \[0, world\), got"),
        (lambda: data.IterableDataset(0), ValueError, "num_shards must be at least 1, got 0"),
        (lambda: iter(data.IterableDataset()), NotImplementedError, "must define __iter__"),
        (lambda: data.IterableDataset(2).iter_shard(0, 0, 0), NotImplementedError, "has 2 shards"),
    ],
)
def test_mistakes(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_state_of_other_shards():
    state = data.DataLoader(Shards([1, 1]), seed=0).state_dict()
    with pytest.raises(ValueError, match="state's shards must be 3, got 2"):
        data.DataLoader(Shards([1, 1, 1]), seed=0).load_state_dict(state)
