"""Test that tasks of a server get DataLoader's samples, once per epoch, with few reads."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proc import Leftovers
from server_checks import (
    arrays,
    as_data_loader,
    assert_same,
    by_index,
    folder,
    loader,
    served,
)
from server_sets import Bad, Captioned, Images, Nested, Uneven, readings

from needle import data
from needle.errors import DataError, LoaderServerError, LoaderTimeout, ShapeError
from needle.sharing import ServerOptions

FLOATS = [data.ToFloat(), data.ToCHW()]
LISTS: dict[str, list[Any]] = {
    "none": [],
    "own": [data.RandomCrop(2), data.RandomFlipHorizontal(), *FLOATS],
    "shared": [data.Resize((6, 5)), data.CenterCrop(4)],
    "both": [
        data.Resize((10, 12)),
        data.RandomCrop(0, 8),
        data.Cutout(3),
        data.Normalize(9.0, 3.0),
    ],
    "callable": [data.CenterCrop(6), lambda x: x[::-1].copy(), data.RandomFlipVertical(), *FLOATS],
    "choice": [data.OneOf([data.RandomFlipHorizontal(1.0), data.Cutout(2)]), *FLOATS],
}


@pytest.mark.parametrize("name", LISTS)
def test_two_tasks_see_what_data_loader_defines(name: str) -> None:
    dataset = Images(60)
    with (
        served(dataset) as path,
        loader(path, task="a", seed=5, transforms=LISTS[name]) as first,
        loader(path, task="b", seed=6, transforms=LISTS[name], indices=range(20, 50)) as second,
    ):
        for epoch in range(2):
            for task, indices in ((first, range(60)), (second, range(20, 50))):
                wanted = as_data_loader(dataset, task.seed, epoch, transforms=LISTS[name])
                assert_same(by_index(task), wanted, indices)


@pytest.mark.parametrize(
    "dataset",
    [
        data.ArrayDataset(np.arange(120, dtype=np.float32).reshape(30, 4), np.arange(30)),
        data.ImageArrays(
            np.arange(30 * 48, dtype=np.int64).astype(np.uint8).reshape(30, 4, 4, 3), np.arange(30)
        ),
        data.Subset(Images(90), np.arange(30)),
        [(np.full(3, i, np.float32), i) for i in range(30)],
    ],
)
def test_any_kind_of_data_set(dataset: Any) -> None:
    with served(dataset) as path, loader(path) as task:
        assert_same(by_index(task), as_data_loader(dataset, 1, 0), range(30))


def test_images_of_many_sizes_are_shared_and_cropped_by_each_task() -> None:
    dataset, transforms = Uneven(50), [data.RandomResizedCrop(8), *FLOATS]
    with (
        # the workers' slices may be uniform by chance
        served(dataset, ServerOptions(workers=2)) as path,
        loader(path, seed=3, transforms=transforms) as first,
        loader(path, seed=4, transforms=transforms, batch_size=7) as second,
    ):
        for task in (first, second):
            wanted = as_data_loader(dataset, task.seed, 0, transforms=transforms)
            assert_same(by_index(task), wanted, range(50))
        assert first.server_status()["feeds"][0]["reads"] == 50


def test_samples_of_dicts_and_lists_keep_their_form() -> None:
    with served(Nested(20)) as path, loader(path) as task:
        for structure, labels in task:
            labels = labels.numpy()
            assert list(structure) == ["a", "b"] and isinstance(structure["b"], list)
            np.testing.assert_array_equal(structure["b"][0].numpy(), labels.astype(np.float32))
            np.testing.assert_array_equal(structure["b"][1].numpy(), labels)


class Growing(Images):
    """A data set of images that can grow."""

    def grow(self, count: int) -> None:
        self.length += count


class Numbered(data.Dataset):
    """Sample i is (i, ``values[i]``)."""

    def __init__(self, *values: Any) -> None:
        super().__init__()
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        return index, self.values[index]


@pytest.mark.parametrize(
    "values",
    [
        (True, 3, 4, 5),
        (3, 2.5, True, 0.1),
        (np.array(1), np.int8(2), 3, np.float32(0.1)),
        (np.int16(1), np.uint16(2), np.float16(0.5), 7),
        ({"a": 1, "b": 2}, {"b": 0.3, "a": 4}, {"a": 5, "b": True}, {"b": 7, "a": 8}),
        (np.zeros(2, "f4"), np.full(2, 0.1), np.ones(2, "i4"), np.ones(2, "f4")),
    ],
)
def test_all_values_of_a_batch_decide_as_with_data_loader(values: Any) -> None:
    dataset = Numbered(*values)
    with served(dataset) as path, loader(path, batch_size=4) as task:
        for _ in range(3):  # the samples come in other orders
            indices, got = next(iter(task))
            order = indices.numpy().tolist()
            _, wanted = next(iter(data.DataLoader(dataset, 4, sampler=order)))
            columns = [(got, wanted)]
            if isinstance(got, dict):
                columns = [(got[key], wanted[key]) for key in wanted]
            for one, other in columns:
                assert one.dtype == other.dtype and one.numpy().tolist() == other.numpy().tolist()


@pytest.mark.parametrize(
    "values", [(1, None, 2, 3), (1, "a", 2, 3), ((1, 2), [1, 2], (1, 2), (1, 2))]
)
def test_values_that_fit_no_batch_are_refused(values: Any) -> None:
    with served(Numbered(*values)) as path, loader(path, batch_size=4) as task:
        for _ in range(2):
            with pytest.raises((TypeError, ShapeError, DataError)):
                next(iter(task))


class Remembering(Growing):
    """A data set that keeps what it has read."""

    def __getitem__(self, index: int) -> Any:
        self.__dict__.setdefault("read", {})[index] = True
        return super().__getitem__(index)


def test_a_data_set_that_fills_a_cache_is_no_changed_one() -> None:
    with loader(Remembering(16)) as task:
        assert len(list(task)) == len(list(task)) == 2


@pytest.mark.parametrize("change", [lambda d: setattr(d, "pause", 1.0), lambda d: d.grow(1)])
def test_a_data_set_that_changes_between_epochs_is_refused(change: Any) -> None:
    dataset = Growing(16)
    with served(dataset) as path, loader(path, fallback=dataset) as task:
        assert len(list(task)) == len(list(task)) == 2
        change(dataset)
        with pytest.raises(ValueError, match="that has changed; make a new loader"):
            iter(task)


@pytest.mark.parametrize(
    "name", ["batch_size", "indices", "task", "share", "credits", "fallback", "transforms"]
)
def test_options_of_a_task_cannot_be_set(name: str) -> None:
    refused = pytest.raises(
        AttributeError,
        match=f"{name} cannot be changed after the GlobalDataLoader has been created",
    )
    with served(Images(16)) as path, loader(path) as task, refused:
        setattr(task, name, 3)


def test_two_threads_that_begin_at_once_begin_two_epochs() -> None:
    with served(Images(16)) as path, loader(path) as task:
        for _ in range(10):
            task.set_epoch(0)
            found: list[int] = []
            threads = [
                threading.Thread(target=lambda: found.append(iter(task).epoch))  # noqa: B023
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            assert sorted(found) == [0, 1, 2, 3]


def test_a_collate_of_ones_own_sees_pythons_numbers() -> None:
    values = [True, 3, 0.1, 2**40]
    with (
        served(Numbered(*values)) as path,
        loader(path, batch_size=4, collate=sorted) as task,
    ):
        got = [value for _, value in next(iter(task))]
    assert got == values and [type(value) for value in got] == [bool, int, float, int]


@pytest.mark.parametrize("collate", [None, list])
def test_texts_are_lists_beside_the_arrays(collate: Any) -> None:
    with served(Captioned(40)) as path, loader(path, collate=collate, transforms=FLOATS) as task:
        for batch in task:
            images, labels, texts, raws = zip(*batch) if collate else arrays(batch)
            assert np.shape(images)[1:] == (3, 8, 8) and isinstance(texts, (list, tuple))
            for label, text, raw in zip(labels, texts, raws):
                assert text == "ä" * int(label) and raw == bytes(int(label))


def test_equal_tasks_at_once_need_one_reading_of_the_data(tmp_path: Path) -> None:
    file = tmp_path / "readings"
    dataset = Images(200, 1e-3, str(file))
    with served(dataset) as path:
        file.write_bytes(b"")  # ignore the reads that inspect some samples at the start
        tasks = [loader(path, seed=i, task=str(i)) for i in range(3)]
        found: list[dict[int, Any]] = [{} for _ in tasks]

        def run(number: int) -> None:
            for _ in range(2):
                found[number] = by_index(tasks[number])

        threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(sorted(each) == list(range(200)) for each in found)
        assert len(readings(file)) == 200
        for task in tasks:
            task.close()


def test_what_memory_has_no_room_for_lies_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for spill, most in ((0, 200), (1 << 20, 100)):
        options = ServerOptions(workers=0, budget=0, spill=spill)
        with served(Images(100), options) as path, loader(path, task="late", seed=2) as late:
            epoch = iter(late)
            found = [next(epoch)]  # task "early" has not begun
            with loader(path, task="early") as early:
                assert len(by_index(early)) == 100
            assert_same(by_index([*found, *epoch]), as_data_loader(Images(100), 2, 0), range(100))
            reads = late.server_status()["feeds"][0]["reads"]
            assert most // 2 < reads <= most and not list(tmp_path.iterdir())


def test_prepared_samples_are_one_augmentation_for_who_meets_and_new_each_epoch() -> None:
    dataset, transforms = Images(200), [data.RandomCrop(3), data.RandomErasing(1.0)]
    options = {"transforms": transforms, "share": "prepared"}
    with (
        served(dataset) as path,
        loader(path, seed=1, **options) as first,
        loader(path, seed=2, **options) as second,
    ):
        epochs = []
        for _ in range(2):
            pairs = list(zip(first, second))
            one, other = (by_index([pair[i] for pair in pairs]) for i in range(2))
            assert sorted(one) == sorted(other) == list(range(200))
            met = sum(np.array_equal(one[i], other[i]) for i in one)
            assert met > 100, "tasks in step meet at most samples"
            epochs.append(one)
        again = sum(np.array_equal(epochs[0][i], epochs[1][i]) for i in range(200))
        assert again < 20, "an epoch later the augmentation is another"


@pytest.mark.parametrize("drop_last", [False, True])
def test_lengths_and_the_last_batch(drop_last: bool) -> None:
    with served(Images(50)) as path, loader(path, drop_last=drop_last) as task:
        for _ in range(3):
            sizes = [len(labels.numpy()) for _, labels in task]
            assert len(task) == len(sizes)
            assert sizes == [8] * 6 + ([] if drop_last else [2])


def test_orders_differ_between_epochs_and_tasks() -> None:
    with served(Images(64)) as path, loader(path) as task:
        orders = [tuple(np.concatenate([arrays(b)[1] for b in task]).tolist()) for _ in range(3)]
        assert len(set(orders)) == 3


def test_the_doctor_reads_the_samples_of_a_task_without_the_server() -> None:
    with served(Images(30)) as path, loader(path, fallback=Images(30), batch_size=5) as task:
        assert data.doctor(task).samples == 30
    with (
        served(Images(30)) as path,
        loader(path) as task,
        pytest.raises(IndexError, match="read by the server"),
    ):
        data.doctor(task)


def test_the_latest_iterator_has_the_task() -> None:
    with served(Images(40)) as path, loader(path) as task:
        older = iter(task)
        next(older)
        assert len(by_index(task)) == 40
        with pytest.raises(RuntimeError, match="another iterator of this loader has begun"):
            while True:
                next(older)


def test_a_batch_that_is_late_is_an_error_and_comes_later() -> None:
    with served(Images(20, 0.05)) as path, loader(path, timeout=0.001) as task:
        epoch, found, late = iter(task), [], 0
        while not epoch.finished:
            try:
                found += arrays(next(epoch))[1].tolist()
            except LoaderTimeout:
                late += 1
            except StopIteration:
                break
        assert late and sorted(found) == list(range(20))


def test_a_state_goes_on_at_another_server() -> None:
    dataset, transforms = Images(70), LISTS["own"]
    with served(dataset) as path, loader(path, transforms=transforms) as task:
        by_index(task)
        epoch = iter(task)
        before = by_index([next(epoch) for _ in range(4)])
        state = task.state_dict()
    with served(dataset) as path, loader(path, transforms=transforms, seed=99) as task:
        task.load_state_dict(state)
        after = by_index(task)
        assert not set(before) & set(after)
        assert_same(
            {**before, **after}, as_data_loader(dataset, 1, 1, transforms=transforms), range(70)
        )
        assert task.epoch == 2 and len(by_index(task)) == 70


def test_unreadable_samples_raise_and_the_others_come() -> None:
    with served(Bad(40)) as path, loader(path) as task:
        found, errors, epoch = [], 0, iter(task)
        while not epoch.finished:
            try:
                found += arrays(next(epoch))[1].tolist()
            except DataError as error:
                assert "is cut short" in str(error)
                errors += 1
            except StopIteration:
                break
        assert 1 <= errors <= 4 and len(set(found)) == len(found) == 40 - 8 * errors


def test_unreadable_samples_are_left_out_where_that_is_asked_for() -> None:
    with served(Bad(40)) as path, loader(path, on_error="skip") as task:
        assert sorted(by_index(task)) == [i for i in range(40) if i % 10 != 5]
        assert task.stats().skipped == 4


def test_errors_keep_their_kind() -> None:
    dataset = Bad(9)
    dataset.worse = True
    with (
        served(dataset) as path,
        loader(path, on_error="skip", indices=[7]) as task,
        pytest.raises(KeyError, match="seven"),
    ):
        next(iter(task))


def test_a_loader_starts_the_server_and_the_last_one_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with folder() as place:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
        before, dataset = Leftovers(), Images(30)
        with (
            loader(dataset, task="a", num_workers=1) as first,
            loader(Images(30), task="b") as second,
        ):
            assert first.server_status()["pid"] == second.server_status()["pid"]
            for task in (first, second):
                assert_same(by_index(task), as_data_loader(dataset, 1, 0), range(30))
        before.assert_none()


def test_what_is_refused() -> None:
    with served(Images(20)) as path, loader(path, task="mine"):
        with pytest.raises(DataError, match="is already registered"):
            loader(path, task="mine")
        with pytest.raises(IndexError, match=r"\[-20, 20\)"):
            loader(path, indices=[3, 25])
        with pytest.raises(ValueError, match="no duplicates"):
            loader(path, indices=[3, 3])
        with pytest.raises(ValueError, match="must be a 1-D list of ints"):
            loader(path, indices=[True, False])
        with pytest.raises(ValueError, match="use DataLoader"):
            loader(path, shuffle=False)
        with pytest.raises(ValueError, match="needle's own"):
            loader(path, share="prepared", transforms=[abs])
        with pytest.raises(ValueError, match="a server that this loader starts"):
            loader(path, num_workers=2)
        with pytest.raises(ValueError, match="fallback=dataset"):
            loader(path, fallback=True)
        with pytest.raises(ValueError, match="draw random numbers"):
            loader(data.ArrayDataset(np.zeros((4, 8, 8, 3)), transforms=[data.RandomCrop(2)]))
        with pytest.raises(DataError, match="different data set"):
            loader(Images(21), name=str(path))
    with pytest.raises(LoaderServerError, match="no server listens"):
        loader(path.parent / "nobody.sock")
