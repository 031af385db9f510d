"""Test that the engine without workers prepares small batches together, without sharing memory."""

from unittest import mock

import numpy as np
import pytest

from needle import data
from needle.data.batching.pipeline import Pipeline
from needle.data.samples.ticket import Ticket
from needle.data.workers import inline, make_engine
from needle.data.workers.inline import InlineEngine


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
def test_small_batches_made_some_at_a_time_are_those_made_one_by_one(drop_last):
    options = {"batch_size": 4, "shuffle": True, "drop_last": drop_last}
    with mock.patch.object(inline, "BYTES_TOGETHER", 0):
        expected = arrays(pictures(50, **options))
    with mock.patch.object(inline, "BYTES_TOGETHER", 5 * 4 * 768):
        got = arrays(pictures(50, **options))
    assert len(got) == len(expected) == 12 + (not drop_last)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine[0], theirs[0])
        np.testing.assert_array_equal(mine[1], theirs[1])


def test_a_batch_is_its_owners_alone():
    (expected, _), (after, _) = arrays(pictures(8, batch_size=4))
    batches = iter(pictures(8, batch_size=4))
    images = next(batches)[0].realize_cached_data()
    np.testing.assert_array_equal(images.numpy(), expected)
    images[...] = -1
    assert (images.numpy() == -1).all()
    np.testing.assert_array_equal(next(batches)[0].numpy(), after)


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
