"""Changes between epochs take effect in the next one, for any engine, or are refused."""

import tarfile
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from complaints.programs import engines

import needle
from needle import data


class Scale:
    """A factor that a data set, its transforms and its collate share."""

    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = 1


class Scaled(data.Dataset):
    """Sample i is i times several factors."""

    of_class = 1

    def __init__(self, rows: Any = range(6)) -> None:
        super().__init__()
        self.rows, self.factor, self.inner = rows, 1, Scale()
        self.table, self.several = {"factor": 1}, deque([1])
        self.array = np.ones((2, 3), order="F")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        known = self.table["factor"] * self.several[0] * int(self.array[1, 1]) * self.of_class
        return self.rows[index] * self.factor * self.inner.factor * known

    def __call__(self, value: Any) -> Any:
        return value * self.factor if np.isscalar(value) else np.stack(value) * self.factor


class Factor(data.Transform):
    """A transform with declared parameters, which may be cached."""

    def __init__(self) -> None:
        self.factor = 1

    def parameters(self, words: Any, sizes: Any, spec: Any = None) -> Any:
        return np.full((len(sizes), 1), self.factor, np.float64)

    def apply(self, image: Any, row: Any) -> Any:
        return image * np.float32(row[0])


def images() -> data.ImageArrays:
    return data.ImageArrays(np.ones((6, 2, 2, 3), np.uint8), np.arange(6), scale=1, layout="HWC")


def closing_over() -> tuple[Any, Any]:
    factor = 1

    def collate(samples: list[Any]) -> Any:
        return np.stack(samples) * factor

    def change() -> None:
        nonlocal factor
        factor = 10

    return {"dataset": Scaled(), "collate": collate}, change


def read_only() -> dict[str, Any]:
    view = np.arange(6).view()
    view.flags.writeable = False
    return {"dataset": Scaled(view)}


def setting(name: str, value: Any, *path: str) -> Any:
    """Return a case that sets an attribute of the object at the end of ``path`` in a data set."""

    def case() -> tuple[Any, Any]:
        found = dataset = Scaled()
        for step in path:
            found = getattr(found, step)
        return {"dataset": dataset}, lambda: setattr(found, name, value)

    return case


def changing(make: Any, change: Any) -> Any:
    """Return a case: ``change`` modifies the options that ``make`` returns."""

    def case() -> tuple[Any, Any]:
        options = make()
        return options, lambda: change(options)

    return case


CHANGES = {
    "attribute": setting("factor", 10),
    "attribute of an attribute": setting("factor", 10, "inner"),
    "attribute replaced": setting("several", deque([10])),
    "rows replaced": setting("rows", [5, 4, 3, 2, 1, 0]),
    "dict": changing(lambda: {"dataset": Scaled()}, lambda o: o["dataset"].table.update(factor=10)),
    "deque": changing(lambda: {"dataset": Scaled()}, lambda o: o["dataset"].several.appendleft(3)),
    "array": changing(lambda: {"dataset": Scaled()}, lambda o: o["dataset"].array.fill(10)),
    "array behind a read-only view": changing(
        read_only, lambda o: o["dataset"].rows.base.__setitem__(slice(None), 7)
    ),
    "list": changing(lambda: {"dataset": [0, 1, 2]}, lambda o: o["dataset"].__setitem__(1, 9)),
    "row of a list": changing(
        lambda: {"dataset": [{"x": 1}, {"x": 2}]}, lambda o: o["dataset"][1].update(x=9)
    ),
    "array of a list": changing(
        lambda: {"dataset": [np.zeros(2), np.zeros(2)]}, lambda o: o["dataset"][1].fill(9)
    ),
    "subset's data set": changing(
        lambda: {"dataset": data.Subset(Scaled(), [1, 3])},
        lambda o: setattr(o["dataset"].dataset, "factor", 10),
    ),
    "arrays in memory": changing(
        lambda: {"dataset": data.ArrayDataset(np.arange(6))},
        lambda o: o["dataset"].arrays[0].fill(7),
    ),
    "data set's transforms": changing(
        lambda: {"dataset": images()},
        lambda o: setattr(o["dataset"], "transforms", [lambda x: x + 3]),
    ),
    "transform": changing(
        lambda: {"dataset": Scaled(), "transforms": [Scaled()]},
        lambda o: setattr(o["transforms"][0], "factor", 10),
    ),
    "transform with parameters": changing(
        lambda: {"dataset": images(), "transforms": [Factor()]},
        lambda o: setattr(o["transforms"][0], "factor", 10),
    ),
    "collate": changing(
        lambda: {"dataset": Scaled(), "collate": Scaled()},
        lambda o: setattr(o["collate"], "factor", 10),
    ),
    "closure": closing_over,
    "grows": changing(lambda: {"dataset": [0, 1, 2]}, lambda o: o["dataset"].extend([3, 4, 5, 6])),
    "shrinks": changing(lambda: {"dataset": [0, 1, 2, 3, 4]}, lambda o: o["dataset"].pop()),
    "rows grow": changing(
        lambda: {"dataset": Scaled([1, 2])}, lambda o: o["dataset"].rows.extend([3, 4, 5])
    ),
    "joined set grows": changing(
        lambda: {"dataset": data.ConcatDataset([0, 1, 2], [3, 4])},
        lambda o: o["dataset"].datasets[0].append(9),
    ),
    "source of a sampler grows": changing(
        lambda: (lambda rows: {"dataset": rows, "sampler": data.RandomSampler(rows, 3)})([0, 1]),
        lambda o: o["dataset"].extend([2, 3, 4]),
    ),
    "batch sampler": changing(
        lambda: {"dataset": Scaled(), "batch_sampler": data.BatchSampler(range(6), 2)},
        lambda o: setattr(o["batch_sampler"], "batch_size", 3),
    ),
}


