"""Test real object stores: uploaded data sets are read back intact, even with faults.

Run by make test-all and make test-s3.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needle import data
from needle.errors import DataError, StoreError
from needle.remote.catalogue import INDEX
from needle.remote.retry import ObjectMissing
from needle.remote.store import Store, Wanted
from tests.remote.loopback_store import LoopbackStore

RETRY = data.Retry(tries=4, timeout=20.0, wait=0.05, longest_wait=0.2)
NOTHING_KEPT = data.ObjectCache(limit=0)


def images(count: int = 10) -> Any:
    pixels = np.random.default_rng(2).integers(0, 256, (count, 6, 5, 3), dtype=np.uint8)
    made = data.ImageArrays(pixels, np.arange(count) % 3, layout="HWC", dtype="uint8")
    made.classes = ("ant", "bee", "c & d é#")  # type: ignore[attr-defined]
    return made


def batches(dataset: Any, **options: Any) -> list[bytes]:
    transforms = [data.RandomFlipHorizontal(), data.ToFloat(), data.ToCHW()]
    with data.DataLoader(
        dataset, 8, shuffle=True, seed=5, transforms=transforms, **options
    ) as loader:
        return [part.numpy().tobytes() for batch in loader for part in batch]


def opened(url: str, **options: Any) -> Any:
    made = {"layout": "HWC", "dtype": "uint8", "retry": RETRY, "cache": NOTHING_KEPT}
    return data.open_remote(url, **{**made, **options})


def test_images_through_faults(proxy: LoopbackStore) -> None:
    local, url = images(), "s3://needle/images"
    proxy.faults = {"/7.png": [503], f"/{INDEX}": ["reset"]}
    data.upload(local, url, retry=RETRY, progress=False)
    assert not any(proxy.faults.values())
    proxy.puts.clear()
    data.upload(local, url, retry=RETRY, progress=False)
    assert len(proxy.puts) == 1  # ETags showed that only the index was missing
    proxy.gets.clear()
    dataset, want = opened(url), batches(local)
    faults: list[Any] = ["reset", 503, "truncated", "short", "wrong"]
    proxy.faults = {f"/{i}.png": [fault] for i, fault in enumerate(faults)}
    assert batches(dataset) == want and len(proxy.gets) == 1 + 10 + len(faults)


@pytest.mark.s3
def test_workers_have_clients_of_their_own(proxy: LoopbackStore) -> None:
    local, url = images(), "s3://needle/workers"
    data.upload(local, url, retry=RETRY, progress=False)
    dataset = opened(url)
    want = batches(dataset)
    assert batches(dataset, num_workers=2) == want == batches(local)


@pytest.mark.s3
def test_a_listing_is_enough(proxy: LoopbackStore, tmp_path: Path) -> None:
    data.upload(images(), tmp_path / "set", progress=False)
    store = Store("s3://needle/listed", RETRY)
    files = list((tmp_path / "set").rglob("*.png"))
    there = [(str(path.relative_to(tmp_path / "set")), path.read_bytes()) for path in files]
    store.put(there)
    local = data.ImageFolder(tmp_path / "set", layout="HWC", dtype="uint8")
    assert batches(opened("s3://needle/listed")) == batches(local)


def test_shards_by_ranges(
    proxy: LoopbackStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, url = images(60), "s3://needle/packed"
    data.upload(local, url, packed=True, samples_per_shard=30, retry=RETRY, progress=False)
    proxy.gets.clear()
    proxy.faults = {"/shard-00001.arrow": ["truncated", "wrong"]}
    dataset = opened(url, cache=data.ObjectCache(tmp_path / "whole"))
    assert batches(dataset) == batches(dataset) == batches(local)
    assert len(proxy.gets) == 1 + 2 + 2
    monkeypatch.setattr("needle.remote.remote_packed.PIECE", 1000)
    assert batches(opened(url, cache=data.ObjectCache(tmp_path / "ranges"))) == batches(local)
    assert sum(wanted is not None for _, wanted in proxy.gets) >= 6


def test_what_the_store_refuses(proxy: LoopbackStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store("s3://needle/some", RETRY)
    store.put([("a b#.txt", b"content")])
    (row,) = store.listing()
    assert (row.name, row.size) == ("a b#.txt", 7)
    assert store.get([Wanted(row.name, 7, etag=row.etag)]) == [b"content"]
    assert store.get([Wanted(row.name, 7, 2, 5)]) == [b"nte"]
    with pytest.raises(ObjectMissing, match="attempt 1 of 4"):
        store.get([Wanted("none")])
    store.put([("a b#.txt", b"another")])
    with pytest.raises(DataError, match=r"attempt 1 of 4; it has changed"):
        store.get([Wanted(row.name, 7, etag=row.etag)])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError, match=r"status 403.*attempt 1 of 4; check the credentials"):
        Store("s3://needle/some", RETRY).get([Wanted(row.name)])
