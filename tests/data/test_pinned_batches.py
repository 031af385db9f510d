"""SHA-256 digests of the batches of many loader settings, stored in ``pinned_batches.json``.

A change of the code must leave every digest as it is. All runs of one row (inline, threads,
processes) share one digest, so the table also proves that their batches are equal. A row in
``DECODED`` holds JPEG pixels: with another decoder than the stored one its runs are compared with
the inline run instead. To write the table anew after an intended change:
``NEEDLE_PIN=1 python -m pytest -n 0 tests/data/test_pinned_batches.py``.
"""

import hashlib
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from needle import data
from needle.errors import DataError, LoaderServerError

TABLE = Path(__file__).with_name("pinned_batches.json")
PIN = bool(os.environ.get("NEEDLE_PIN"))
PINNED: dict[str, Any] = json.loads(TABLE.read_text()) if TABLE.exists() else {}


def pixels(count: int, height: int = 12, width: int = 10, seed: int = 0) -> Any:
    return np.random.RandomState(seed).randint(0, 256, (count, height, width, 3)).astype(np.uint8)


IMAGES, LABELS = pixels(41), np.arange(41)
LARGE = pixels(16, 40, 52, 1)


class Point(NamedTuple):
    x: Any
    label: int


class Samples(data.Dataset):
    """A data set of samples made by the method named ``kind``, read one by one."""

    def __init__(self, kind: str, length: int = 29) -> None:
        super().__init__()
        self.kind, self.length = kind, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return getattr(self, self.kind)(index)

    def drawing(self, index: int) -> Any:
        return IMAGES[index], index, data.random_source.random_source().rand()

    def mapping(self, index: int) -> Any:
        return {"name": f"sample {index}", "x": np.float32(index), "n": (index, [index / 2])}

    def point(self, index: int) -> Any:
        return Point(IMAGES[index, :2, :2], index)

    def caption(self, index: int) -> Any:
        return IMAGES[index], index, "ä" * index, b"b" * index

    def sized(self, index: int) -> Any:
        return LARGE[index % 16, : 20 + index % 9, : 30 + index % 7], index

    def sequence(self, index: int) -> Any:
        return np.arange(index % 7, dtype=np.int64), index

    def failing(self, index: int) -> Any:
        if index % 5 == 3:
            raise DataError(f"sample {index} is cut short")
        return np.float32(index), index, b"byte" * index


class Shards(data.IterableDataset):
    """A stream of three unequal shards; a sample is an image and a random number."""

    def __init__(self) -> None:
        super().__init__(3)

    def iter_shard(self, shard: int, epoch: int, start: int) -> Iterator[Any]:
        for place in range(start, (7, 0, 12)[shard]):
            index = 13 * shard + place
            yield IMAGES[index], index + epoch, data.random_source.random_source().rand()


