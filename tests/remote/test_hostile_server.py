"""Test hostile servers and links in the cache: reads are bounded, and no secret leaks."""

import gzip
import os
import resource
import socket
import stat
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needle import data
from needle.errors import DataError, NeedleError, StoreError
from needle.remote import catalogue as catalogue_module
from needle.remote import protocols
from needle.remote.catalogue import INDEX
from needle.remote.store import Store, Wanted
from tests.remote.loopback_store import LoopbackStore

from .conftest import QUICK, SECRET, uploaded
from .hostile_server import HostileServer, Reply, answer, endless

NOTHING_KEPT = data.ObjectCache(limit=0)
SHORT = data.Retry(tries=3, timeout=2.0, wait=0.0)


def served(folder: Path, reply: Reply, images: bool = True) -> Reply:
    """Return a reply that serves the (possibly damaged) index of the folder, and ``reply`` for
    images.
    """
    files = uploaded(data.ImageFolder(folder), folder.parent / "up", "set")
    index = files[f"set/{INDEX}"]

    def chosen(path: str, headers: dict[str, str]) -> Iterator[bytes]:
        return answer(index) if path.endswith(INDEX) and images else reply(path, headers)

    return chosen


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


BOMB = gzip.compress(bytes(1 << 28))
BODIES: dict[str, Any] = {
    "endless": lambda: endless(),
    "endless chunks": lambda: endless(
        "Transfer-Encoding: chunked", piece=b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    ),
    "bomb": lambda: answer(BOMB, "200 OK", "Content-Encoding: gzip"),
    "long": lambda: endless("Content-Length: 99999999999"),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_a_body_is_read_no_further_than_its_size(
    folder: Path, store: LoopbackStore, monkeypatch: pytest.MonkeyPatch, name: str, scheme: str
) -> None:
    with HostileServer(served(folder, lambda *_: BODIES[name]())) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
        url = f"{server.address}/set" if scheme == "http" else "s3://bucket/set"
        dataset = data.RemoteImageFolder(url, retry=SHORT, cache=NOTHING_KEPT)
        before = peak()
        with pytest.raises(DataError, match=r"must have \d+ bytes, got more, attempt 3 of 3"):
            dataset[3]
        assert server.asked(".png") == 3 and peak() - before < 100


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_an_index_and_errors_without_an_end(
    folder: Path, store: LoopbackStore, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setattr(catalogue_module, "MAX_INDEX", 100_000)
    monkeypatch.setattr(protocols, "MAX_PAGE", 100_000)
    for reply in (endless, lambda: endless_error()):
        with HostileServer(lambda *_, each=reply: each()) as server:
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
            url = f"{server.address}/set" if scheme == "http" else "s3://bucket/set"
            before = peak()
            with pytest.raises(NeedleError, match="(at most|more than) 100000 bytes|status 503"):
                data.open_remote(url, retry=SHORT)
            assert len(server.requests) == 3 and peak() - before < 50


def endless_error() -> Iterator[bytes]:
    yield b"HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\n"
    while True:
        yield bytes(1 << 16)


ODD: dict[str, Any] = {
    "garbage": lambda: iter([b"\0\1garbage\r\n\r\n"]),
    "long header": lambda: answer(b"x", "200 OK", "X: " + "y" * 100_000),
    "many headers": lambda: endless_headers(),
    "damaged": lambda: answer(b'{"needle": 1, "kind'),
    "nested": lambda: answer(b"[" * 1_000_000),
    "reset": lambda: iter(()),
}


def endless_headers() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    while True:
        yield b"X: y\r\n" * 1000


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_answer_is_tried_again_once_counted(folder: Path, name: str) -> None:
    odd: list[str] = []

    def reply(path: str, headers: dict[str, str]) -> Iterator[bytes]:
        odd.append(path)
        return ODD[name]() if len(odd) < 3 else right(path, headers)

    right = served(folder, lambda *_: answer(b""))
    with HostileServer(reply) as server:
        assert len(data.open_remote(f"{server.address}/set", retry=SHORT)) == 30
        assert server.asked(INDEX) == 3
        odd.clear()
    with (
        HostileServer(lambda *_: ODD[name]()) as server,
        pytest.raises(NeedleError, match="attempt 3 of 3"),
    ):
        data.open_remote(f"{server.address}/set", retry=SHORT)
    assert server.asked(INDEX) == 3


def test_an_open_connection_that_ends_costs_one_attempt(folder: Path, web: str) -> None:
    answers = iter([True])

    def reply(path: str, headers: dict[str, str]) -> Iterator[bytes]:
        kept = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        return iter([kept.encode()]) if next(answers, False) else iter(())

    with HostileServer(reply) as server:
        store = Store(server.address + "/x", SHORT)
        assert store.get([Wanted("a")]) == [b"ok"]
        with pytest.raises(StoreError, match="attempt 3 of 3"):
            store.get([Wanted("a")])
        assert len(server.requests) <= 1 + 3


def test_a_slow_drip_ends_with_the_timeout() -> None:
    def drip(*_: Any) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
        while True:
            time.sleep(0.05)
            yield b"x"

    with (
        HostileServer(drip) as server,
        pytest.raises(StoreError, match="no answer in time, attempt 2 of 2"),
    ):
        Store(server.address + "/x", data.Retry(tries=2, timeout=0.4, wait=0.0)).get([Wanted("a")])


# ---- redirects and credentials -------------------------------------------------------------------


def test_credentials_stay_with_their_host_and_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    def elsewhere(path: str, headers: dict[str, str]) -> Iterator[bytes]:
        if path.endswith("/far"):
            return answer(b"", "302 Found", f"Location: {other.address}/moved")
        if path.endswith("/near"):
            return answer(b"", "307 Moved", "Location: there")
        return answer(b"here")

    with (
        HostileServer(lambda *_: answer(b"moved")) as other,
        HostileServer(elsewhere) as server,
    ):
        store = Store(server.address + "/x", SHORT)
        assert store.get([Wanted("near"), Wanted("far")]) == [b"here", b"moved"]
        assert all("authorization" in headers for _, headers in server.requests)
        assert len(other.requests) == 1 and "authorization" not in other.requests[0][1]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("again", "redirects more than 10 times"),
        ("file:///etc/passwd", "redirects to an address that is not http"),
        (f"http://me:{SECRET}@127.0.0.1:1/x?X-Amz-Signature={SECRET}", "attempt 3 of 3"),
        (f"http://[{SECRET}", "attempt"),
    ],
)
def test_redirects_that_lead_nowhere(target: str, words: str) -> None:
    with HostileServer(lambda *_: answer(b"", "302 Found", f"Location: {target}")) as server:
        with pytest.raises(StoreError, match=words) as info:
            Store(server.address + "/x", SHORT).get([Wanted("a")])
        assert_no_secret(info.value)


