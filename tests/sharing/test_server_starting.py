"""Test servers that loaders start: what they inherit, when they end, and loading without one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from forks import HERE, ROOT
from proc import INTERRUPTIBLE, Leftovers, alive, becomes
from server_checks import (
    as_data_loader,
    assert_same,
    by_index,
    folder,
    loader,
)
from server_sets import Images

from needle import data
from needle.errors import DataError, LoaderServerError, WorkerError
from needle.sharing.client import joining

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder of the sockets; check that none of its servers is left at the end."""
    with folder() as found:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(found))
        yield found
        assert becomes(lambda: not servers_of(found), 5), servers_of(found)
        for left in found.rglob("auto-*"):  # sockets of killed servers
            left.unlink()


def servers_of(place: Path, command: bytes = b"joining.run_child") -> list[int]:
    """Return the servers started with this socket folder, or with b"" all its processes."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            mine = f"XDG_RUNTIME_DIR={place}".encode() in (entry / "environ").read_bytes()
            if mine and command in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return [pid for pid in found if alive(pid)]


PROGRAM = (
    INTERRUPTIBLE
    + """
import os, resource, sys, time
import numpy as np
from needle.sharing import GlobalDataLoader
from server_sets import Images

def limit(kind, *values):
    resource.setrlimit(getattr(resource, kind), values)

{before}
loader = GlobalDataLoader(Images(40), 8, task="{task}", num_workers={workers}, seed=1, timeout=60)
print(loader.server_status()["pid"], flush=True)
found = sorted(int(i) for _, labels in loader for i in labels.numpy())
assert found == list(range(40))
{after}
"""
)


def program(
    task: str = "other", before: str = "", after: str = "", workers: int = 0
) -> subprocess.Popen[str]:
    paths = [str(ROOT / "python"), str(HERE)]
    text = PROGRAM.format(task=task, before=before, after=after, workers=workers)
    return subprocess.Popen(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NEEDLE_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(process: subprocess.Popen[str]) -> str:
    """Return what the program prints; it must succeed."""
    out, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    return out.strip()


# ---- without a server


FAILING = {
    "it ends": "raise SystemExit(3)",
    "it raises": "import no_such_module",
    "it is always killed": "import os; os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("name", FAILING)
def test_a_server_that_cannot_start_is_an_error_or_is_done_without(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "STARTER", FAILING[name])
    before, dataset = Leftovers(), Images(40)
    with pytest.raises(WorkerError, match="a server cannot start"):
        loader(dataset)
    with loader(dataset, fallback=True) as task:
        for epoch in range(2):
            assert_same(by_index(task), as_data_loader(dataset, 1, epoch), range(40))
    before.assert_none()


def test_a_server_that_is_killed_while_it_starts_is_tried_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = place / "starts"
    dies = (
        f"import os; open({str(count)!r}, 'a').write('x')\n"
        f"if os.path.getsize({str(count)!r}) < 3: os.kill(os.getpid(), 9)\n"
    )
    monkeypatch.setattr(joining, "STARTER", dies + joining.STARTER)
    with loader(Images(40), num_workers=0) as task:
        assert len(by_index(task)) == 40
    assert count.read_text() == "xxx"


def test_an_address_where_nobody_listens_is_done_without(place: Path) -> None:
    dataset = Images(40)
    for address in ("nobody", place / "nobody.sock", place / "no folder" / "x.sock"):
        with pytest.raises(LoaderServerError, match="no server listens"):
            loader(address)
        with loader(address, fallback=dataset) as task:
            for epoch in range(2):
                assert_same(by_index(task), as_data_loader(dataset, 1, epoch), range(40))


def test_a_data_set_that_cannot_be_pickled_is_done_without(place: Path) -> None:
    dataset = Images(40)
    dataset.handle = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"dataset\.handle"):
        loader(dataset)
    with loader(dataset, fallback=True) as task:
        assert len(by_index(task)) == 40


def test_a_folder_for_sockets_that_is_missing_or_cannot_be_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / "missing"))
    with loader(Images(40), num_workers=0) as task:
        assert len(by_index(task)) == 40
        assert f"needle-{os.getuid()}" in task.explain()
    (place / "needle").write_text("in the way")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    with pytest.raises(WorkerError, match="must be a folder"):
        loader(Images(40))
    with loader(Images(40), fallback=True) as task:
        assert len(by_index(task)) == 40


# ---- limits


@pytest.mark.slow
def test_few_descriptors_are_an_error_that_says_so(place: Path) -> None:
    dataset = Images(40)
    task = (
        "import needle.errors\n"
        "held = []\n"
        "limit('RLIMIT_NOFILE', 64, 64)\n"
        "for spare in range(14, -1, -2):\n"
        "    while len(os.listdir('/proc/self/fd')) < 64 - spare: held.append(os.open('/', 0))\n"
        "    try:\n"
        "        GlobalDataLoader(Images(40), 8, num_workers=0).close()\n"
        "    except needle.errors.WorkerError as error:\n"
        "        assert 'descriptor' in str(error) or 'Too many open files' in str(error), error\n"
        "        print('typed')\n"
        "for fd in held: os.close(fd)\n"
    )
    assert "typed" in told(program(before=task))
    assert len(dataset) == 40


def test_a_small_address_space_is_enough(place: Path) -> None:
    assert told(program(before="limit('RLIMIT_AS', 3 << 30, 3 << 30)"))


@pytest.mark.slow
def test_a_server_has_no_limits_of_the_one_that_started_it(place: Path) -> None:
    before = "limit('RLIMIT_NOFILE', 128, 4096); os.umask(0); os.chdir('/')"
    first = program("first", before, "time.sleep(20)")
    assert first.stdout is not None
    pid = int(first.stdout.readline())
    status = Path(f"/proc/{pid}/status").read_text()
    assert "Umask:\t0077" in status
    limits = Path(f"/proc/{pid}/limits").read_text()
    (row,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    assert row.split()[3:5] == ["4096", "4096"]
    assert int(told(program("second", before))) == pid
    for other in ("", before + "; os.nice(1)", before + "; os.environ['AWS_REGION'] = 'x'"):
        assert int(told(program("third", other))) != pid
    first.kill()
    first.communicate()


# ---- the end of servers


PROMISED = 2.0
"""Seconds from the end of the last client until its server and the server's workers have ended."""


