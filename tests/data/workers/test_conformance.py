"""Every engine gives the inline engine's batches byte for byte, with any number of workers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from needle import data
from needle.data.workers import launch

sys.path.insert(0, str(Path(__file__).parent))
import conformance_datasets as sets

WORKERS = (1, 2, 3, 5)
IMAGES = np.random.default_rng(0).integers(0, 256, (23, 8, 7, 3), dtype=np.uint8)
AUGMENT = [data.RandomCrop(2), data.RandomFlipHorizontal(), data.ToFloat(), data.ToCHW()]


class Shifted(data.Transform):
    """A transform without a native form."""

    def __call__(self, x):
        return x + np.float32(data.random_source.random_source().rand())


def rows():
    return data.ArrayDataset(IMAGES, np.arange(23))


CASES = {
    "in memory": lambda **o: data.DataLoader(rows(), 4, True, transforms=AUGMENT, **o),
    "by sample": lambda **o: data.DataLoader(sets.Drawing(), 4, True, transforms=AUGMENT, **o),
    "python transform": lambda **o: data.DataLoader(
        sets.Drawing(), 5, transforms=[data.ToFloat(), Shifted()], **o
    ),
    "dicts and text": lambda **o: data.DataLoader(sets.Mixed(), 4, True, **o),
    "custom collate": lambda **o: data.DataLoader(sets.Ragged(), 4, True, collate=sets.padded, **o),
    "many sizes": lambda **o: data.DataLoader(
        sets.Sized(), 4, True, transforms=[data.RandomResizedCrop(6), data.ToFloat()], **o
    ),
    "unreadable": lambda **o: data.DataLoader(sets.Skippable(), 3, on_error="skip", **o),
    "mixed up": lambda **o: data.DataLoader(
        rows(), 4, transforms=[data.ToFloat(), data.MixUp(1.0, 23)], **o
    ),
    "in the main process": lambda **o: data.DataLoader(
        sets.Drawing(), 4, True, transforms=AUGMENT, augment="main", **o
    ),
    "ranks": lambda **o: data.DataLoader(
        rows(), 4, sampler=data.DistributedSampler(23, 1, 3, True, valid_mask=True), **o
    ),
    "buckets": lambda **o: data.DataLoader(
        sets.Ragged(),
        batch_sampler=data.LengthBucketBatchSampler([i % 7 for i in range(23)], 4, seed=1),
        collate=sets.padded,
        **o,
    ),
}


def plain(value):
    """Return a batch in a form that == compares byte for byte."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(plain(each) for each in value)
    return value


def epochs(loader, count=2):
    with loader:
        return [plain(batch) for _ in range(count) for batch in loader]


_wanted = {}


def wanted(case):
    if case not in _wanted:
        _wanted[case] = epochs(CASES[case](seed=11))
        assert len(_wanted[case]) >= 4
    return _wanted[case]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("case", CASES)
def test_threads_give_the_batches_of_no_workers(case, workers):
    assert epochs(CASES[case](seed=11, num_workers=workers, engine="threads")) == wanted(case)


@pytest.mark.parametrize("case", CASES)
def test_processes_give_the_batches_of_no_workers(case):
    workers = WORKERS[list(CASES).index(case) % len(WORKERS)]
    assert epochs(CASES[case](seed=11, num_workers=workers)) == wanted(case)


def test_spawned_processes(monkeypatch):
    """The tests above use the default start method, which is forkserver on Linux."""
    monkeypatch.setattr(launch, "START_METHOD", "spawn")
    assert epochs(CASES["in memory"](seed=11, num_workers=2)) == wanted("in memory")


SIZES = (7, 0, 12, 3)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("engine, workers", [("threads", 1), ("threads", 4), ("processes", 2)])
def test_streams(engine, workers, drop_last):
    def make(**options):
        return data.DataLoader(sets.Shards(SIZES), 3, seed=4, drop_last=drop_last, **options)

    want = epochs(make())
    assert len(want) == 2 * (7 if drop_last else 8)
    assert epochs(make(num_workers=workers, engine=engine)) == want


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2, "engine": "threads"}, {"num_workers": 2}]
)
def test_an_error_comes_in_its_place_as_it_was_raised_and_the_epoch_can_go_on(options):
    with data.DataLoader(sets.Failing(), 4, **options) as loader:
        iterator = iter(loader)
        got = [next(iterator).numpy().tolist() for _ in range(2)]
        with pytest.raises(sets.TwoParts) as caught:
            next(iterator)
        assert caught.value.path == "here" and caught.value.place == 9
        assert data.samples.pytree.tagged_sample(caught.value) == 9
        notes = getattr(caught.value, "__notes__", None)  # Python 3.11 and later
        assert sys.version_info < (3, 11) or "sample 9 of Failing" in " ".join(notes)
        assert loader.state_dict()["position"] == 2  # a new loader would try that batch again
        got += [batch.numpy().tolist() for batch in iterator]
    assert got == [[0, 1, 2, 3], [4, 5, 6, 7], [12, 13, 14, 15], [16, 17, 18, 19], [20, 21, 22]]
