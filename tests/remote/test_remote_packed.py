"""Test that RemotePacked fetches shards once, by ranges, and reads like PackedDataset."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needle import data
from needle.errors import DataError
from needle.remote import remote_packed as packed_module
from tests.remote.loopback_store import LoopbackStore

from .conftest import QUICK, uploaded

pytest.importorskip("pyarrow")


def images(count: int = 60) -> data.ImageArrays:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (count, 6, 5, 3), dtype=np.uint8)
    made = data.ImageArrays(pixels, np.arange(count) % 7, layout="HWC", dtype="uint8")
    made.classes = tuple("abcdefg")  # type: ignore[attr-defined]
    return made


def batches(dataset: Any, **options: Any) -> list[bytes]:
    transforms = [data.RandomFlipHorizontal(), data.ToFloat(), data.ToCHW()]
    made = {"shuffle": True, "seed": 5, "transforms": transforms, **options}
    with data.DataLoader(dataset, 32, **made) as loader:
        return [part.numpy().tobytes() for batch in loader for part in batch]


def test_ten_times_fewer_requests_for_the_same_batches(
    store: LoopbackStore, tmp_path: Path
) -> None:
    local = images()
    data.upload(local, "s3://bucket/packed", packed=True, samples_per_shard=15, progress=False)
    store.gets.clear()
    shards = data.open_remote("s3://bucket/packed", retry=QUICK)
    assert isinstance(shards, data.RemotePacked) and shards.classes == local.classes
    assert shards.layout == "HWC" and len(shards) == 60
    want = batches(local)
    for _ in range(2):  # the second epoch reads the local cache
        assert batches(shards) == want
        assert len(store.gets) == 1 + 4  # the index and each shard, once
    store.objects.update(uploaded(local, tmp_path / "images", "bucket/images"))
    single = data.open_remote(
        f"{store.endpoint}/bucket/images",
        retry=QUICK,
        layout="HWC",
        dtype="uint8",
        cache=data.ObjectCache(limit=0),
    )
    store.gets.clear()
    assert batches(single) == want and len(store.gets) == 60 >= 10 * (1 + 4)
    np.testing.assert_array_equal(shards[-1][0], local[59][0])
    assert batches(shards, num_workers=2, engine="threads") == want


def test_a_large_shard_comes_in_ranges(
    store: LoopbackStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.upload(images(), "s3://bucket/set", packed=True, samples_per_shard=60, progress=False)
    size = len(store.objects["bucket/set/shard-00000.arrow"])
    monkeypatch.setattr(packed_module, "PIECE", 1024)
    monkeypatch.setattr(packed_module, "WINDOW", 3)
    store.gets.clear()
    store.faults = {".arrow": [None, "truncated", 503, "short"]}
    dataset = data.open_remote(f"{store.endpoint}/bucket/set", retry=QUICK)
    np.testing.assert_array_equal(dataset.fetch(np.array([50, 3]))[0], images().images[[50, 3]])
    asked = sorted({wanted for _, wanted in store.gets[1:] if wanted})
    want = [f"bytes={at}-{min(at + 1024, size) - 1}" for at in range(0, size, 1024)]
    assert asked == sorted(want) and len(store.gets) == 1 + len(want) + 3

    # a range has no checksum, so the shard is fetched again
    store.faults = {".arrow": [None, "wrong"]}
    store.gets.clear()
    cold = data.ObjectCache(tmp_path / "cold")
    again = data.open_remote(f"{store.endpoint}/bucket/set", retry=QUICK, cache=cold)
    np.testing.assert_array_equal(again.fetch(np.array([50, 3]))[0], images().images[[50, 3]])
    assert len(store.gets) == 1 + 2 * len(want)


def test_image_files_of_several_sizes(store: LoopbackStore, folder: Path) -> None:
    local = data.ImageFolder(folder, layout="HWC", dtype="uint8")
    data.upload(local, folder.parent / "set", packed=True, samples_per_shard=7, progress=False)
    dataset = data.open_remote(folder.parent / "set", retry=QUICK)
    resize = {"transforms": [data.Resize((6, 6)), data.ToCHW()]}
    assert batches(dataset, **resize) == batches(local, **resize)


def test_a_shard_is_fetched_once_by_all_who_want_it(store: LoopbackStore) -> None:
    data.upload(images(), "s3://bucket/set", packed=True, samples_per_shard=15, progress=False)
    url = f"{store.endpoint}/bucket/set"
    datasets = [data.open_remote(url, retry=QUICK) for _ in range(4)]
    store.delay = 0.05
    store.gets.clear()

    def fetch(dataset: Any, start: int) -> list[int]:
        order = np.roll(np.arange(0, 60, 10), start)
        return np.sort(dataset.fetch(order)[1]).tolist()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(fetch, datasets, range(4)))
    assert len(store.gets) == 4 and found == [sorted(range(0, 60, 10) % np.int64(7))] * 4


def test_damage_and_lack_of_room(store: LoopbackStore, tmp_path: Path) -> None:
    data.upload(images(), "s3://bucket/set", packed=True, samples_per_shard=15, progress=False)
    url = f"{store.endpoint}/bucket/set"
    dataset = data.RemotePacked(url, retry=QUICK)
    want = dataset.fetch(np.arange(60))
    for entry in dataset.cache.root.glob("??/*"):  # zeros, as after a crash of the machine
        entry.write_bytes(bytes(entry.stat().st_size))
    store.gets.clear()
    again = data.RemotePacked(url, retry=QUICK)
    np.testing.assert_array_equal(again.fetch(np.arange(60))[0], want[0])
    assert len(store.gets) == 1 + 4
    one = 16 + max(len(content) for content in store.objects.values())
    tight = data.ObjectCache(tmp_path / "tight", limit=one)
    narrow = data.RemotePacked(url, retry=QUICK, cache=tight)
    np.testing.assert_array_equal(narrow.fetch(np.arange(0, 60, 13))[0], want[0][::13])
    assert sum(path.stat().st_size for path in tight.root.glob("??/*")) <= one
    with pytest.raises(DataError, match="must have room for an object of"):
        data.RemotePacked(url, retry=QUICK, cache=data.ObjectCache(tmp_path, limit=9))[0]
    store.objects["bucket/set/shard-00002.arrow"] = store.objects["bucket/set/shard-00001.arrow"]
    wrong = data.RemotePacked(url, retry=QUICK, cache=data.ObjectCache(tmp_path / "new"))
    with pytest.raises(DataError, match=r"shard-00002\.arrow: .*MD5.*upload it again"):
        wrong[35]