def plain(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    return [plain(x) for x in batch] if isinstance(batch, (tuple, list)) else batch.numpy().tolist()


def epoch(loader: Any) -> list[Any]:
    return [plain(batch) for batch in loader]


def loader_of(given: dict[str, Any], **options: Any) -> data.DataLoader:
    order = {} if {"sampler", "batch_sampler"} & given.keys() else {"shuffle": True}
    size = {} if "batch_sampler" in given else {"batch_size": 2}
    return data.DataLoader(**given, **order, **size, seed=4, **options)


@engines
@pytest.mark.parametrize("case", CHANGES.values(), ids=CHANGES)
def test_a_change_takes_effect_in_the_next_epoch(case: Any, options: dict[str, Any]) -> None:
    given, change = case()
    with loader_of(given, **options) as loader:
        before = [epoch(loader), epoch(loader)]
        change()
        third = epoch(loader)
    fresh = loader_of(given)
    wanted = [epoch(fresh) for _ in range(3)]
    assert third == wanted[2]
    assert before != wanted[:2]


def test_a_change_of_the_class_takes_effect_in_workers() -> None:
    class Local(Scaled):
        pass

    with loader_of({"dataset": Local()}, num_workers=1) as loader:
        first = epoch(loader)
        Local.of_class = 10
        loader.set_epoch(0)
        assert np.array_equal(epoch(loader), np.array(first) * 10)


def process_ids(loader: data.DataLoader) -> list[int]:
    return sorted(loader._engine.running().process_ids())  # type: ignore[attr-defined]


class Handles(Scaled):
    """A data set that opens an unpicklable handle when the first sample is read."""

    handle: Any = None

    def __getitem__(self, index: int) -> Any:
        self.handle = self.handle or threading.Lock()
        return super().__getitem__(index)


class OwnHandles(Handles):
    """A data set that does not send its handle to the workers."""

    def __getstate__(self) -> Any:
        return {**self.__dict__, "handle": None}


def test_workers_stay_if_nothing_that_they_got_has_changed() -> None:
    held = Scaled()
    held.tensor = needle.Tensor(np.zeros(1 << 14))  # type: ignore[attr-defined]
    for dataset in (Scaled(), held, OwnHandles(), images(), [np.ones(3), {"a": (1, "b")}, None]):
        with data.DataLoader(dataset, 1, num_workers=2) as loader:
            next(iter(loader))
            before = process_ids(loader)
            dataset[0]
            next(iter(loader))
            assert process_ids(loader) == before


def test_what_can_no_longer_be_sent_to_the_workers_is_told() -> None:
    dataset = Handles()
    with loader_of({"dataset": dataset}, num_workers=1) as loader:
        first = epoch(loader)
        dataset[0]
        with pytest.warns(RuntimeWarning, match=r"dataset.handle -> .* keep their copy"):
            assert len(epoch(loader)) == len(first)
        epoch(loader)  # warns only once


@pytest.mark.parametrize(
    "name, value",
    [
        ("batch_size", 2),
        ("transforms", []),
        ("shuffle", True),
        ("drop_last", True),
        ("collate", list),
        ("sampler", [1]),
        ("batch_sampler", [[1]]),
        ("dataset", [1]),
        ("seed", 3),
        ("num_workers", 2),
        ("device", None),
        ("timeout", 3),
    ],
)
def test_options_of_a_loader_cannot_be_set(name: str, value: Any) -> None:
    loader = data.DataLoader(list(range(6)), 3)
    with pytest.raises(
        AttributeError, match=f"{name} cannot be changed after the DataLoader has been created"
    ):
        setattr(loader, name, value)
    loader.note = "attributes of one's own can be set"  # type: ignore[attr-defined]
    assert epoch(loader) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "make, name, message",
    [
        (lambda: data.DataLoader([1]), "collate_fn", "use collate= of the loader"),
        (lambda: data.DataLoader([1]), "persistent_workers", "; leave it out, because workers"),
        (images, "transform", "use transforms= of the data set or"),
        (images, "targets", "set labels, if the data set has them"),
        (lambda: data.Subset(images(), [0]), "targets", "set labels, if the data set has them"),
        (lambda: data.Subset(images(), [0]), "transforms", "give them to the loader, or to a data"),
        (lambda: data.ConcatDataset(images()), "transforms", "give them to the loader, or to a da"),
    ],
)
def test_attributes_that_nothing_reads_cannot_be_set(make: Any, name: str, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        setattr(make(), name, [abs])
    own = type("Own", (type(make()),), {"__module__": __name__})
    setattr(own.__new__(own), name, [abs])  # a program's class may read it


class Wrapper(data.Dataset):
    """A data set that has the attributes of another one, and a transform of its own."""

    def __init__(self, inner: Any) -> None:
        self.transform, self.inner = None, inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def targets(self) -> Any:
        raise RuntimeError("read by an assignment")

    @targets.setter
    def targets(self, values: Any) -> None:
        self.labels = values


def test_a_program_s_data_set_may_have_attributes_of_any_name() -> None:
    wrapper = Wrapper(images())
    wrapper.targets = [1]
    assert wrapper.transform is None and wrapper.labels == [1] and wrapper.layout is None
    dataset: Any = images()
    for name in ("verbose", "dim", "input", "pad", "target"):
        setattr(dataset, name, 1)


class Own(data.DataLoader):
    """A loader whose class uses the names of the loader's internals and of another loader."""

    def __init__(self, dataset: Any, **options: Any) -> None:
        self.collate_fn = self.pipeline = None
        super().__init__(dataset, **options)
        self.stream = self.order = self.pipeline = self.batch_transforms = object()
        self.task = self.indices = self.share = None


def test_a_program_s_loader_may_have_attributes_of_any_name_but_an_option() -> None:
    loader = Own([1, 2, 3], batch_size=2)
    assert epoch(loader) == [[1, 2], [3]] and len(loader) == 2
    with pytest.raises(AttributeError, match="Own: batch_size cannot be changed .*another Own"):
        loader.batch_size = 3


def test_the_files_of_a_data_set_stay_those_that_were_opened(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.zeros(2))
    tarfile.open(tmp_path / "x.tar", "w").close()
    data.pack([(1,)], tmp_path / "x.arrow", progress=False)
    mapped, tar = data.NpyDataset(tmp_path / "x.npy"), data.TarShards([tmp_path / "x.tar"])
    packed = data.PackedDataset(tmp_path / "x.arrow")
    for dataset, name in ((mapped, "paths"), (tar, "paths"), (tar, "fields"), (packed, "path")):
        with pytest.raises(AttributeError, match=f"{name} cannot be changed after .*make another"):
            setattr(dataset, name, getattr(dataset, name))


def test_a_program_s_data_set_may_have_paths_of_its_own(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.zeros(2))
    tarfile.open(tmp_path / "x.tar", "w").close()
    data.pack([(1,)], tmp_path / "x.arrow", progress=False)
    for kind, place, name in (
        (data.NpyDataset, tmp_path / "x.npy", "paths"),
        (data.TarShards, [tmp_path / "x.tar"], "paths"),
        (data.TarShards, [tmp_path / "x.tar"], "fields"),
        (data.PackedDataset, tmp_path / "x.arrow", "path"),
    ):
        own: Any = type("Own", (kind,), {"__module__": __name__})
        dataset = own.__new__(own)
        setattr(dataset, name, "mine")
        dataset.__init__(place)
        assert getattr(dataset, name) != "mine"
        setattr(dataset, name, "mine")
        assert getattr(dataset, name) == "mine"


@engines
def test_a_set_that_grows_within_an_epoch_does_so_for_the_next(options: dict[str, Any]) -> None:
    rows = list(range(6000))
    with data.DataLoader(rows, 2, True, seed=0, **options) as loader:
        batches = iter(loader)
        seen = next(batches).numpy().tolist()
        rows.append(6000)
        seen += [i for batch in batches for i in batch.numpy().tolist()]
        assert sorted(seen) == list(range(6000))
        assert sorted(i for batch in loader for i in batch.numpy().tolist()) == rows


@engines
def test_two_threads_that_begin_at_once_get_whole_epochs(options: dict[str, Any]) -> None:
    with data.DataLoader(list(range(60)), 7, True, seed=1, **options) as loader:
        for _ in range(8):
            loader.set_epoch(0)
            start, found = threading.Barrier(3), list[Any]()

            def consume() -> None:
                start.wait()  # noqa: B023
                batches = iter(loader)
                found.append((batches.epoch, sorted(i for b in batches for i in plain(b))))  # noqa: B023

            with ThreadPoolExecutor(3) as threads:
                for _ in range(3):
                    threads.submit(consume)
            assert sorted(found) == [(number, list(range(60))) for number in range(3)]
