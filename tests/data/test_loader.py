"""Test the loader: the course's defaults, seeded orders, resuming, and conflicting options."""

from collections import namedtuple

import numpy as np
import pytest

import needle
from needle import data
from needle.errors import UnknownNameError


class Counting(data.Dataset):
    """Sample i is (i, a random number); ``reads`` records the indices that were read."""

    def __init__(self, n):
        super().__init__()
        self.n, self.reads = n, []

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        self.reads.append(index)
        return np.float32(index), data.random_source.random_source().rand()


def ids(batch):
    return batch[0].numpy().tolist()


def batches(loader):
    return [[field.numpy().tolist() for field in batch] for batch in loader]


def rows(n=10):
    return data.ArrayDataset(np.arange(n), np.arange(n) * 0.5)


def test_in_order_nothing_is_drawn_and_the_short_batch_is_kept():
    np.random.seed(1)
    want = np.random.rand()
    np.random.seed(1)
    loader = data.DataLoader(rows(), 4)
    assert [ids(batch) for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert np.random.rand() == want and len(loader) == 3
    assert [part.tolist() for part in loader.ordering] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_shuffling_draws_exactly_one_permutation_an_epoch():
    loader = data.DataLoader(rows(), 4, True)
    np.random.seed(2)
    wants = [np.random.permutation(10).tolist() for _ in range(2)]
    after = np.random.rand()
    np.random.seed(2)
    for want in wants:
        got = [i for batch in loader for i in ids(batch)]
        assert got == want == np.concatenate(loader.ordering).tolist()
    assert np.random.rand() == after


def test_the_permutation_is_drawn_by_iter_and_transforms_then_sample_by_sample():
    x = np.random.default_rng(0).random((5, 4, 4, 1)).astype("float32")
    dataset = data.ArrayDataset(x, transforms=[data.RandomCrop(1), data.RandomFlipHorizontal()])
    np.random.seed(3)
    order = np.random.permutation(5)
    want = [dataset[int(i)][0] for i in order]
    np.random.seed(3)
    got = [batch[0].numpy() for batch in data.DataLoader(dataset, 2, shuffle=True)]
    np.testing.assert_array_equal(np.concatenate(got), want)


def test_batches_are_tuples_of_tensors_on_the_default_device():
    loader = data.DataLoader(rows(), 4)
    iterator = iter(loader)
    batch = next(iterator)
    assert isinstance(batch, tuple) and all(isinstance(field, needle.Tensor) for field in batch)
    assert batch[0].device == needle.default_device() and batch[0].dtype == "int64"
    assert iter(iterator) is iterator and ids(next(iterator)) == [4, 5, 6, 7]
    plain = next(iter(data.DataLoader(Counting(3), 3)))
    assert plain[0].dtype == "float32" and plain[0].shape == (3,)


def test_batches_go_to_the_device(device):
    for given in (device, str(device).removesuffix("()")):
        batch = next(iter(data.DataLoader(rows(), 4, device=given)))
        assert batch[0].device == device and batch[1].device == device
    with pytest.raises(UnknownNameError, match="unknown device 'tpu'"):
        data.DataLoader(rows(), device="tpu")


def test_shuffled_batches_differ_from_ordered_ones_as_course_programs_compare_them():
    for a, b in zip(data.DataLoader(rows(), 5, True), data.DataLoader(rows(), 5)):
        assert a != b


def test_drop_last_collate_and_transforms():
    loader = data.DataLoader(rows(), 4, drop_last=True)
    assert [ids(b) for b in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]] and len(loader) == 2
    loader = data.DataLoader(rows(), 5, collate=lambda samples: np.array([s[1] for s in samples]))
    assert next(iter(loader)).numpy().tolist() == [0, 0.5, 1, 1.5, 2]
    loader = data.DataLoader(rows(), 5, transforms=[lambda x: x + 1, lambda x: x * 2])
    batch = next(iter(loader))
    assert ids(batch) == [2, 4, 6, 8, 10] and batch[1].numpy().tolist() == [0, 0.5, 1, 1.5, 2]