def assert_no_secret(error: BaseException | None) -> None:
    while error is not None:
        assert SECRET not in str(error) and SECRET not in repr(error)
        assert SECRET not in repr(vars(error))
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "url",
    [
        f"http://h/x#{SECRET}",
        f"http://h/x?signature={SECRET}",
        f"https://u:{SECRET}@h/x",
        f"https:u:{SECRET}@h/x",
        f"https:/u:{SECRET}@h/x",
        f"http:///u:{SECRET}@h",
        f"http:///{SECRET}@h",
        f"http//u:{SECRET}@h/x",
        f" http://u:{SECRET}@h/x",
        f"HTTP://{SECRET}@h/x",
        f"s3://key:{SECRET}@bucket/x",
        f"s3://bucket/x?X-Amz-Signature={SECRET}",
        f"u:{SECRET}@http://h/x",
        f"simplecache::https://u:{SECRET}@h/x",
        f"ftp://u:{SECRET}@h/x",
        f"http://h:{SECRET}/x",
        f"u:{SECRET}@h",
    ],
)
def test_a_wrong_address_is_not_repeated(url: str, tmp_path: Path) -> None:
    for call in (data.open_remote, lambda url: data.upload(data.Digits(), url, progress=False)):
        with (
            warnings.catch_warnings(record=True) as caught,
            pytest.raises(NeedleError, match="an address must") as info,
        ):
            call(url)
        assert_no_secret(info.value)
        assert not any(SECRET in str(each.message) for each in caught)


