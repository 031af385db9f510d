"""Download from a faulty server: mirrors, resuming, checksums, and what stays on disk."""

import gzip
import hashlib
import io
import os
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
import test_cifar10
from fault_server import fault_server
from remote.hostile_server import HostileServer

from needle import data
from needle.data.datasets import cifar10
from needle.data.formats import download as downloading
from needle.data.formats import http_limits
from needle.data.formats.archives import download_archive
from needle.data.formats.download import Digest, RemoteFile, download
from needle.data.formats.idx import write_idx
from needle.errors import DataError

CONTENT = np.random.default_rng(0).bytes(300_000)


def patient(monkeypatch, timeout, tries=4):
    for name, value in (("TIMEOUT", timeout), ("TRIES", tries), ("WAIT", 0.01)):
        monkeypatch.setattr(downloading, name, value)


def sha256(content):
    return Digest("sha256", hashlib.sha256(content).hexdigest())


@pytest.fixture
def server(monkeypatch):
    patient(monkeypatch, 5.0)
    for name in [*os.environ]:
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with fault_server() as (address, site):
        site.content["/a/file"] = site.content["/b/file"] = CONTENT
        yield address, site


def fetch(address, folder, paths=("/a/file",), content=CONTENT):
    urls = tuple(address + path for path in paths)
    return download(RemoteFile("file", urls, sha256(content)), folder)