def test_any_object_with_len_and_getitem_is_a_dataset():
    loader = data.DataLoader([(i, float(i)) for i in range(5)], 3, shuffle=True, seed=0)
    assert sorted(i for batch in loader for i in ids(batch)) == [0, 1, 2, 3, 4]
    assert batches(data.DataLoader([], 3)) == [] and len(data.DataLoader([], 3, True, seed=1)) == 0


def test_with_a_seed_everything_depends_on_seed_epoch_and_index():
    np.random.seed(0)
    one = data.DataLoader(Counting(10), 4, shuffle=True, seed=7)
    first, second = batches(one), batches(one)
    np.random.seed(99)
    other = data.DataLoader(Counting(10), 3, shuffle=True, seed=7)
    draws = {i: r for batch in batches(other) for i, r in zip(*batch)}
    # draws do not depend on the batch size
    assert draws == {i: r for batch in first for i, r in zip(*batch)}
    assert second != first
    other.set_epoch(0)
    assert {i: r for batch in batches(other) for i, r in zip(*batch)} == draws
    assert batches(data.DataLoader(Counting(10), 4, shuffle=True, seed=8)) != first
    everything = [r for batch in first + second for r in batch[1]]
    assert len(set(everything)) == 20


def test_the_state_before_within_and_after_an_epoch():
    loader = data.DataLoader(rows(), 5, shuffle=True, seed=1)
    places = [loader.state_dict()]
    for _ in loader:
        places.append(loader.state_dict())
    places.append(loader.state_dict())
    assert [(s["epoch"], s["position"]) for s in places] == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_the_state_of_a_batch_sampler_of_another_size_is_refused():
    def loader(size):
        batches = data.BatchSampler(data.RandomSampler(10, seed=0), size)
        return data.DataLoader(rows(), batch_sampler=batches)

    first = loader(4)
    next(iter(first))
    with pytest.raises(ValueError, match="the state's batch_size must be 2, got 4; resume with"):
        loader(2).load_state_dict(first.state_dict())
    again = loader(4)
    again.load_state_dict(first.state_dict())
    assert len(list(again)) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True},
        {"sampler": data.RandomSampler(10)},
        {"batch_sampler": data.BatchSampler(data.SubsetRandomSampler([1, 2]), 2)},
    ],
)
def test_an_order_that_nothing_can_repeat_has_no_state(options):
    loader = data.DataLoader(rows(), **options)
    for method in (loader.state_dict, lambda: loader.load_state_dict({})):
        with pytest.raises(ValueError, match="only with a seed, got seed=None; make the "):
            method()


def test_transforms_see_the_first_field_of_any_kind_of_sample():
    pair = namedtuple("pair", "x y")
    for sample in ((1, 2), [1, 2], pair(1, 2)):
        batch = next(iter(data.DataLoader([sample], transforms=[lambda x: x * 10])))
        assert type(batch) is type(sample) and [f.numpy().tolist() for f in batch] == [[10], [2]]
    assert next(iter(data.DataLoader([3], transforms=[lambda x: x * 10]))).numpy().tolist() == [30]


def test_indices_from_the_end_have_random_numbers_too():
    loader = data.DataLoader(rows(), 2, sampler=[-1, 3], seed=1, transforms=[_add_draw])
    assert [int(x) for x in ids(next(iter(loader)))] == [9, 3]


