"""The engine without workers."""

from unittest import mock

import numpy as np
import pytest

from needle import data
from needle.data.batching.pipeline import Pipeline
from needle.data.samples.ticket import Ticket
from needle.data.workers import engine_names, inline, make_engine
from needle.data.workers.inline import InlineEngine
from needle.errors import UnknownNameError


class Interrupted(list):
    """The first read of sample 1 is interrupted."""

    times = 1

    def __getitem__(self, index):
        if index == 1 and self.times:
            self.times = 0
            raise KeyboardInterrupt
        return super().__getitem__(index)


def request(serial, *indices):
    return Ticket(0, None, 0, np.array(indices, np.int64), serial=serial)


def test_batches_are_made_when_they_are_collected_in_the_order_of_asking():
    engine = make_engine("inline", Pipeline([10, 20, 30]), workers=0, prefetch=2)
    assert isinstance(engine, InlineEngine) and engine.capacity == 1
    engine.submit(request(4, 2, 0))
    engine.submit(request(5, 1))
    answer = engine.collect()
    assert (answer.ticket.serial, answer.samples) == (4, 2) and answer.batch.tolist() == [30, 10]
    assert answer.seconds["read"] >= 0 and engine.collect().ticket.serial == 5
    engine.submit(request(6, 1))
    engine.cancel()
    engine.submit(request(7, 9))
    answer = engine.collect()
    assert answer.ticket.serial == 7 and isinstance(answer.error, IndexError)
    engine.close()


def test_an_interrupted_batch_is_still_asked_for():
    engine = make_engine("inline", Pipeline(Interrupted([10, 20])), workers=0, prefetch=2)
    engine.submit(request(0, 0, 1))
    with pytest.raises(KeyboardInterrupt):
        engine.collect()
    assert engine.collect().batch.tolist() == [10, 20]


def pictures(count, **options):
    """Yield a loader of small images that kernels transform, batch by batch as NumPy arrays."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, 9, 7, 3), np.uint8)
    dataset = data.ImageArrays(images, np.arange(count), dtype="uint8", layout="HWC")
    chain = [data.RandomCrop(8, size=8, fill=9), data.ToFloat(), data.ToCHW()]
    return data.DataLoader(dataset, seed=3, transforms=chain, **options)


def arrays(loader):
    return [tuple(field.numpy() for field in batch) for batch in loader]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("most", [0, 5 * 4 * 768, 1 << 25])
def test_small_batches_made_some_at_a_time_are_those_made_one_by_one(most, drop_last):
    options = {"batch_size": 4, "shuffle": True, "drop_last": drop_last}
    with mock.patch.object(inline, "BYTES_TOGETHER", 0):
        expected = arrays(pictures(50, **options))
    assert len(expected) == 12 + (not drop_last)
    with mock.patch.object(inline, "BYTES_TOGETHER", most):
        loader = pictures(50, **options)
        got = arrays(loader)
        assert loader.stats().samples == sum(len(labels) for _, labels in got)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine[0], theirs[0])
        np.testing.assert_array_equal(mine[1], theirs[1])


def test_of_two_iterators_by_turns_each_has_its_own_batches():
    options = {"batch_size": 4, "shuffle": True}
    with pictures(50, **options) as loader:
        expected = [arrays(loader) for _ in range(2)]
    with pictures(50, **options) as loader:
        both = iter(loader), iter(loader)
        for place in range(3):
            for epoch, batches in enumerate(both):
                images, labels = next(batches)
                np.testing.assert_array_equal(images.numpy(), expected[epoch][place][0])
                np.testing.assert_array_equal(labels.numpy(), expected[epoch][place][1])


def test_a_batch_is_its_owners_alone():
    (expected, _), (after, _) = arrays(pictures(8, batch_size=4))
    batches = iter(pictures(8, batch_size=4))
    images = next(batches)[0].realize_cached_data()
    np.testing.assert_array_equal(images.numpy(), expected)
    images[...] = -1
    assert (images.numpy() == -1).all()
    np.testing.assert_array_equal(next(batches)[0].numpy(), after)


def prepared(loader, batches):
    """Return how many samples the pipeline prepared for each of the first batches."""
    counts, prepare = [], Pipeline.prepare

    def noted(self, asked, work):
        counts.append(len(asked.indices))
        return prepare(self, asked, work)

    with mock.patch.object(Pipeline, "prepare", noted):
        iterator = iter(loader)
        for _ in range(batches):
            next(iterator)
    return counts


def test_only_batches_made_by_kernels_alone_are_prepared_early():
    row = 8 * 8 * 3 * 4 + 8
    with mock.patch.object(inline, "BYTES_TOGETHER", 3 * 4 * row):
        assert prepared(pictures(50, batch_size=4), 4) == [12, 12]
        assert prepared(pictures(50, batch_size=8), 2) == [8, 8]
    callable_too = data.DataLoader(
        data.ImageArrays(np.zeros((8, 2, 2, 3), np.uint8), np.zeros(8, int), dtype="uint8"),
        2,
        seed=0,
        transforms=[lambda image: image],
    )
    assert prepared(callable_too, 2) == [2, 2]
    assert prepared(data.DataLoader(data.ArrayDataset(np.arange(8.0)), 2), 2) == [2, 2]


def test_a_bad_index_is_an_error_of_its_batch():
    dataset = data.ArrayDataset(np.arange(8.0))
    batches = iter(data.DataLoader(dataset, 2, seed=0, sampler=[0, 1, 2, 99, 4, 5]))
    assert next(batches)[0].numpy().tolist() == [0, 1]
    with pytest.raises(IndexError, match="99"):
        next(batches)
    assert next(batches)[0].numpy().tolist() == [4, 5]


def test_engines_by_name():
    assert engine_names() == ["inline", "processes", "threads"]
    with pytest.raises(UnknownNameError, match="unknown engine 'procesess'.*mean 'processes'"):
        make_engine("procesess", None, workers=1, prefetch=1)
