"""Test upload: the objects it writes, resuming after an interruption, and what it refuses."""

import http.server
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from needle import data
from needle.errors import DataError, StoreError
from needle.remote import uploading
from needle.remote.catalogue import INDEX
from tests.remote.loopback_store import LoopbackStore

from .conftest import QUICK


def test_it_goes_on_where_it_was_interrupted(store: LoopbackStore, folder: Path) -> None:
    local = data.ImageFolder(folder)
    store.faults = {local.paths[20]: [403]}
    with pytest.raises(StoreError, match=r"put s3://bucket/set/.*attempt 1 of 4; check the creden"):
        data.upload(local, "s3://bucket/set", retry=QUICK, progress=False)
    assert f"bucket/set/{INDEX}" not in store.objects  # without an index the set is incomplete
    there = {f"/{name}" for name in store.objects}
    store.puts.clear()
    store.faults = {local.paths[20]: [503, "reset"]}
    data.upload(local, "s3://bucket/set", retry=QUICK, progress=True)
    assert there and store.puts.count(f"/bucket/set/{local.paths[20]}") >= 3
    assert not there & set(store.puts)
    store.puts.clear()
    data.upload(local, "s3://bucket/set", retry=QUICK, progress=False)
    assert store.puts == [f"/bucket/set/{INDEX}"]
    for i in range(30):
        assert store.objects[f"bucket/set/{local.paths[i]}"] == local.encoded(i)[0]


def test_arrays_become_png_in_the_order_they_have(store: LoopbackStore, tmp_path: Path) -> None:
    digits = data.Digits(train=False, layout="HWC")
    few = data.Subset(digits, np.arange(20))
    with pytest.raises(TypeError, match="without classes; set dataset.classes"):
        data.upload(data.ArrayDataset(digits.images), tmp_path / "set", progress=False)
    data.upload(few, tmp_path / "set", retry=QUICK, progress=False)
    remote = data.open_remote(tmp_path / "set", retry=QUICK, layout="HWC", mode="L")
    for i in range(20):
        (got, label), (image, true) = remote[i], few[i]
        np.testing.assert_allclose(got, image, atol=0.5 / 255 + 1e-6)
        assert label == true


def test_a_folder_that_any_web_server_hands_out(folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    data.upload(data.ImageFolder(folder), site / "set", progress=False)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        remote = data.open_remote(
            f"http://127.0.0.1:{server.server_port}/set",
            retry=QUICK,
            cache=data.ObjectCache(limit=0),
        )
        local = data.ImageFolder(folder)
        assert [remote.encoded(i) for i in range(30)] == [local.encoded(i) for i in range(30)]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("limit", [30 * 40 - 1, 30 * 40 + 100])
def test_an_index_that_could_not_be_read_is_not_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(uploading, "MAX_INDEX", limit)
    with pytest.raises(
        DataError, match=f"the index of .* may have at most {limit} bytes.*packed=True"
    ):
        data.upload(data.ImageFolder(folder), folder.parent / "set", progress=False)
    early = limit < 30 * 40  # the limit is checked before any image is sent
    assert (folder.parent / "set").exists() != early
    assert not (folder.parent / "set" / INDEX).exists()


def test_what_cannot_be_uploaded_is_named(store: LoopbackStore, folder: Path) -> None:
    with pytest.raises(StoreError, match="a web server cannot be written to; give s3://"):
        data.upload(data.ImageFolder(folder), f"{store.endpoint}/bucket/x", progress=False)
    rows = data.ArrayDataset(np.zeros((3, 4)), np.zeros(3))
    rows.classes = ("a",)  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="sample 0 must be .image, label.*packed=True"):
        data.upload(rows, folder.parent / "set", progress=False)
    for wrong in (-1, 1):
        images = data.ImageArrays(np.zeros((1, 4, 4, 3), np.uint8), np.array([wrong]))
        images.classes = ("a",)  # type: ignore[attr-defined]
        with pytest.raises(DataError, match=f"label of sample 0 must be .* 1 classes, got {wrong}"):
            data.upload(images, folder.parent / "set", progress=False)
    with pytest.raises(DataError, match="must have at least one sample"):
        data.upload(data.Subset(rows, []), folder.parent / "set", progress=False)