def _add_draw(x):
    return x + data.random_source.random_source().rand()


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"batch_size": 0}, ValueError, "DataLoader: batch_size must be at least 1, got 0"),
        ({"batch_size": True}, TypeError, "batch_size must be an int, got True"),
        ({"batch_size": 2.5}, TypeError, "batch_size must be an int, got 2.5"),
        ({"shuffle": True, "sampler": [1]}, ValueError, "sampler decides the order, got shuffle"),
        (
            {"batch_sampler": [[1]], "batch_size": 4, "drop_last": True},
            ValueError,
            "decides whole batches, got batch_size, drop_last as well; leave them out",
        ),
        ({"batch_sampler": [[1]], "shuffle": True}, ValueError, "got shuffle as well"),
        ({"batch_sampler": [[1]], "sampler": [1]}, ValueError, "got sampler as well"),
        ({"seed": "a"}, TypeError, "seed must be an int or None, got 'a'"),
        ({"seed": 2**64}, ValueError, r"seed must be in \[0, 2\*\*64\)"),
    ],
)
def test_options_that_contradict(options, error, message):
    with pytest.raises(error, match=message):
        data.DataLoader(rows(), **options)


def test_transforms_for_hwc_are_refused_where_the_dataset_gives_chw():
    with pytest.raises(ValueError, match=r"RandomCrop needs images \(H, W, C\).*layout='HWC'"):
        data.DataLoader(data.Digits(), transforms=[data.RandomCrop(1)])
    steps = [data.RandomCrop(1), data.ToCHW()]
    loader = data.DataLoader(data.Digits(layout="HWC"), 8, transforms=steps, seed=0)
    assert next(iter(loader))[0].shape == (8, 1, 8, 8)


def test_epochs_must_not_be_negative():
    with pytest.raises(ValueError, match="epoch must not be negative, got -1"):
        data.DataLoader(rows()).set_epoch(-1)


def test_an_index_that_the_dataset_does_not_have():
    with pytest.raises(IndexError):
        list(data.DataLoader(rows(), sampler=[10]))


class Fetching(data.Dataset):
    """A data set whose fetch returns a view of its own memory."""

    def __init__(self):
        super().__init__()
        self.rows = np.arange(8, dtype=np.float32)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.rows[index]

    def fetch(self, indices):
        return self.rows[indices[0] : indices[-1] + 1]


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_tensors_never_share_memory_with_arrays_of_the_user(engine):
    dataset, kept = Fetching(), []

    def collate(samples):
        kept.append(np.stack(samples))
        return kept[-1]

    workers = {"num_workers": 0 if engine == "inline" else 1, "engine": engine}
    for options in ({}, {"collate": collate}):
        batch = next(iter(data.DataLoader(dataset, 8, **workers, **options)))
        batch.cached_data[0] = 7.0
        assert dataset.rows[0] == 0.0 and all(each[0] == 0.0 for each in kept)


def nested(levels):
    """Return a list nested to this depth."""
    found = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize("state", ["x", [], None, 3, b"x", {"version"}], ids=str)
def test_a_state_must_be_a_dict(state):
    with pytest.raises(TypeError, match=r"DataLoader.load_state_dict: a state must be a dict, got"):
        data.DataLoader(Counting(12), 3, seed=1).load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [
        {"version": nested(10**5)},
        {"version": np.ones(3)},
        {"version": 1.0},
        {"length": np.ones(3)},
        {"seed": "x"},
        {"seed": 1.5},
        {"seed": True},
        {"seed": -1},
        {"seed": nested(10**5)},
        {"epoch": 2**64},
        {"epoch": 2**63 - 1},
        {"epoch": nested(10**5)},
        {"position": 5},
        {"position": 2**62},
        {"position": None},
        {"position": nested(10**5)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_damaged_state_is_refused_and_changes_nothing(change):
    loader = data.DataLoader(Counting(12), 3, True, seed=1)
    wanted = [ids(batch) for batch in data.DataLoader(Counting(12), 3, True, seed=1)]
    with pytest.raises((TypeError, ValueError), match=r"^DataLoader.load_state_dict: ") as caught:
        loader.load_state_dict({**loader.state_dict(), **change})
    assert len(str(caught.value)) < 400
    assert [ids(batch) for batch in loader] == wanted
