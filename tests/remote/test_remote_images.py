"""Test that RemoteImageFolder gives ImageFolder's batches, whatever faults the store has."""

import os
import pickle
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needle import data
from needle.data.formats.decoding import jpeg_region
from needle.errors import DataError, StoreError
from needle.remote.catalogue import INDEX
from needle.remote.retry import ObjectMissing
from tests.remote.loopback_store import LoopbackStore

from .conftest import QUICK, SECRET, Image

NOTHING_KEPT = data.ObjectCache(limit=0)


def batches(dataset: Any, **options: Any) -> list[bytes]:
    transforms = [data.Resize((8, 8)), data.RandomFlipHorizontal(), data.ToCHW()]
    made = {"shuffle": True, "seed": 3, "transforms": transforms, **options}
    with data.DataLoader(dataset, 8, **made) as loader:
        return [part.numpy().tobytes() for batch in loader for part in batch]


def opened(url: str, **options: Any) -> data.RemoteImageFolder:
    return data.RemoteImageFolder(
        url, **{"layout": "HWC", "cache": NOTHING_KEPT, "retry": QUICK, **options}
    )


def test_the_batches_are_those_of_the_folder(store: LoopbackStore, folder: Path) -> None:
    local = data.ImageFolder(folder, layout="HWC")
    data.upload(local, "s3://bucket/set", retry=QUICK, progress=False)
    indexed = opened("s3://bucket/set")
    del store.objects[f"bucket/set/{INDEX}"]
    store.objects["bucket/set/ant/.hidden.png"] = store.objects["bucket/set/notes.txt"] = b"x"
    store.page = 7
    listed = opened("s3://bucket/set")
    want = batches(local)
    store.gets.clear()
    for dataset in (indexed, listed):
        assert dataset.classes == local.classes and len(dataset) == 30
        assert list(dataset.paths) == list(local.paths)
        assert batches(dataset) == want
    assert len(store.gets) == 60  # one request per sample, no others and none repeated
    assert batches(indexed, num_workers=2, engine="threads") == want
    image, label = listed[29]
    np.testing.assert_array_equal(image, local[29][0])
    assert label == local[29][1] and listed.encoded(4) == local.encoded(4)


def test_a_listing_leaves_out_what_a_folder_does(folder: Path) -> None:
    for place in ("", "bee", "bee/deep"):
        for hidden in (".cache", "__MACOSX", "@eaDir"):
            shutil.copytree(folder / "ant", folder / place / hidden / "ant")
    ours, here = data.open_remote(folder), data.ImageFolder(folder)
    assert ours.classes == here.classes and list(ours.paths) == list(here.paths)
    (folder / "bee" / "phone.HEIC").write_bytes(b"of another format")
    with pytest.warns(UserWarning, match="1 images are ignored, such as bee/phone.HEIC; convert"):
        assert len(data.open_remote(folder)) == len(ours)
    (folder / "eel").mkdir()
    (folder / "eel" / "x.heic").write_bytes(b"of another format")
    with pytest.raises(DataError, match="in the folders eel;"):
        data.open_remote(folder)


@pytest.mark.parametrize("packed", [False, True])
def test_photographs_are_upright(folder: Path, tmp_path: Path, packed: bool) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for path in folder.rglob("*.png"):
        Image.open(path).save(path, exif=exif)
    here = data.ImageFolder(folder, layout="HWC", dtype="uint8")
    encode = {"encode": "keep"} if packed else {}
    data.upload(here, tmp_path / "up", packed=packed, progress=False, **encode)
    options = {} if packed else {"layout": "HWC", "dtype": "uint8"}
    for oriented in (True, False):
        ours = data.open_remote(tmp_path / "up", oriented=oriented, **options)
        want = np.rot90(here[3][0], 0 if oriented else 1)
        np.testing.assert_array_equal(ours[3][0], want)
        assert want.shape == ((8, 9, 3) if oriented else (9, 8, 3))