def test_errors_of_the_endpoint_hold_no_secret(monkeypatch: pytest.MonkeyPatch, web: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://me:{SECRET}@127.0.0.1:1/")
    with pytest.raises(StoreError) as info:
        data.open_remote("s3://bucket/set", retry=SHORT)
    assert_no_secret(info.value)


# ---- the cache -----------------------------------------------------------------------------------


@pytest.fixture(params=["images", "packed"])
def cached(request: pytest.FixtureRequest, store: LoopbackStore, tmp_path: Path) -> Any:
    """Return a function that opens a data set of sixty images, in single objects or four shards."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (60, 6, 5, 3), dtype=np.uint8)
    local = data.ImageArrays(pixels, np.arange(60) % 7, layout="HWC", dtype="uint8")
    local.classes = tuple("abcdefg")  # type: ignore[attr-defined]
    packed = {"packed": True, "samples_per_shard": 15} if request.param == "packed" else {}
    store.objects.update(uploaded(local, tmp_path / "made", "bucket/set", **packed))
    kinds = {"packed": data.RemotePacked, "images": data.RemoteImageFolder}
    options = {} if packed else {"layout": "HWC", "dtype": "uint8"}

    def opened() -> tuple[Any, Any]:
        url = f"{store.endpoint}/bucket/set"
        return kinds[request.param](url, retry=QUICK, **options), pixels

    return opened


def read(dataset: Any) -> Any:
    return np.stack([dataset[i][0] for i in range(60)])


def entries(dataset: Any) -> list[Path]:
    return sorted(dataset.cache.root.glob("??/*"))


def test_a_flipped_bit_is_found_wherever_it_is(cached: Any, store: LoopbackStore) -> None:
    dataset, pixels = cached()
    np.testing.assert_array_equal(read(dataset), pixels)
    rng = np.random.default_rng(0)
    for trial in range(8):
        for entry in entries(dataset):
            content = bytearray(entry.read_bytes())
            content[rng.integers(len(content))] ^= 1 << rng.integers(8)
            entry.write_bytes(content)
        store.gets.clear()
        again, _ = cached()
        if trial % 2:
            np.testing.assert_array_equal(read(again), pixels)
        else:
            np.testing.assert_array_equal(again.fetch(np.arange(60))[0], pixels)
        kept = [entry.read_bytes() for entry in entries(again)]
        assert len(kept) == (4 if isinstance(dataset, data.RemotePacked) else 60)
        store.gets.clear()
        np.testing.assert_array_equal(read(cached()[0]), pixels)  # in the cache again
        assert len(store.gets) == 1 or isinstance(dataset, data.RemotePacked)


def test_an_exchanged_entry_is_not_believed(cached: Any, store: LoopbackStore) -> None:
    dataset, pixels = cached()
    read(dataset)
    by_size: dict[int, list[Path]] = {}
    for entry in entries(dataset):
        by_size.setdefault(entry.stat().st_size, []).append(entry)
    for alike in by_size.values():
        contents = [entry.read_bytes() for entry in alike]
        for entry, content in zip(alike, contents[1:] + contents[:1]):
            entry.write_bytes(content)
    np.testing.assert_array_equal(read(cached()[0]), pixels)


def test_files_are_private_whatever_the_umask(
    cached: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEEDLE_CACHE_DIR", str(tmp_path / "new" / "deep" / "cache"))
    before = os.umask(0)
    try:
        dataset, _ = cached()
        read(dataset)
    finally:
        os.umask(before)
    found = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert len(found) > 5
    for path in found:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
@pytest.mark.parametrize("name", ["bytes", "part", "entry", "folders"])
def test_links_in_the_cache_are_not_followed(
    cached: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    dataset, pixels = cached()
    read(dataset)
    names = [entry.relative_to(dataset.cache.root) for entry in entries(dataset)]
    root = tmp_path / "other cache"
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    outside = tmp_path / "outside"
    outside.mkdir()
    places = {
        "bytes": [Path("bytes")],
        "part": [each.with_name(each.name + ".part") for each in names],
        "entry": names,
        "folders": sorted({each.parent for each in names}),
    }[name]
    for place in places:
        (root / place).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if kind == "link":
            (root / place).symlink_to(outside if name == "folders" else victim)
        elif kind == "hard link":
            os.link(victim, root / place)
        elif kind == "pipe":
            os.mkfifo(root / place)
        else:
            (root / place).mkdir(exist_ok=True)
    monkeypatch.setenv("NEEDLE_CACHE_DIR", str(root))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        np.testing.assert_array_equal(read(cached()[0]), pixels)
    assert victim.read_bytes() == b"precious" and not list(outside.iterdir())


def not_a_folder(root: Path) -> None:
    root.write_bytes(b"")


def dangling(root: Path) -> None:
    root.symlink_to(root.parent / "nowhere" / "deep")


@pytest.mark.parametrize("make", [not_a_folder, dangling, lambda root: root.mkdir(mode=0o500)])
def test_an_unusable_folder_is_a_warning(
    cached: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    make(tmp_path / "unusable")
    if os.geteuid() == 0 and (tmp_path / "unusable").is_dir():
        pytest.skip("root may write everywhere")
    monkeypatch.setenv("NEEDLE_CACHE_DIR", str(tmp_path / "unusable"))
    dataset, pixels = cached()
    with pytest.warns(RuntimeWarning, match="cache .*unusable cannot be written to"):
        np.testing.assert_array_equal(read(dataset), pixels)


def test_folders_of_a_store_with_pipes_and_sockets(tmp_path: Path) -> None:
    data.upload(subset(), tmp_path / "set", progress=False)
    (tmp_path / "set" / INDEX).unlink()
    os.mkfifo(tmp_path / "set" / INDEX)
    with pytest.raises(DataError, match="must be a regular file, got a folder, pipe"):
        data.open_remote(tmp_path / "set", retry=SHORT)
    (tmp_path / "set" / INDEX).unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
        os.rename(tmp_path / "s", tmp_path / "set" / INDEX)
        with pytest.raises(DataError, match="must be a regular file, got a folder, pipe"):
            data.open_remote(tmp_path / "set", retry=SHORT)


def subset() -> Any:
    few = data.Subset(data.Digits(train=False, layout="HWC"), np.arange(8))
    few.classes = data.Digits.classes  # type: ignore[attr-defined]
    return few