def left(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_a_file_arrives_once_under_its_name_alone(server, tmp_path):
    address, site = server
    for _ in range(2):
        path = fetch(address, tmp_path / "new" / "folder")
        assert path.read_bytes() == CONTENT and left(path.parent) == ["file"]
    assert site.requests == [("/a/file", None, None)]


def test_a_wrong_file_on_disk_is_replaced_only_by_a_right_one(server, tmp_path):
    address, site = server
    (tmp_path / "file").write_bytes(b"old")
    site.faults["/a/file"] = [404]
    with pytest.raises(DataError):
        fetch(address, tmp_path)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert fetch(address, tmp_path).read_bytes() == CONTENT


BOTH = ("/a/file", "/b/file")
RECOVERIES = {
    "absent, so the mirror at once": ([404], [("/a/file", None), ("/b/file", None)]),
    "forbidden": ([403], [("/a/file", None), ("/b/file", None)]),
    "gone": ([410], [("/a/file", None), ("/b/file", None)]),
    "busy, so asked again": ([503, 500, None], [("/a/file", None)] * 3),
    "cut, so continued": (
        [("cut", 100_000), ("cut", 50_000), None],
        [("/a/file", each) for each in (None, "bytes=100000-", "bytes=150000-")],
    ),
    "continued by the mirror": (
        [("cut", 120_000), 404],
        [("/a/file", None), ("/a/file", "bytes=120000-"), ("/b/file", "bytes=120000-")],
    ),
}


@pytest.mark.parametrize("faults, requests", RECOVERIES.values(), ids=RECOVERIES)
def test_a_file_arrives_in_spite_of_faults(server, tmp_path, faults, requests):
    address, site = server
    site.faults["/a/file"] = list(faults)
    assert fetch(address, tmp_path, BOTH).read_bytes() == CONTENT and left(tmp_path) == ["file"]
    assert [each[:2] for each in site.requests] == requests


def test_a_server_that_ignores_ranges_is_read_from_the_start(server, tmp_path):
    address, site = server
    site.ranges = False
    site.faults["/a/file"] = [("cut", 100_000), None]
    assert fetch(address, tmp_path).read_bytes() == CONTENT
    assert len(site.requests) == 2


def test_a_later_call_goes_on_too(server, tmp_path):
    address, site = server
    site.faults["/a/file"] = [("cut", 120_000)] + [503] * 3 + [None]
    with pytest.raises(DataError, match="gave up after 4 tries; HTTP status 503"):
        fetch(address, tmp_path)
    assert left(tmp_path) == ["file.part"]
    assert fetch(address, tmp_path).read_bytes() == CONTENT and left(tmp_path) == ["file"]
    assert site.requests[-1][1] == "bytes=120000-"


def test_a_file_that_changed_meanwhile_is_fetched_whole(server, tmp_path):
    address, site = server
    old = site.content["/a/file"] = b"x" * 200_000
    site.faults["/a/file"] = [("cut", 1000)] + [503] * 3 + [None]
    with pytest.raises(DataError):
        fetch(address, tmp_path, content=old)
    site.content["/a/file"] = CONTENT
    assert fetch(address, tmp_path).read_bytes() == CONTENT
    assert [each for _, each, _ in site.requests[-2:]] == ["bytes=1000-", None]


@pytest.mark.parametrize("size", [1000, len(CONTENT), len(CONTENT) + 5])
@pytest.mark.parametrize("etags", [True, False])
def test_a_garbage_part_does_no_harm(server, tmp_path, size, etags):
    address, site = server
    site.etags = etags
    (tmp_path / "file.part").write_bytes(b"z" * size)
    assert fetch(address, tmp_path).read_bytes() == CONTENT and left(tmp_path) == ["file"]


def test_a_whole_part_is_only_checked(server, tmp_path):
    address, _ = server
    (tmp_path / "file.part").write_bytes(CONTENT)
    assert fetch(address, tmp_path).read_bytes() == CONTENT


def test_wrong_bytes_go_to_the_mirror_and_leave_nothing(server, tmp_path):
    address, site = server
    site.content["/a/file"] = CONTENT[:-1] + b"!"
    assert fetch(address, tmp_path, ["/a/file", "/b/file"]).read_bytes() == CONTENT
    with pytest.raises(DataError, match=r"wrong sha256: expected [0-9a-f]{64}, got [0-9a-f]{64}"):
        fetch(address, tmp_path / "alone")
    assert left(tmp_path / "alone") == []


def test_the_final_error_lists_each_address_and_its_reason(server, tmp_path):
    address, site = server
    site.content["/b/file"] = b"wrong"
    with pytest.raises(DataError) as caught:
        fetch(address, tmp_path, ["/none", "/b/file"])
    text = str(caught.value)
    assert f"{address}/none: HTTP status 404" in text and f"{address}/b/file: wrong sha256" in text
    assert "put the file into" in text and str(tmp_path) in text


def test_a_server_that_is_not_there(tmp_path, monkeypatch, server):
    with fault_server() as (gone, _):
        pass
    with pytest.raises(DataError, match=r"gave up after 4 tries; URLError: .*refused"):
        fetch(gone, tmp_path)
    assert fetch(server[0], tmp_path).read_bytes() == CONTENT


def test_a_server_that_stalls_is_given_up(server, tmp_path, monkeypatch):
    address, site = server
    site.faults["/a/file"] = ["stall", None]
    patient(monkeypatch, 0.3, tries=20)
    assert fetch(address, tmp_path).read_bytes() == CONTENT


def test_a_slow_drip_is_given_up(server, tmp_path, monkeypatch):
    address, _ = server
    monkeypatch.setattr(downloading, "MIN_SPEED", 10**12)
    patient(monkeypatch, 0.0, tries=2)
    monkeypatch.setattr(downloading, "CHUNK", 1000)
    opened = http_limits.open_limited
    monkeypatch.setattr(http_limits, "open_limited", lambda request, _: opened(request, 5.0))
    with pytest.raises(DataError, match="gave up after 2 tries; slower than"):
        fetch(address, tmp_path)


@pytest.mark.parametrize(
    "start",
    [b"HTTP/1.1 200 OK\r\nX-", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"],
    ids=["headers", "length of a chunk"],
)
def test_dripping_headers_and_chunk_lengths_are_given_up(server, tmp_path, monkeypatch, start):
    def drip(*_):
        yield start
        for _ in range(200):
            time.sleep(0.05)
            yield b"0"

    patient(monkeypatch, 0.4, tries=2)
    gives_up = pytest.raises(DataError, match="gave up after 2 tries; .*within 0.4 s")
    with HostileServer(drip) as hostile, gives_up:
        fetch(hostile.address, tmp_path)


def test_messages_hold_no_secrets(server, tmp_path):
    for address in ("http://me:hush@127.0.0.1:1", "http://127.0.0.1:1/x?token=hush&y="):
        with pytest.raises(DataError, match="no address provided file") as info:
            fetch(address, tmp_path)
        assert "hush" not in str(info.value) and "hush" not in repr(info.value.__context__)


def test_odd_answers(server, tmp_path):
    address, site = server
    site.faults["/a/file"] = ["huge"]
    with pytest.raises(DataError, match="announces 1099511627776 bytes, more than"):
        fetch(address, tmp_path)
    site.faults["/a/file"] = [("cut", 10), "wrong range"]
    with pytest.raises(DataError, match="asked for bytes from 10, got the range 'bytes 11-"):
        fetch(address, tmp_path)
    (tmp_path / "file.part").unlink()
    site.faults["/a/file"] = ["no length"]
    assert fetch(address, tmp_path).read_bytes() == CONTENT


def test_more_than_the_limit_is_not_taken(server, tmp_path, monkeypatch):
    address, site = server
    monkeypatch.setattr(downloading, "MAX_BYTES", 100_000)
    site.faults["/a/file"] = ["no length"]
    with pytest.raises(DataError, match="sent more than 100000 bytes"):
        fetch(address, tmp_path)


def test_a_gz_that_unpacks_without_end_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(downloading, "MAX_METADATA", 100_000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(5_000_000)))
    digest = Digest("sha256", hashlib.sha256(bytes(5_000_000)).hexdigest(), True)
    assert digest.of(tmp_path / "a.gz") == "unreadable: it unpacks to more than 100000 bytes"


def test_no_room_on_the_disk(server, tmp_path, monkeypatch):
    address, _ = server

    class Full(io.FileIO):
        def write(self, _):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(downloading, "open", lambda path, mode: Full(path, "w"), raising=False)
    with pytest.raises(DataError, match=r"cannot write .*file.part \(No space left on device\)"):
        fetch(address, tmp_path)


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot write .*; free some space or give another folder"):
        fetch(server[0], tmp_path / "file" / "folder")


def test_the_progress_bar_shows_name_and_size(server, tmp_path, capsys):
    pytest.importorskip("tqdm")
    fetch(server[0], tmp_path)
    assert "file" in capsys.readouterr().err


def test_mnist_is_fetched_checked_by_content_and_then_read(server, tmp_path, monkeypatch):
    address, site = server
    images = np.random.default_rng(1).integers(0, 256, (12, 28, 28), dtype=np.uint8)
    labels = (np.arange(12) % 10).astype(np.uint8)
    digests = {}
    for name in data.MNIST.digests:
        write_idx(tmp_path / name, images if "images" in name else labels)
        content = (tmp_path / name).read_bytes()
        digests[name] = Digest("sha256", hashlib.sha256(gzip.decompress(content)).hexdigest(), True)
        recompressed = gzip.compress(gzip.decompress(content), compresslevel=1)
        site.content[f"/mirror/{name}"] = recompressed
        site.content[f"/broken/{name}"] = recompressed[:-9] + bytes(9)
        (tmp_path / name).unlink()
    monkeypatch.setattr(data.MNIST, "digests", digests)
    mirrors = [f"{address}/gone/", f"{address}/broken/", f"{address}/mirror/"]
    dataset = data.MNIST(tmp_path, download=True, mirrors=mirrors)
    np.testing.assert_array_equal(dataset.images[..., 0], images)
    assert left(tmp_path / "mnist") == sorted(digests)
    count = len(site.requests)
    data.MNIST(tmp_path, train=False, download=True, mirrors=mirrors)
    assert len(site.requests) == count
    with pytest.raises(DataError, match="no address provided"):
        data.MNIST(tmp_path / "x", download=True, mirrors=mirrors[:2])


def archive(members, extra=()):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in [*members, *extra]:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            info.size = len(content or b"")
            tar.addfile(info, io.BytesIO(content or b""))
    return stream.getvalue()


def fetch_archive(server, root, content, names):
    address, site = server
    site.content["/t.tar.gz"] = content
    file = RemoteFile("t.tar.gz", (f"{address}/t.tar.gz",), sha256(content))
    return download_archive(file, root, "set", names)


def test_an_archive_gives_the_named_files_and_nothing_else(server, tmp_path):
    root = tmp_path / "root"
    extra = [("../evil", b"1"), ("/tmp/evil-needle", b"2"), ("set/other", b"3"), ("set/ln", None)]
    content = archive([("set/a", b"A"), ("./set/b", b"B")], extra)
    folder = fetch_archive(server, root, content, ["a", "b"])
    assert left(root) == ["set"] and left(folder) == ["a", "b"]
    assert (folder / "a").read_bytes() == b"A" and left(tmp_path) == ["root"]
    assert not Path("/tmp/evil-needle").exists()


def test_a_folder_with_some_of_the_files_is_completed(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine").write_text("kept")
    fetch_archive(server, tmp_path, archive([("set/a", b"A")]), ["a"])
    assert left(tmp_path / "set") == ["a", "mine"]


@pytest.mark.parametrize(
    "content, message",
    [
        (archive([("set/a", b"A"), ("set/b", None)]), r"must have the files \['set/b'\]"),
        (b"no archive", "not a whole tar archive"),
        (archive([("set/a", CONTENT), ("set/b", b"B")])[:-5000], "not a whole tar archive"),
    ],
    ids=["link", "garbage", "cut"],
)
def test_archives_that_are_not_whole_leave_no_folder(server, tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        fetch_archive(server, tmp_path, content, ["a", "b"])
    assert left(tmp_path) == ["t.tar.gz"]


@pytest.mark.parametrize("file_format", ["python", "binary"])
def test_cifar10_is_fetched_unpacked_and_read(server, tmp_path, monkeypatch, file_format):
    address, site = server
    make = test_cifar10.write_python if file_format == "python" else test_cifar10.write_binary
    folder = make(tmp_path / "made" / cifar10.FOLDERS[file_format])
    (folder / ("batches.meta" if file_format == "python" else "batches.meta.txt")).write_bytes(b"m")
    members = [(f"{folder.name}/{p.name}", p.read_bytes()) for p in folder.iterdir()]
    name, _ = cifar10.ARCHIVES[file_format]
    content = site.content[f"/{name}"] = archive(members)
    monkeypatch.setitem(cifar10.ARCHIVES, file_format, (name, sha256(content)))
    root = tmp_path / "root"
    options = {"file_format": file_format, "download": True, "mirrors": [f"{address}/"]}
    assert len(data.CIFAR10(root, **options)) == 20
    assert left(root) == [folder.name]
    assert len(data.CIFAR10(root, train=False, **options)) == 4 and len(site.requests) == 1
