"""Test that streams are divided among workers and samples among ranks (complaints 13, 14)."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle import data

from .sets import Shards


def given_out(loader: data.DataLoader) -> list[int]:
    """Return the numbers of a stream's samples in the order of batches."""
    with loader:
        return [i for batch in loader for i in batch[0].numpy().tolist()]


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_13_a_stream_that_cannot_be_shared_is_refused_for_two_workers(engine):
    """Two workers for one shard or a plain iterable are an error; no sample comes twice."""

    class Lines:
        def __iter__(self) -> Any:
            return iter(range(10))

    for stream in (Shards((10,)), Lines()):
        with pytest.raises(
            ValueError, match=r"num_workers=2 for num_shards=1; use at most 1, or write"
        ):
            data.DataLoader(stream, 3, num_workers=2, engine=engine)
        loader = data.DataLoader(stream, 3, num_workers=1, engine=engine)
        assert sum(1 for _ in loader) == 4
        loader.close()


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6).map(tuple),
    world=st.integers(1, 6),
    batch_size=st.integers(1, 4),
)
def test_13_ranks_share_a_stream(sizes, world, batch_size):
    """Each rank reads its own shards, and together they deliver every sample once."""
    stream = Shards(sizes)
    if world > len(sizes):
        with pytest.raises(ValueError, match="each rank needs a shard"):
            stream.for_rank(0, world)
        return
    found = [
        i
        for rank in range(world)
        for i in given_out(data.DataLoader(stream.for_rank(rank, world), batch_size, seed=0))
    ]
    assert Counter(found) == Counter(
        1000 * s + i for s, size in enumerate(sizes) for i in range(size)
    )


@settings(max_examples=50, deadline=None)
@given(
    length=st.integers(1, 40),
    world=st.integers(1, 7),
    batch_size=st.integers(1, 9),
    workers=st.integers(0, 3),
    shuffle=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_14_each_rank_has_as_many_batches_and_each_sample_counts_once(
    length, world, batch_size, workers, shuffle, epoch
):
    """No length, number of ranks or workers, or batch size loses or repeats a sample."""
    counts, valid_ones = set(), []
    for rank in range(world):
        sampler = data.DistributedSampler(length, rank, world, shuffle, seed=5, valid_mask=True)
        engine = {"num_workers": workers, "engine": "threads"} if workers else {}
        with data.DataLoader(range(length), batch_size, sampler=sampler, **engine) as loader:
            loader.set_epoch(epoch)
            batches = [(rows.numpy(), valid.numpy()) for rows, valid in loader]
        counts.add(tuple(len(rows) for rows, _ in batches))
        assert len(batches) == len(loader)
        for rows, valid in batches:
            assert rows.shape == valid.shape and valid.dtype == bool
            valid_ones += rows[valid].tolist()
    assert len(counts) == 1  # batch sizes agree as well, so that ranks never wait for each other
    assert sorted(valid_ones) == list(range(length))
