"""Slices of a batch equal the plain read, transform and collate, however they are prepared."""

import threading

import numpy as np
import pytest

from needle import data
from needle.data.batching.collate import Slice, concatenate
from needle.data.batching.pipeline import Pipeline, Work
from needle.data.samples.random_source import (
    LOADER_STREAM,
    keyed,
    random_source,
)
from needle.data.samples.ticket import Ticket
from needle.data.samples.timing import Clock, add_seconds, measured
from needle.errors import DataError

PIXELS = np.random.default_rng(1).integers(0, 256, (9, 6, 5, 3), dtype=np.uint8)
LABELS = np.arange(9)


class OneByOne(data.Dataset):
    """A data set that reads its samples one by one, without ``fetch``."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getitem__(self, index):
        return self.inner[index]

    def __len__(self):
        return len(self.inner)


class Fetching(OneByOne):
    """The dataset of ``OneByOne``, with ``fetch``."""

    def fetch(self, indices):
        return self.inner[indices] if self.inner.transforms is None else None


def noise(image):
    return image + image.dtype.type(random_source().randint(0, 9))


TRANSFORMS = {
    "none": None,
    "described": [data.RandomCrop(2), data.RandomFlipHorizontal(), data.Normalize(0.5, 2.0)],
    "own": [noise, noise],
    "mixed": [data.RandomFlipHorizontal(), noise, data.RandomCrop(1), data.ToCHW()],
}
DATASETS = {
    "bytes": lambda: data.ImageArrays(PIXELS, LABELS, layout="HWC", dtype="uint8"),
    "floats": lambda: data.ImageArrays(PIXELS, LABELS, layout="HWC", scale=16),
    "own transforms": lambda: data.ImageArrays(
        PIXELS, LABELS, [data.RandomCrop(1), noise], layout="HWC"
    ),
    "arrays": lambda: data.ArrayDataset(PIXELS, LABELS, LABELS.astype("f4")),
    "subset": lambda: data.Subset(
        data.ImageArrays(PIXELS, LABELS, layout="HWC"), [3, 3, -1, 0, 8, 7, 6, 5, 4]
    ),
}


def request(*indices, seed=7, epoch=2):
    return Ticket(0, seed, epoch, np.array(indices, np.int64))


def definition(dataset, transforms, asked):
    """Return the batch by the definition in the documentation."""
    samples = []
    for index in asked.indices.tolist():
        with keyed(asked.seed, asked.epoch, index) as source:
            first, *others = dataset[index]
            source.seek(LOADER_STREAM)
            if transforms:
                first = data.Compose(transforms)(first)
            samples.append((first, *others))
    return data.default_collate(samples)


def assert_same(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("wrap", [lambda d: d, OneByOne, Fetching])
@pytest.mark.parametrize("chain", TRANSFORMS)
@pytest.mark.parametrize("kind", DATASETS)
def test_every_way_of_making_a_batch_gives_the_definition(kind, chain, wrap):
    dataset, transforms = DATASETS[kind](), TRANSFORMS[chain]
    pipeline = Pipeline(wrap(dataset), transforms)
    asked = request(4, 0, 4, 8, 2)
    want = definition(dataset, transforms, asked)
    assert_same(pipeline.prepare(asked).batch(), want)
    layout = pipeline.layout()
    assert layout is None or [(f.row_shape, f.dtype) for f in layout] == [
        (leaf.shape[1:], leaf.dtype) for leaf in want
    ]
    out = [np.zeros((5, *leaf.shape[1:]), leaf.dtype) for leaf in want]
    parts = [
        pipeline.prepare(asked.rows(rows), Work(out=[array[rows] for array in out]))
        for rows in (slice(0, 2), slice(2, 5))
    ]
    assert all(all(part.placed) for part in parts)
    whole = concatenate(parts, out)
    assert all(leaf is array for leaf, array in zip(whole.leaves, out))
    assert_same(whole.batch(), want)


def test_transforms_of_rows_that_are_no_images():
    dataset = data.ArrayDataset(np.arange(12.0).reshape(4, 3), np.arange(4))
    got = Pipeline(dataset, [lambda row: row[:2] * 2]).prepare(request(3, 1)).batch()
    assert_same(got, (np.array([[18.0, 20], [6, 8]]), np.array([3, 1])))
    got = Pipeline(dataset, [lambda row: {"sum": row.sum()}]).prepare(request(3, 1)).batch()
    assert got[0]["sum"].tolist() == [30, 12] and got[1].tolist() == [3, 1]
    got = Pipeline(dataset, [lambda row: int(row.sum())]).prepare(request(3, 1)).batch()
    assert_same(got, (np.array([30, 12]), np.array([3, 1])))


def test_getitem_of_a_subclass_decides_the_delivered_items():
    class Darker(data.ImageArrays):
        def __getitem__(self, index):
            image, label = super().__getitem__(index)
            return image / 2, label

    class Twice(data.ImageArrays):
        def apply_transforms(self, x):
            return x * 2

    plain = data.ImageArrays(PIXELS, LABELS)[3][0]
    for kind, factor in ((Darker, 0.5), (Twice, 2)):
        pipeline = Pipeline(kind(PIXELS, LABELS, [lambda x: x]))
        np.testing.assert_array_equal(pipeline.prepare(request(3)).leaves[0][0], plain * factor)
    darker = data.Subset(Darker(PIXELS, LABELS), [3])
    got = Pipeline(darker).prepare(request(0)).leaves[0][0]
    np.testing.assert_array_equal(got, plain / np.float32(2))


class Damaged(data.Dataset):
    """A data set in which every third sample is damaged."""

    def __getitem__(self, index):
        if index % 3 == 0:
            raise DataError(f"{index}.jpg: damaged")
        return np.full(2, index, "i2"), index

    def __len__(self):
        return 9


class DamagedFetch(Damaged):
    def fetch(self, indices):
        return data.default_collate([self[int(index)] for index in indices])


@pytest.mark.parametrize("dataset", [Damaged(), DamagedFetch()])
def test_unreadable_samples_are_left_out_when_asked(dataset):
    out = [np.zeros((4, 2), "i2"), np.zeros(4, "i8")]
    part = Pipeline(dataset, on_error="skip").prepare(request(1, 3, 0, 5), Work(out=out))
    assert part.samples == 2
    assert part.batch()[1].tolist() == [1, 5] and part.batch()[0].tolist() == [[1, 1], [5, 5]]
    nothing = Pipeline(dataset, on_error="skip").prepare(request(3, 0))
    assert (nothing.samples, nothing.batch()) == (0, None)
    chain = [data.Normalize(0.0, 1.0)]
    kept = Pipeline(dataset, chain, on_error="skip").prepare(request(3, 1)).batch()
    assert kept[1].tolist() == [1]
    with pytest.raises(DataError, match=r"3.jpg: damaged"):
        Pipeline(dataset).prepare(request(1, 3))


def test_indices_out_of_range_are_refused():
    with pytest.raises(IndexError, match=r"each index must be in \[-9, 9\), got 9"):
        Pipeline(DATASETS["bytes"]()).prepare(request(0, 9))
    run = np.array([3, 4, -1, 2, 9], np.int64)
    batches = iter(data.DataLoader(DATASETS["bytes"](), 2, sampler=run, seed=1))
    for wanted in (run[:2], run[2:4]):  # the error belongs to the batch that raised it
        np.testing.assert_array_equal(next(batches)[1].numpy(), LABELS[wanted])
    with pytest.raises(IndexError, match="got 9"):
        next(batches)


@pytest.mark.parametrize("augment", ["main", "device"])
@pytest.mark.parametrize("kind", DATASETS)
def test_transforms_of_the_main_process_give_the_same(kind, augment):
    dataset, asked = DATASETS[kind](), request(4, 0, 4, 8, 2)
    for chain in TRANSFORMS.values():
        pipeline = Pipeline(dataset, chain, augment=augment, device="cpu")
        want = definition(dataset, chain, asked)
        assert_same(pipeline.finish(pipeline.prepare(asked), asked), want)


@pytest.mark.parametrize("cuts", [(2,), (1, 2, 3)])  # slices of one sample may be uniform by chance
def test_the_main_process_transforms_images_of_many_sizes_and_without_those_left_out(cuts):
    class Photos(Damaged):
        def __getitem__(self, index):
            super().__getitem__(index)
            return PIXELS[index, : 1 + index % 4], index

    chain = [data.RandomFlipHorizontal(), data.Resize((4, 4))]
    pipeline = Pipeline(Photos(), chain, augment="main", on_error="skip")
    asked = request(1, 3, 4, 2)
    slices = map(slice, (0, *cuts), (*cuts, 4))
    batch = concatenate([pipeline.prepare(asked.rows(rows)) for rows in slices])
    assert_same(pipeline.finish(batch, asked), definition(Photos(), chain, request(1, 4, 2)))
    assert pipeline.finish(Slice(), asked) is None


class Counting(data.IterableDataset):
    """A stream of two shards of five samples; a random number identifies each sample."""

    def __init__(self):
        super().__init__(2)

    opened = 0

    def iter_shard(self, shard, epoch, start):
        self.opened += 1
        for i in range(start, 5):
            yield shard * 10 + i, random_source().randint(0, 10**9), epoch


def test_ranks_draw_the_numbers_of_the_whole_stream():
    whole = Pipeline(Counting())
    for rank in (0, 1):
        part = Pipeline(Counting().for_rank(rank, 2)).prepare(
            Ticket(0, 5, 0, serial=0, shard=0, start=2, size=3)
        )
        want = whole.prepare(Ticket(0, 5, 0, serial=0, shard=rank, start=2, size=3))
        assert_same(part.batch(), want.batch())


def test_stages_within_stages_are_counted_once(monkeypatch):
    now, here = iter([0.0, 1.0, 3.0, 10.0, 20.0, 21.0]), threading.get_ident()
    read = lambda: next(now) if threading.get_ident() == here else 0.0  # noqa: E731
    monkeypatch.setattr("needle.data.samples.timing.perf_counter", read)
    clock = Clock()
    with clock.active(), clock.measure("read"), measured("decode"):
        pass
    with clock.measure("read"):
        pass
    assert clock.seconds == {"decode": 2.0, "read": 9.0}
    add_seconds(clock.seconds, {"read": 1.0, "collate": 5.0})
    assert clock.seconds == {"decode": 2.0, "read": 10.0, "collate": 5.0}
    with measured("read"):
        pass