class Noise(data.Transform):
    """A transform that adds an offset from one of the three sources of random numbers."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self, image: Any) -> Any:
        if self.source == "random":
            return image + np.float32(random.random())
        own = self.source == "own"
        return image + np.float32((data.random_source.random_source() if own else np.random).rand())


def padded(samples: list[Any]) -> Any:
    rows = np.zeros((len(samples), max(len(sample[0]) for sample in samples)), np.int64)
    for row, (values, _) in zip(rows, samples):
        row[: len(values)] = values
    return rows, np.array([number for _, number in samples])


def rows(**options: Any) -> Any:
    return data.ArrayDataset(IMAGES, LABELS, **options)


def images(**options: Any) -> Any:
    return data.ImageArrays(IMAGES, LABELS, **options)


@lru_cache(maxsize=1)
def files() -> Path:
    """Create a folder of PNG and JPEG images, NumPy files, packed files and tars."""
    image = pytest.importorskip("PIL.Image")
    folder = FOLDERS[0]
    for i in range(18):
        for ending in ("png", "jpg"):
            path = folder / ending / "abc"[i % 3] / f"{i:02d}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(LARGE[i % 16, :, i:]).save(path)
    np.save(folder / "images.npy", IMAGES)
    np.save(folder / "labels.npy", LABELS)
    return folder


FOLDERS: list[Path] = []


def packed(dataset: Any, name: str, **options: Any) -> Any:
    pytest.importorskip("pyarrow")
    if options.get("encode") == "jpeg":
        pytest.importorskip("simplejpeg")
    return data.PackedDataset(data.pack(dataset, files() / name, progress=False, **options))


def tars() -> Any:
    paths = data.write_tar_shards(rows(), files() / "train-%02d.tar", 14)
    return data.TarShards(paths, ["png", "cls"])


FLOATS = [data.ToFloat(), data.ToCHW()]
RESIZE = [data.Resize((9, 7)), *FLOATS]
AUGMENT = [data.RandomCrop(2), data.RandomFlipHorizontal(), *FLOATS]
TRANSFORMS: dict[str, list[Any]] = {
    "crop and flips": [data.RandomCrop(2), data.RandomFlipHorizontal(), data.RandomFlipVertical()],
    "pad and centre": [data.Pad((1, 3), 7.0), data.CenterCrop(9), data.Permute((1, 0, 2))],
    "resize": RESIZE,
    "resize nearest": [data.Resize(15, method="nearest"), data.CenterCrop(14)],
    "resized crop": [data.RandomResizedCrop(8), *FLOATS],
    "affine": [data.RandomAffine(20, 0.2, (0.7, 1.4), 10), data.ToFloat()],
    "rotation": [data.ToFloat(), data.RandomRotation(30, fill=0.5)],
    "colour": [data.ColorJitter(0.4, 0.4, 0.4, 0.1), data.RandomBrightnessContrast(p=0.8)],
    "colour of floats": [data.ToFloat(), data.ColorJitter(0.4, 0.4, 0.4, 0.1)],
    "erasing": [data.RandomErasing(0.7), data.Cutout(3, 0.5, 9.0)],
    "normalize": [data.Normalize((9.0, 5.0, 7.0), (3.0, 2.0, 4.0)), data.ToCHW()],
    "one of": [data.OneOf([data.RandomFlipVertical(), data.Cutout(2), data.RandomCrop(1)], 0.8)],
    "own callable": [data.RandomCrop(1), Noise("own"), data.RandomFlipHorizontal(), data.ToCHW()],
}


class Row(NamedTuple):
    """Options of a loader, created anew for each run, and the names of the runs."""

    make: Callable[[], dict[str, Any]]
    runs: str
    first_epoch: int


RUNS: dict[str, dict[str, Any]] = {
    "inline": {},
    **{f"threads{n}": {"engine": "threads", "num_workers": n} for n in (1, 2, 3)},
    **{f"processes{n}": {"num_workers": n} for n in (1, 2, 3)},
}
QUICK = "inline threads1 threads2 threads3"
ALL = f"{QUICK} processes2"
MOST = f"{QUICK} processes1 processes3"


def row(dataset: Callable[[], Any], runs: str = QUICK, first_epoch: int = 0, **options: Any) -> Row:
    """Return a row; samplers are passed as functions, because a sampler counts its passes."""

    def make() -> dict[str, Any]:
        own = {"seed": 7} if "batch_sampler" in options else {"seed": 7, "batch_size": 6}
        found = {"dataset": dataset(), **own, **options}
        for name in {"sampler", "batch_sampler"} & set(found):
            found[name] = found[name]()
        return found

    return Row(make, runs, first_epoch)


def samples(kind: str) -> Callable[[], Any]:
    return lambda: Samples(kind)


def mixed() -> Any:
    return data.Subset(data.ConcatDataset(rows(), data.Subset(rows(), [1, 5])), range(3, 43, 2))


def flipped() -> Any:
    return images(transforms=[data.RandomFlipHorizontal(), data.RandomCrop(1)])


def buckets() -> Any:
    return data.LengthBucketBatchSampler([i % 7 for i in range(29)], 4, seed=1)


def ranks() -> Any:
    return data.DistributedSampler(41, 2, 3, True, seed=5, valid_mask=True)


def unique() -> Any:
    return data.WeightedRandomSampler(LABELS, 30, False, seed=3)


GLOBAL = [Noise("global"), Noise("random")]
ROWS: dict[str, Row] = {
    "arrays": row(rows, shuffle=True),
    "in order": row(rows),
    "another seed": row(rows, shuffle=True, seed=2**63 + 5),
    "dropped last": row(rows, shuffle=True, drop_last=True),
    "augmented": row(rows, MOST, shuffle=True, transforms=AUGMENT),
    "from epoch 5": row(rows, first_epoch=5, shuffle=True, transforms=AUGMENT),
    "augmented in main": row(rows, ALL, shuffle=True, transforms=AUGMENT, augment="main"),
    "images": row(images, shuffle=True),
    "images, bytes": row(lambda: images(layout="HWC", dtype="uint8")),
    "images, own transforms": row(flipped),
    "two lists": row(lambda: rows(transforms=[data.RandomCrop(1)]), transforms=AUGMENT),
    "subset": row(lambda: data.Subset(rows(), range(3, 33, 2)), transforms=AUGMENT),
    "concatenated": row(mixed, shuffle=True, transforms=AUGMENT),
    "digits": row(lambda: data.Digits(False), shuffle=True, batch_size=64),
    "sampler": row(rows, sampler=lambda: [5, 3, 3, -1, 40, 0, 7, 8]),
    "weighted": row(rows, sampler=lambda: data.WeightedRandomSampler(LABELS + 1.0, 30, seed=3)),
    "weighted, once each": row(rows, sampler=unique),
    "part": row(rows, sampler=lambda: data.SubsetRandomSampler(range(9, 30), seed=4)),
    "ranks": row(rows, sampler=ranks),
    "buckets": row(samples("sequence"), ALL, batch_sampler=buckets, collate=padded),
    "batches": row(rows, batch_sampler=lambda: data.BatchSampler(data.RandomSampler(41, 9), 5)),
    "by sample": row(samples("drawing"), ALL, shuffle=True, transforms=AUGMENT),
    "dicts and text": row(samples("mapping"), ALL, shuffle=True),
    "named tuples": row(samples("point"), transforms=FLOATS),
    "many sizes": row(samples("sized"), transforms=TRANSFORMS["resized crop"]),
    "ragged": row(samples("sequence"), shuffle=True, collate=padded),
    "skipped": row(samples("failing"), ALL, shuffle=True, on_error="skip"),
    "mixed up": row(rows, transforms=[*FLOATS, data.MixUp(1.0, 41), data.CutMix()]),
    "stream": row(Shards, ALL, batch_size=4, transforms=AUGMENT),
    "stream, dropped last": row(Shards, batch_size=5, drop_last=True),
    "course": row(rows, "inline", shuffle=True, seed=None, transforms=AUGMENT),
    "course, global draws": row(rows, "inline", shuffle=True, seed=None, transforms=GLOBAL),
    "unseeded": row(rows, "threads1 threads3", shuffle=True, seed=None, transforms=AUGMENT),
    "global draws": row(rows, "processes1 processes2", shuffle=True, transforms=GLOBAL),
    "npy": row(lambda: data.NpyDataset(files() / "images.npy", files() / "labels.npy")),
    "png": row(lambda: data.ImageFolder(files() / "png"), shuffle=True, batch_size=1),
    "jpeg": row(lambda: data.ImageFolder(files() / "jpg", layout="HWC"), ALL, transforms=RESIZE),
    "packed": row(lambda: packed(rows(), "raw"), ALL, transforms=AUGMENT),
    "packed text": row(lambda: packed(Samples("caption"), "text"), shuffle=True),
    "packed jpeg": row(lambda: packed(rows(), "jpeg", encode="jpeg"), transforms=RESIZE),
    "tars": row(tars, ALL, transforms=AUGMENT),
    **{f"transforms: {n}": row(rows, transforms=t) for n, t in TRANSFORMS.items()},
}
DECODED = ("jpeg", "packed jpeg")


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    FOLDERS[:] = [tmp_path_factory.mktemp("pinned")]
    files.cache_clear()
    yield
    if PIN:
        TABLE.write_text(json.dumps(PINNED, indent=1, sort_keys=True) + "\n")


def loader(name: str, run: str) -> Any:
    np.random.seed(3)
    random.seed(3)
    found = data.DataLoader(**ROWS[name].make(), **RUNS[run])
    if ROWS[name].first_epoch:
        found.set_epoch(ROWS[name].first_epoch)
    return found


def feed(hasher: Any, value: Any) -> Any:
    """Feed ``hasher`` the containers, and the type, shape, dtype and bytes of every leaf."""
    hasher.update(type(value).__name__.encode())
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        hasher.update(f"{value.dtype.str}{value.shape}".encode() + value.tobytes())
    elif isinstance(value, (tuple, list)):
        hasher.update(str(len(value)).encode())
        for each in value:
            feed(hasher, each)
    elif isinstance(value, dict):
        feed(hasher, list(value.items()))
    else:
        hasher.update(repr(value).encode())
    return hasher


def digest(value: Any) -> str:
    return str(feed(hashlib.sha256(), value).hexdigest())


def decoders() -> str:
    names = {each.metadata["Name"].lower(): each.version for each in metadata.distributions()}
    return ", ".join(f"{name} {names.get(name)}" for name in ("pillow", "simplejpeg"))


def epochs(source: Any, count: int = 2) -> list[Any]:
    return [batch for _ in range(count) for batch in source]


def check(name: str, found: Any) -> None:
    """Compare with the stored digest, or store it if that was requested and none exists."""
    wanted = PINNED.get(name)
    if PIN and name not in WRITTEN:
        WRITTEN.add(name)
        wanted = PINNED[name] = found
        PINNED["decoders"] = decoders()
    elif name in DECODED and PINNED["decoders"] != decoders():
        with loader(name, "inline") as inline:
            wanted = digest(epochs(inline))
    assert found == wanted, f"{name}: pinned {wanted}, got {found}"


WRITTEN: set[str] = set()


PAIRS = [(name, run) for name, each in ROWS.items() for run in each.runs.split()]


@pytest.mark.parametrize("name, run", PAIRS)
def test_batches_are_the_pinned_ones(name: str, run: str) -> None:
    with loader(name, run) as source:
        check(name, digest(epochs(source)))


RESUMED = [
    ("augmented", "inline", "threads3"),
    ("augmented", "threads2", "processes2"),
    ("ranks", "threads1", "inline"),
    ("skipped", "inline", "threads2"),
    # the order of batches varies: workers may find a shard's end at any moment
    ("stream", "inline", "threads3"),
    ("mixed up", "inline", "threads2"),
    ("buckets", "threads2", "inline"),
]


@pytest.mark.parametrize("name, run, other", RESUMED)
def test_a_resumed_loader_gives_the_pinned_batches(name: str, run: str, other: str) -> None:
    with loader(name, run) as first, loader(name, other) as second:
        left = iter(first)
        batches = [next(left) for _ in range(3)]
        state = json.loads(json.dumps(first.state_dict()))
        check(f"state of {name}", state)
        second.load_state_dict(state)
        check(name, digest(batches + epochs(second)))


def by_index(batches: list[Any]) -> str:
    """Return a digest of samples sorted by label, i.e. by index: the server draws the order."""
    samples = [each for x, y in batches for each in zip(y.numpy().tolist(), x.numpy())]
    return digest(sorted(samples, key=lambda sample: sample[0]))


SHARED = {
    "shared": {"transforms": AUGMENT},
    "shared, prepared": {"transforms": RESIZE, "share": "prepared"},
}


def shared(name: str, seed: int = 7, **options: Any) -> Any:
    options = {"num_workers": 0, "timeout": 100, **SHARED[name], **options}
    return data.GlobalDataLoader(rows(), 6, seed=seed, **options)


@pytest.mark.parametrize("name", SHARED)
def test_samples_of_the_shared_loader_are_those_of_data_loader(name: str) -> None:
    transforms = SHARED[name]["transforms"]
    with data.DataLoader(rows(), 6, seed=7, transforms=transforms) as source:
        wanted = [by_index(list(source)) for _ in range(2)]
    check(name, wanted)
    with shared(name) as task:
        state = task.state_dict()
        check(f"state of {name}", state)
        assert [by_index(list(task)) for _ in range(2)] == wanted, name
        task.load_state_dict(state)  # resume the same epoch in the middle
        left = iter(task)
        batches = [next(left) for _ in range(3)]
        state = json.loads(json.dumps(task.state_dict()))
    with shared(name, seed=99) as task:
        task.load_state_dict(state)
        assert by_index(batches + list(task)) == wanted[0], name


@pytest.mark.parametrize("fallback", [True, False])
def test_samples_are_the_pinned_ones_when_the_server_is_killed(fallback: bool) -> None:
    with shared("shared", fallback=fallback) as task:
        left = iter(task)
        batches = [next(left)]
        os.kill(task.server_status()["pid"], signal.SIGKILL)
        while True:
            try:
                batches.append(next(left))
            except StopIteration:
                break
            except LoaderServerError:
                assert not fallback
        assert by_index(batches) == PINNED["shared"][0]