def seconds_to_the_end(place: Path, command: bytes = b"") -> float:
    start = time.monotonic()
    assert becomes(lambda: not servers_of(place, command), 20), servers_of(place, command)
    return time.monotonic() - start


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_soon_after_its_starter_was_interrupted_at_any_moment(
    number: int, place: Path
) -> None:
    rng = random.Random(int(number))

    def attempt() -> float:
        process = program(after="time.sleep(20)", workers=1)
        assert becomes(lambda: bool(servers_of(place)), 60)
        time.sleep(rng.random() * 2)
        process.send_signal(number)
        process.communicate(timeout=60)
        return seconds_to_the_end(place)

    # Other programs may delay a few attempts; a delay in the server would affect most of them.
    assert median(attempt() for _ in range(5)) < PROMISED


@pytest.mark.soak
@pytest.mark.parametrize("last", ["pass", "raise KeyError(0)", "os.kill(os.getpid(), 9)"])
def test_a_server_ends_soon_after_its_last_client_however_that_ends(last: str, place: Path) -> None:
    def attempt() -> float:
        program(after=f"next(iter(loader))\n{last}", workers=1).communicate(timeout=60)
        return seconds_to_the_end(place)

    assert median(attempt() for _ in range(3)) < PROMISED


def test_a_server_ends_although_a_child_of_its_client_has_the_socket(place: Path) -> None:
    after = "child = os.fork()\nif child: print(child, flush=True)\ntime.sleep(20)"
    process = program(after=after)
    assert process.stdout is not None
    process.stdout.readline()
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        seconds_to_the_end(place, b"joining.run_child")
        assert alive(child)
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def test_a_refused_loader_leaves_nothing(place: Path) -> None:
    before = Leftovers()
    arrays = data.ImageArrays(np.zeros((9, 8, 8, 3), np.uint8), np.arange(9), layout="HWC")
    for _ in range(2):
        with pytest.raises(DataError, match="lower batch_size"):
            loader(arrays, transforms=[data.Pad(30000)], num_workers=0)
        assert not servers_of(place)
        with pytest.raises(ValueError, match="prefetch"):
            loader(arrays, prefetch=9)
    before.assert_none()
    assert not list(place.rglob("*.sock"))


@pytest.mark.soak
def test_closing_one_of_two_servers_does_not_wait_for_the_other(place: Path) -> None:
    with loader(Images(40), num_workers=0):
        other: Any = loader(Images(41), num_workers=0)
        start = time.monotonic()
        other.close()
        assert time.monotonic() - start < 1.5