@pytest.mark.parametrize("packed", [False, True])
def test_only_the_part_that_a_crop_reads_is_decoded(
    folder: Path, tmp_path: Path, packed: bool
) -> None:
    if jpeg_region() is None:
        pytest.skip("built without libjpeg-turbo")
    for path in list(folder.rglob("*.png")):
        noise = np.random.default_rng(len(path.name)).integers(0, 256, (64, 64, 3), np.uint8)
        Image.fromarray(noise).save(path.with_suffix(".jpg"))
        path.unlink()
    here = data.ImageFolder(folder, layout="HWC", dtype="uint8")
    encode = {"encode": "keep"} if packed else {}
    data.upload(here, tmp_path / "up", packed=packed, progress=False, **encode)
    options = {} if packed else {"layout": "HWC", "dtype": "uint8"}
    there = data.open_remote(tmp_path / "up", **options)
    crop = {"seed": 0, "transforms": [data.RandomCrop(size=9)]}
    loader = data.DataLoader(there, 4, **crop)
    assert "only the part of a JPEG" in loader.explain()
    got, want = next(iter(loader)), next(iter(data.DataLoader(here, 4, **crop)))
    np.testing.assert_array_equal(got[0].numpy(), want[0].numpy())


def test_relative_paths_outlive_chdir(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    cache = data.ObjectCache(Path("cache"))
    monkeypatch.setenv("NEEDLE_CACHE_DIR", "other")
    named = data.ObjectCache()
    ours = data.open_remote(folder.name, cache=cache, dtype="uint8")
    monkeypatch.chdir(folder)
    assert [each.root.parent for each in (cache, named)] == [folder.parent] * 2
    np.testing.assert_array_equal(ours[3][0], data.ImageFolder(folder, dtype="uint8")[3][0])
    assert sorted(path.name for path in folder.iterdir()) == ["ant", "bee", "cat"]


def test_images_of_one_size_are_stacked_as_samples_are(store: LoopbackStore, web: str) -> None:
    for options in ({"layout": "CHW"}, {"dtype": "uint8"}, {"mode": "L"}):
        dataset = opened(web, **options)
        images, labels = dataset.fetch(np.arange(10, 20))  # images of one class and of equal size
        one_by_one = data.default_collate([dataset[i] for i in range(10, 20)])
        for got, want in zip((images, labels), one_by_one):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


def test_several_requests_are_in_flight(
    store: LoopbackStore, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, together = opened(web), threading.Barrier(QUICK.in_flight)
    waited = store.waited

    def until_all_are_there(path: str, wanted: str | None) -> None:
        waited(path, wanted)
        together.wait(30)

    monkeypatch.setattr(store, "waited", until_all_are_there)
    dataset.fetch(np.arange(2 * QUICK.in_flight))
    assert not together.broken and store.most_at_once <= QUICK.in_flight == 8


def test_worker_processes_and_forks_make_clients_of_their_own(
    store: LoopbackStore, web: str, folder: Path
) -> None:
    dataset = opened(web)
    first = dataset.encoded(0)
    assert dataset.store._client is not None
    copy = pickle.dumps(dataset)
    assert SECRET.encode() not in copy and pickle.loads(copy).store._client is None
    assert batches(dataset, num_workers=2) == batches(data.ImageFolder(folder, layout="HWC"))
    child = os.fork()
    if child == 0:
        os._exit(0 if dataset.encoded(0) == first else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_faults_that_pass_are_tried_again(store: LoopbackStore, web: str) -> None:
    dataset = opened(web, retry=replace(QUICK, timeout=0.5))
    want = [dataset.encoded(i) for i in range(30)]
    store.gets.clear()
    faults = ("reset", 503, 429, "truncated", "wrong", "stall")
    store.faults = {dataset.paths[i]: [fault] for i, fault in enumerate(faults)}
    store.faults[dataset.paths[10]] = ["reset", 500, "wrong"]
    assert dataset._contents(range(30)) == [content for content, _ in want]
    assert len(store.gets) >= 30 + len(faults) + 3  # a busy machine may time out once more


CASES: list[tuple[list[Any], type[Exception], str]] = [
    ([403], StoreError, "status 403.*attempt 1 of 4; check the credentials: AWS_ACCESS_KEY_ID"),
    ([400], StoreError, "status 400.*attempt 1 of 4; the request cannot"),
    ([404], ObjectMissing, "status 404.*attempt 1 of 4; check the address, or upload"),
    ([503] * 4, StoreError, "status 503.*attempt 4 of 4; check the network.*AWS_ENDPOINT_URL"),
    (["reset"] * 9, StoreError, "attempt 4 of 4; check the network"),
    (["wrong"] * 4, DataError, "MD5.*attempt 4 of 4; the object is damaged: upload it again"),
    (["truncated"] * 4, StoreError, "attempt 4 of 4; check the network"),
]


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_errors_name_address_attempts_and_remedy(
    store: LoopbackStore, web: str, scheme: str
) -> None:
    dataset = opened(web if scheme == "http" else "s3://bucket/set")
    for faults, kind, words in CASES:
        store.faults = {dataset.paths[3]: list(faults)}
        with pytest.raises(kind, match=f"get {scheme}://.*{dataset.paths[3]}: .*{words}") as info:
            dataset.fetch(np.array([1, 3]))
        assert info.value.__needle_index__ == 3
        # The library itself retries once on a connection that was already open.
        assert "reset" in faults or not store.faults[dataset.paths[3]]


def test_an_object_that_changed_is_no_longer_the_data_set(store: LoopbackStore, web: str) -> None:
    del store.objects[f"bucket/set/{INDEX}"]
    dataset = opened("s3://bucket/set")
    store.objects[f"bucket/set/{dataset.paths[5]}"] = b"another"
    with pytest.raises(DataError, match=r"412.*attempt 1 of 4; it has changed since.*open it agai"):
        dataset[5]


def test_a_run_continues_through_a_lost_store(store: LoopbackStore, web: str) -> None:
    dataset = opened(web, retry=replace(QUICK, tries=200))
    want, seen = batches(dataset), []
    with data.DataLoader(
        dataset, 8, shuffle=True, seed=3, transforms=[data.Resize((8, 8)), data.ToCHW()]
    ) as loader:
        for i, batch in enumerate(loader):
            seen.append(batch)
            if i == 1:
                store.down = True
                threading.Timer(0.4, lambda: setattr(store, "down", False)).start()
    assert len(seen) == len(want) // 2
    refused = opened(web)
    store.down = True
    with pytest.raises(StoreError, match="attempt 4 of 4"):
        # an unreachable store is not a bad sample
        next(iter(data.DataLoader(refused, 8, on_error="skip")))


def test_a_retry_makes_at_least_one_attempt() -> None:
    with pytest.raises(ValueError, match="Retry: tries and in_flight must be at least 1"):
        data.Retry(tries=0)


def test_an_address_without_a_data_set_says_what_is_missing(store: LoopbackStore) -> None:
    with pytest.raises(StoreError, match="web server has no listings.*data.upload"):
        data.open_remote(f"{store.endpoint}/bucket/nothing")
    with pytest.raises(DataError, match="there is no data set"):
        data.open_remote("s3://bucket/nothing")


@pytest.mark.parametrize(
    "index",
    [b"no json", b"{}", b'{"needle": 2}']
    + [
        b'{"needle": 1, "kind": "images", "classes": ["a"], "layout": "HWC", "objects": [%s]}' % row
        for row in (
            b"",
            b'["../x.png", 1, "' + b"0" * 32 + b'", 0]',
            b'["x.png", -1, "' + b"0" * 32 + b'", 0]',
            b'["x.png", 1, "short", 0]',
            b'["x.png", 1, "' + b"0" * 32 + b'", 1]',
            b'[7, 1, "' + b"0" * 32 + b'", 0]',
            b",".join(b'["x.png", 1, "' + digit * 32 + b'", 0]' for digit in (b"0", b"1")),
        )
    ],
)
def test_an_index_is_checked(store: LoopbackStore, index: bytes) -> None:
    store.objects[f"bucket/set/{INDEX}"] = index
    with pytest.raises(DataError, match="needle-index.json: not an index of a data set"):
        data.open_remote(f"{store.endpoint}/bucket/set", retry=QUICK)
