"""Test ObjectCache: a strict size limit, complete entries after a crash, a read-only folder."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needle import data
from needle.errors import DataError
from needle.remote import object_cache as cache_module
from tests.remote.loopback_store import LoopbackStore

from .conftest import QUICK


def size_of(cache: data.ObjectCache) -> int:
    found = 0
    for path in cache.root.glob("??/*"):
        with contextlib.suppress(FileNotFoundError):  # other processes may delete files meanwhile
            found += path.stat().st_size
    return found


def test_what_was_fetched_is_not_fetched_again(store: LoopbackStore, web: str) -> None:
    first = data.RemoteImageFolder(web, retry=QUICK)
    want = [first.encoded(i) for i in range(30)]
    store.gets.clear()
    again = data.RemoteImageFolder(web, retry=QUICK)
    store.down = True
    assert [again.encoded(i) for i in range(30)] == want
    assert len(store.gets) == 1  # only the index was fetched again


def test_the_limit_holds_and_the_oldest_go_first(tmp_path: Path) -> None:
    cache = data.ObjectCache(tmp_path, limit=10_000)
    for i in range(9):
        cache.write(f"{i}", bytes([i]) * 1000)
        os.utime(cache._path(f"{i}"), ns=(i, i))
    assert size_of(cache) == 9 * 1016
    assert cache.read("0") == bytes(1000)  # makes "0" the most recently used entry
    cache.write("new", b"n" * 1000)
    kept = [i for i in range(9) if cache.read(f"{i}") is not None]
    assert size_of(cache) <= 10_000 and kept == [0, 2, 3, 4, 5, 6, 7, 8]
    cache.write("huge", bytes(10_000))
    assert cache.read("huge") is None and cache.read("new") == b"n" * 1000
    assert data.ObjectCache(tmp_path, limit=0).read("new") is None

    def write(start: int) -> None:
        for i in range(start, start + 40):
            cache.write(f"{i}", os.urandom(300))
            sizes.append(size_of(cache))

    sizes: list[int] = []
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(0, 4000, 1000)))
    partial = 4 * 316  # bytes of entries that are still being written
    assert max(sizes) <= 10_000 + partial and size_of(cache) <= 10_000
    assert int((tmp_path / "bytes").read_text()) == size_of(cache)


WRITER = """
import os, sys
from pathlib import Path
from needle.data import ObjectCache
cache = ObjectCache(Path(sys.argv[1]), limit=200_000)
print("ready", flush=True)
i = 0
while True:
    cache.write(f"{i % 50}", bytes([i % 50]) * 5000)
    with cache.claim("large", 3000, wait=True) as file:
        file.write(b"x" * 3000)
        cache.commit("large", file)
    i += 1
"""


def test_killed_while_writing_it_recovers(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": "python"}
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    for pause in (0.0, 0.02):
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        threading.Event().wait(pause)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    cache = data.ObjectCache(tmp_path, limit=200_000)
    for i in range(50):
        assert cache.read(f"{i}") in (None, bytes([i]) * 5000)
    with cache.claim("large", 9, wait=False) as file:  # the lock of the dead process is free
        assert file is not None and file.read() == bytes(9 + 16)
    old = list(tmp_path.glob("??/*.part"))
    for path in old:
        os.utime(path, (0, 0))
    (tmp_path / "bytes").write_text("no number")
    for i in range(50):
        cache.write(f"more {i}", bytes(5000))
    assert not list(tmp_path.glob("??/*.part"))
    assert int((tmp_path / "bytes").read_text()) == size_of(cache) <= 200_000


def test_a_claim_is_one_at_a_time(tmp_path: Path) -> None:
    cache, order = data.ObjectCache(tmp_path, limit=10_000), []

    def second() -> None:
        with cache.claim("key", 3, wait=True) as file:
            assert file is not None
            order.append(content("key", 3))

    def content(key: str, size: int) -> bytes | None:
        found = cache.open(key, size)
        if found is None:
            return None
        with found:
            return found.read(size)

    with cache.claim("key", 3, wait=False) as file:
        assert file is not None
        with cache.claim("key", 3, wait=False) as other:
            assert other is None
        waiting = threading.Thread(target=second)
        waiting.start()
        file.write(b"abc")
        cache.commit("key", file)
    waiting.join()
    assert order == [b"abc"] and content("key", 4) is None and content("key", 3) is None
    assert not list(tmp_path.glob("??/*.part"))


def test_a_full_disk_costs_a_warning(
    store: LoopbackStore, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    dataset = data.RemoteImageFolder(web, retry=QUICK)
    want = dataset.fetch(np.arange(10))
    monkeypatch.setattr(cache_module.os, "replace", full)
    monkeypatch.setenv("NEEDLE_CACHE_DIR", str(dataset.cache.root / "other"))
    other = data.RemoteImageFolder(web, retry=QUICK, cache=data.ObjectCache(limit=10**6))
    with pytest.warns(RuntimeWarning, match="cannot be written to.*No space left"):
        got = other.fetch(np.arange(10))
    assert want is not None and got is not None
    np.testing.assert_array_equal(got[0], want[0])


def test_the_environment_says_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEEDLE_CACHE_BYTES", "2e3")
    assert data.ObjectCache().capacity == 2000
    monkeypatch.setenv("NEEDLE_CACHE_BYTES", "much")
    with pytest.raises(DataError, match="NEEDLE_CACHE_BYTES: must be a number"):
        data.ObjectCache().read("key")
